"""Cancelling: at once while pending; while running the handler is told, and nothing is retried."""

import asyncio
import threading
import time

import pytest

from tests.support.eventually import eventually
from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker, let_lease_end, work_off
from yaoki import (
    Cancel,
    GiveUp,
    JobContext,
    LeaseLost,
    RetryAfter,
    RetryPolicy,
    Snooze,
    WrongStatus,
    Yaoki,
    fixed,
)
from yaoki.worker import limits

QUICKLY = RetryPolicy(max_attempts=3, backoff=fixed(0))


def test_a_pending_job_ends_at_once_and_never_runs(app: Yaoki) -> None:
    ran = []

    @app.job("a")
    def handler() -> None:
        ran.append(1)

    job = handler.enqueue()
    cancelled = app.cancel(job)
    work_off(app)

    assert cancelled.status == "cancelled"
    assert cancelled.finished_at is not None
    assert ran == []


def test_a_plain_handler_is_told_and_its_job_ends_cancelled(
    app: Yaoki, start_worker: StartWorker
) -> None:
    started, seen = threading.Event(), []

    @app.job("a", retry=QUICKLY)
    def handler(ctx: JobContext) -> None:
        started.set()
        told = ctx.wait_stopping(10)
        seen.append((told, ctx.stopping))

    job = handler.enqueue()
    start_worker()
    started.wait(5)
    asked = app.cancel(job)
    assert (asked.status, asked.being_cancelled) == ("running", True)

    ended = app.wait(job, timeout=5)
    assert seen == [(True, "cancelled")]
    assert (ended.status, ended.attempt, ended.being_cancelled) == ("cancelled", 1, False)


def test_an_async_handler_gets_cancelled_error(app: Yaoki, start_worker: StartWorker) -> None:
    started, seen = threading.Event(), []

    @app.job("a", retry=QUICKLY)
    async def handler(ctx: JobContext) -> None:
        started.set()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            seen.append(ctx.stopping)
            raise

    job = handler.enqueue()
    start_worker()
    started.wait(5)
    app.cancel(job)

    ended = app.wait(job, timeout=5)
    assert seen == ["cancelled"]
    assert (ended.status, ended.attempt) == ("cancelled", 1)


def returns(ctx: JobContext) -> str:
    return "done all the same"


def fails(ctx: JobContext) -> None:
    raise ValueError("fails instead")


def snoozes(ctx: JobContext) -> None:
    raise Snooze(1)


def asks_for_another_time(ctx: JobContext) -> None:
    raise RetryAfter(0)


def gives_up(ctx: JobContext) -> None:
    raise GiveUp("no use")


def exits(ctx: JobContext) -> None:
    raise SystemExit(3)


def cancels(ctx: JobContext) -> None:
    raise Cancel("had enough")


def reports(ctx: JobContext) -> None:
    ctx.progress(1, 2)


WAYS_OUT = [
    returns,
    fails,
    snoozes,
    asks_for_another_time,
    gives_up,
    exits,
    cancels,
    reports,
]


@pytest.mark.parametrize("way_out", WAYS_OUT, ids=lambda way: way.__name__)
def test_it_ends_cancelled_whatever_its_handler_does(
    app: Yaoki, start_worker: StartWorker, way_out: object
) -> None:
    started = threading.Event()

    @app.job("a", retry=QUICKLY)
    def handler(ctx: JobContext) -> object:
        started.set()
        ctx.wait_stopping(10)
        return way_out(ctx)  # type: ignore[operator]

    job = handler.enqueue()
    start_worker()
    started.wait(5)
    app.cancel(job)

    ended = app.wait(job, timeout=5)
    assert ended.status == "cancelled"
    assert [one.outcome for one in ended.attempts] == ["cancelled"]


def test_an_async_handler_that_swallows_its_cancellation_is_cancelled_again(
    app: Yaoki, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And ends cancelled, although it says that it is done."""
    monkeypatch.setattr(limits, "AGAIN", 0.2)
    started, swallowed = threading.Event(), []

    @app.job("a", retry=QUICKLY)
    async def handler() -> str:
        started.set()
        while len(swallowed) < 3:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                swallowed.append(1)
        return "done all the same"

    job = handler.enqueue()
    start_worker()
    started.wait(5)
    app.cancel(job)

    ended = app.wait(job, timeout=20)
    assert (ended.status, ended.attempt) == ("cancelled", 1)


def test_one_that_goes_on_is_being_cancelled_until_its_time_limit_and_then_cancelled(
    app: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    started = threading.Event()

    @app.job("a", timeout=1.5, retry=QUICKLY)
    def handler() -> None:
        started.set()
        release.wait(60)

    job = handler.enqueue()
    working = start_worker()
    started.wait(5)
    app.cancel(job)
    assert app.get(job).being_cancelled
    with pytest.raises(WrongStatus, match="it is being cancelled; put it back when it has ended"):
        app.retry(job)

    ended = app.wait(job, timeout=20)
    assert working.worker.slots.leaked == 1
    assert [one.outcome for one in ended.attempts] == ["cancelled"]
    assert (ended.status, ended.attempt, ended.being_cancelled) == ("cancelled", 1, False)
    assert app.retry(job).status == "pending"


def test_one_that_is_handed_back_when_its_worker_ends_is_cancelled(
    app: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    started = threading.Event()

    @app.job("a", retry=QUICKLY)
    def handler() -> None:
        started.set()
        release.wait(60)

    job = handler.enqueue()
    working = start_worker(grace=0.1)
    started.wait(5)
    app.cancel(job)
    ending = working.drain()

    assert ending.handed_back == 1
    assert app.get(job).status == "cancelled"
    assert [one.outcome for one in app.get(job).attempts] == ["cancelled"]


def test_one_whose_lease_is_lost_is_cancelled_by_whoever_takes_it_back(
    app: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    """And stays so, whatever the handler says in the end."""
    started = threading.Event()

    @app.job("a", retry=QUICKLY)
    def handler() -> str:
        started.set()
        release.wait(60)
        return "too late"

    job = handler.enqueue()
    working = start_worker(lease_for=2)
    started.wait(5)
    app.cancel(job)
    let_lease_end(app, job.id)
    assert [one.id for one in app.rescue()] == [job.id]
    taken = app.get(job)
    release.set()
    eventually(lambda: working.worker.slots.idle and working.worker.slots.leaked == 0, within=20)
    working.drain()

    assert (taken.status, taken.attempt) == ("cancelled", 1)
    assert app.get(job) == taken


def test_one_that_was_claimed_ahead_never_begins(app: Yaoki, start_worker: StartWorker) -> None:
    """Between its claim and its turn."""
    started, may_end, ran = threading.Event(), threading.Event(), []

    @app.job("quick")
    def quick() -> None: ...

    @app.job("long")
    def long() -> None:
        started.set()
        may_end.wait(30)

    @app.job("behind", retry=QUICKLY)
    def behind(ctx: JobContext) -> None:
        ran.append(ctx.job.id)

    quick.enqueue_many([{}] * 300)
    long.enqueue()
    jobs = behind.enqueue_many([{}] * 3)
    working = start_worker(concurrency=1, lease_for=60)
    started.wait(10)
    eventually(lambda: working.worker.slots.waiting >= 3, within=10)
    asked = [app.cancel(job).being_cancelled for job in jobs]

    def told() -> bool:
        """Or given back, which a line is that waits for long."""
        in_line = [run for run in working.worker.slots.in_hand if run.kind.name == "behind"]
        return all(run.context.stopping == "cancelled" for run in in_line)

    eventually(told)
    may_end.set()
    ended = [app.wait(job, timeout=20) for job in jobs]

    assert any(asked)
    assert {(one.status, one.attempt > 1) for one in ended} == {("cancelled", False)}
    assert ran == []


def test_a_running_job_is_told_within_a_second(app: Yaoki, start_worker: StartWorker) -> None:
    started = threading.Event()

    @app.job("a")
    def handler(ctx: JobContext) -> float:
        started.set()
        ctx.wait_stopping(10)
        return 0

    working = start_worker(lease_for=60)
    eventually(lambda: app.workers())
    job = handler.enqueue()
    started.wait(5)
    asked = time.monotonic()
    app.cancel(job)
    app.wait(job, timeout=5)

    assert time.monotonic() - asked < 1.2
    working.drain()


def test_cancelling_twice_changes_nothing(app: Yaoki, start_worker: StartWorker) -> None:
    started = threading.Event()

    @app.job("a")
    def handler(ctx: JobContext) -> None:
        started.set()
        ctx.wait_stopping(10)

    job = handler.enqueue()
    start_worker()
    started.wait(5)
    first = app.cancel(job)
    second = app.cancel(job)
    ended = app.wait(job, timeout=5)
    after = app.cancel(job)

    assert second.cancel_requested_at == first.cancel_requested_at
    assert after == ended


def test_what_has_ended_cannot_be_cancelled(app: Yaoki) -> None:
    @app.job("a")
    def handler() -> None: ...

    job = handler.enqueue()
    work_off(app)

    with pytest.raises(WrongStatus, match="is completed"):
        app.cancel(job)


@pytest.mark.usefixtures("noted")
def test_a_transaction_of_a_cancelled_job_is_rolled_back(
    app: Yaoki, start_worker: StartWorker
) -> None:
    inside, seen = threading.Event(), []

    @app.job("a", retry=QUICKLY)
    def handler(ctx: JobContext) -> None:
        inside.set()
        ctx.wait_stopping(10)
        try:
            with ctx.transaction() as tx:
                tx.execute(*add(app, "never"))
        except LeaseLost as error:
            seen.append(str(error))
            raise

    job = handler.enqueue()
    start_worker()
    inside.wait(5)
    app.cancel(job)

    assert app.wait(job, timeout=5).status == "cancelled"
    assert "cancelled" in seen[0]
    assert notes(app) == []


def test_cancel_works_while_the_worker_drains(app: Yaoki, start_worker: StartWorker) -> None:
    started = threading.Event()

    @app.job("a")
    def handler(ctx: JobContext) -> None:
        started.set()
        end = time.monotonic() + 10
        while ctx.stopping != "cancelled" and time.monotonic() < end:
            time.sleep(0.01)

    job = handler.enqueue()
    working = start_worker(grace=20)
    started.wait(5)
    working.worker.drain()
    eventually(lambda: app.workers()[0].state == "draining")
    app.cancel(job)
    ending = working.wait(within=5)

    assert app.get(job).status == "cancelled"
    assert ending.handed_back == 0


def test_a_cancelled_job_that_its_worker_lost_is_not_run_again(app: Yaoki) -> None:
    @app.job("a", retry=QUICKLY)
    def handler() -> None: ...

    handler.enqueue()
    [job] = app.claim("dies", lease_for=1)
    app.cancel(job)
    eventually(app.rescue, within=5)

    assert app.get(job).status == "cancelled"


def test_an_async_job_is_cancelled_although_its_loop_is_blocked(
    app: Yaoki, start_worker: StartWorker
) -> None:
    """It is cancelled before its first step, so nothing in it can say that it ended."""
    blocking, ran = threading.Event(), []

    @app.job("blocks")
    async def blocks() -> None:
        blocking.set()
        time.sleep(1.5)

    @app.job("waits", timeout=None)
    async def waits() -> None:
        ran.append(1)
        await asyncio.sleep(0)

    working = start_worker(concurrency=2)
    blocks.enqueue()
    eventually(blocking.is_set)
    job = waits.enqueue()
    eventually(lambda: app.get(job).status == "running")
    app.cancel(job)

    ended = app.wait(job, timeout=5)
    assert ended.status == "cancelled"
    assert ran == []
    assert working.worker.slots.idle


def test_a_job_that_is_put_back_after_a_cancel_runs(app: Yaoki) -> None:
    @app.job("a")
    def handler() -> str:
        return "ran"

    job = handler.enqueue()
    app.cancel(job)
    again = app.retry(job)
    work_off(app)

    assert (again.status, again.cancel_requested_at) == ("pending", None)
    assert (app.get(job).status, app.get(job).result) == ("completed", "ran")
