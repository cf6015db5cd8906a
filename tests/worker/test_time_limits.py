"""An attempt that runs past its time limit is over, whatever its handler does."""

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from tests.support.databases import locked
from tests.support.eventually import eventually
from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker, stays, work_off
from yaoki import (
    InvalidOption,
    JobContext,
    LeaseLost,
    RetryPolicy,
    TimeLimitExceeded,
    Yaoki,
    fixed,
)
from yaoki.core.outcomes import Change
from yaoki.worker.run import Run
from yaoki.worker.slots import Slots

ONCE = RetryPolicy(max_attempts=1)


def test_an_async_handler_is_cancelled_at_its_limit(app: Yaoki) -> None:
    seen = []

    @app.job("slow", timeout=0.2, retry=ONCE)
    async def slow(ctx: JobContext) -> None:
        try:
            await asyncio.sleep(20)
        finally:
            seen.append(ctx.stopping)

    job = slow.enqueue()
    began = time.monotonic()
    work_off(app)

    ended = app.get(job)
    assert time.monotonic() - began < 5
    assert seen == ["timeout"]
    assert (ended.status, ended.attempt) == ("failed", 1)
    assert ended.error == "TimeLimitExceeded: ran longer than its time limit of 200 ms"


Handler = Callable[[Yaoki, JobContext, threading.Event], object]


async def swallows(app: Yaoki, ctx: JobContext, release: threading.Event) -> str:
    while not release.is_set():
        try:
            await asyncio.sleep(0.05)
        except asyncio.CancelledError:
            continue
    return "too late"


async def blocks_the_loop(app: Yaoki, ctx: JobContext, release: threading.Event) -> str:
    release.wait(60)
    return "too late"


def sleeps_on(app: Yaoki, ctx: JobContext, release: threading.Event) -> str:
    while not release.is_set():
        time.sleep(0.01)
    return "too late"


def in_a_transaction(app: Yaoki, ctx: JobContext, release: threading.Event) -> str:
    with ctx.transaction() as tx:
        tx.execute(*add(app, "never"))
        release.wait(60)
        tx.execute(*add(app, "never"))
    return "too late"


STUBBORN: list[Handler] = [swallows, blocks_the_loop, sleeps_on, in_a_transaction]


@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("way", STUBBORN, ids=lambda way: way.__name__)
def test_a_handler_that_goes_on_loses_its_job_and_its_slot(
    app: Yaoki, start_worker: StartWorker, release: threading.Event, way: Handler
) -> None:
    """Whatever kind it is of, others go on with the whole concurrency (faults 5)."""

    async def coroutine(ctx: JobContext) -> object:
        return await cast(Awaitable[object], way(app, ctx, release))

    def plain(ctx: JobContext) -> object:
        return way(app, ctx, release)

    @app.job("other")
    def other() -> str:
        return "done"

    kind = app.job("stubborn", timeout=0.2, retry=ONCE)
    job = kind(coroutine if inspect.iscoroutinefunction(way) else plain).enqueue()
    working = start_worker(concurrency=1)
    ended = app.wait(job, timeout=20)
    following = app.wait(other.enqueue(), timeout=20)
    leaked = working.worker.slots.leaked
    release.set()
    eventually(lambda: working.worker.slots.leaked == 0, within=20)

    assert (ended.status, ended.attempt, ended.result) == ("failed", 1, None)
    assert "TimeLimitExceeded" in str(ended.error)
    assert following.result == "done"
    assert leaked == 1
    assert app.get(job) == ended
    assert notes(app) == []


def test_a_database_that_does_not_answer_holds_up_no_time_limit(
    app: Yaoki, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    """The slots are given on, and the outcomes are recorded when it answers again."""
    begun, told = threading.Semaphore(0), threading.Semaphore(0)

    @app.job("plain", timeout=1, retry=ONCE)
    def plain(ctx: JobContext) -> None:
        begun.release()
        if ctx.wait_stopping(30):
            told.release()

    @app.job("async", timeout=1, retry=ONCE)
    async def coroutine() -> None:
        begun.release()
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            told.release()
            raise

    jobs = [plain.enqueue(), coroutine.enqueue()]
    working = start_worker(lease_for=30, concurrency=2)
    assert all(begun.acquire(timeout=10) for _ in jobs)
    with locked(app.store):
        # The keeper asks the database, and is not back before the lock is gone.
        working.worker.keeper.beat_soon()
        eventually(lambda: working.worker.keeper.busy_since)
        assert stays(lambda: working.worker.keeper.busy_since, during=0.3)
        assert all(told.acquire(timeout=4) for _ in jobs)
        eventually(lambda: working.worker.slots.free == 2, within=3)

    ended = [app.wait(job, timeout=20) for job in jobs]
    limit = "TimeLimitExceeded: ran longer than its time limit of 1 s"
    assert {(one.status, one.error) for one in ended} == {("failed", limit)}


def test_one_that_cannot_be_killed_holds_up_neither_itself_nor_the_others(
    app: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    """As an isolated one is, when the system refuses."""
    begun = threading.Semaphore(0)

    @app.job("stubborn", timeout=1, retry=ONCE)
    def stubborn() -> None:
        begun.release()
        release.wait(60)

    def refuse(reason: str) -> None:
        raise PermissionError(reason)

    jobs = stubborn.enqueue_many([{}] * 3)
    working = start_worker(concurrency=3)
    assert all(begun.acquire(timeout=10) for _ in jobs)
    working.worker.slots.running[0].kill = refuse
    ended = [app.wait(job, timeout=20) for job in jobs]

    assert {one.status for one in ended} == {"failed"}
    assert working.worker.slots.leaked == 3


def test_a_thread_that_overruns_is_timed_out_at_once_and_its_result_refused(
    app: Yaoki, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    going_on = threading.Event()
    said: list[object] = []

    @app.job("overruns", timeout=0.2, retry=ONCE)
    def overruns(ctx: JobContext) -> str:
        ctx.wait_stopping(10)
        said.append(ctx.stopping)
        going_on.wait(10)
        try:
            ctx.progress(1)
        except LeaseLost as error:
            said.append(type(error))
        try:
            with ctx.transaction():
                said.append("in the transaction")
        except LeaseLost as error:
            said.append(type(error))
        said.append("end")
        return "too late"

    job = overruns.enqueue()
    working = start_worker(concurrency=1)
    eventually(lambda: app.get(job).status == "failed", within=3)
    timed_out = app.get(job)
    assert working.worker.slots.leaked == 1
    going_on.set()
    eventually(lambda: working.worker.slots.leaked == 0)
    working.drain()

    assert app.get(job) == timed_out
    assert timed_out.error == "TimeLimitExceeded: ran longer than its time limit of 200 ms"
    assert "wait_stopping" in str(timed_out.errors[0].traceback)
    assert said == ["timeout", LeaseLost, LeaseLost, "end"]
    assert "(1 handlers leaked)" in caplog.text


def test_twenty_overruns_in_a_row_leave_the_concurrency_as_it_was(
    app: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    together = threading.Barrier(2, timeout=10)

    @app.job("overruns", timeout=0.05, retry=ONCE)
    def overruns() -> None:
        release.wait(30)

    @app.job("pair")
    def pair() -> None:
        together.wait()

    working = start_worker(concurrency=2)
    leaking = overruns.enqueue_many([{}] * 20)
    eventually(lambda: app.get(leaking[-1]).status == "failed", within=10)
    assert working.worker.slots.leaked == 20
    pairs = pair.enqueue_many([{}] * 2)
    for job in pairs:
        app.wait(job, timeout=10)
    release.set()
    eventually(lambda: working.worker.slots.leaked == 0)

    assert [app.get(job).status for job in leaking] == ["failed"] * 20
    assert [app.get(job).status for job in pairs] == ["completed"] * 2


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_time_limit_is_retried_after_the_back_off(app: Yaoki, kind: str) -> None:
    calls = []

    @app.job("def", timeout=0.2, retry=RetryPolicy(backoff=fixed(0.1)))
    def plain(ctx: JobContext) -> None:
        calls.append(ctx.attempt)
        if ctx.attempt == 1:
            ctx.wait_stopping(10)

    @app.job("async def", timeout=0.2, retry=RetryPolicy(backoff=fixed(0.1)))
    async def coroutine(ctx: JobContext) -> None:
        calls.append(ctx.attempt)
        if ctx.attempt == 1:
            await asyncio.sleep(10)

    job = app.enqueue(kind)
    work_off(app)

    ended = app.get(job)
    assert (ended.status, ended.attempt, calls) == ("completed", 2, [1, 2])
    assert [one.outcome for one in ended.errors] == ["retried"]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_rule_can_make_a_time_limit_final(app: Yaoki, kind: str) -> None:
    rules = RetryPolicy(give_up_on=(TimeLimitExceeded,))

    @app.job("def", timeout=0.1, retry=rules)
    def plain(ctx: JobContext) -> None:
        ctx.wait_stopping(10)

    @app.job("async def", timeout=0.1, retry=rules)
    async def coroutine() -> None:
        await asyncio.sleep(10)

    job = app.enqueue(kind)
    work_off(app)

    assert (app.get(job).status, app.get(job).attempt) == ("failed", 1)


def test_the_limit_of_one_job_wins_over_that_of_its_type(app: Yaoki) -> None:
    @app.job("nap", timeout=0.1, retry=ONCE)
    def nap() -> None:
        time.sleep(0.5)

    short = nap.enqueue()
    long = nap.using(timeout=5).enqueue()
    without = nap.using(timeout=None).enqueue()
    work_off(app)

    assert app.get(short).status == "failed"
    assert (app.get(long).status, app.get(long).timeout) == ("completed", 5)
    assert (app.get(without).status, app.get(without).timeout) == ("completed", None)


@pytest.mark.parametrize("limit", [0, -1, float("nan"), "30"])
def test_a_limit_that_cannot_be_is_refused_at_once(app: Yaoki, limit: float) -> None:
    with pytest.raises(InvalidOption):

        @app.job("a", timeout=limit)
        def handler() -> None: ...


def test_no_limit_is_none_and_lives_as_long_as_its_lease_is_renewed(
    app: Yaoki, start_worker: StartWorker
) -> None:
    runs = []

    @app.job("long", timeout=None)
    def long(ctx: JobContext) -> None:
        runs.append(ctx.attempt)
        ctx.wait_stopping(2)

    job = long.enqueue()
    start_worker(lease_for=1)
    start_worker(lease_for=1)

    assert app.wait(job, timeout=10).status == "completed"
    assert runs == [1]


def test_a_handler_that_had_ended_before_its_limit_is_not_timed_out_later(app: Yaoki) -> None:
    @app.job("quick", timeout=0.3)
    async def quick() -> str:
        return "done"

    @app.job("long")
    def long() -> None:
        time.sleep(0.8)

    first, _ = quick.enqueue(), long.enqueue()
    work_off(app)

    assert (app.get(first).status, app.get(first).attempts[0].outcome) == ("completed", "completed")


def test_a_limit_that_passes_while_the_loop_is_blocked_ends_the_job(
    app: Yaoki, start_worker: StartWorker
) -> None:
    """The handler has not even begun when it is cancelled, so nothing in it can say so."""
    blocking = threading.Event()

    @app.job("blocks")
    async def blocks() -> None:
        blocking.set()
        time.sleep(0.8)

    @app.job("waits", timeout=0.3, retry=ONCE)
    async def waits() -> None:
        await asyncio.sleep(10)

    working = start_worker(concurrency=2)
    blocks.enqueue()
    eventually(blocking.is_set)
    job = waits.enqueue()
    eventually(lambda: app.get(job).status == "failed", within=5)
    working.drain()

    assert working.worker.slots.leaked == 0


def test_a_handler_that_is_done_just_before_it_is_stopped_has_not_failed(
    app: Yaoki,
    start_worker: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It was logged as failed, and recorded as completed."""
    go_on, tried = threading.Event(), threading.Event()

    @app.job("close", timeout=0.2, retry=ONCE)
    def close() -> str:
        go_on.wait(20)
        return "in time"

    give_on = Slots.abandon

    def abandon(slots: Slots, run: Run, change: Change) -> bool:
        go_on.set()
        eventually(lambda: run.ended)
        stopped = give_on(slots, run, change)
        tried.set()
        return stopped

    monkeypatch.setattr(Slots, "abandon", abandon)
    job = close.enqueue()
    start_worker()

    ended = app.wait(job, timeout=20)
    assert tried.wait(5)
    assert (ended.status, ended.result) == ("completed", "in time")
    assert "failed" not in caplog.text
