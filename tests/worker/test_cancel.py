"""Cancelling: at once while pending; while running the handler is told, and nothing is retried."""

import asyncio
import threading
import time

import pytest

from tests.support.eventually import eventually
from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker, work_off
from yaoki import Cancel, JobContext, LeaseLost, RetryPolicy, Snooze, WrongStatus, Yaoki, fixed

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


def cancels(ctx: JobContext) -> None:
    raise Cancel("had enough")


def reports(ctx: JobContext) -> None:
    ctx.progress(1, 2)


@pytest.mark.parametrize("way_out", [returns, fails, snoozes, cancels, reports])
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


def test_an_async_handler_that_swallows_its_cancellation_ends_cancelled(
    app: Yaoki, start_worker: StartWorker
) -> None:
    started = threading.Event()

    @app.job("a")
    async def handler() -> str:
        started.set()
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
        return "done all the same"

    job = handler.enqueue()
    start_worker()
    started.wait(5)
    app.cancel(job)

    assert app.wait(job, timeout=5).status == "cancelled"


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
