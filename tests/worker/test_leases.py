"""A lease is kept whatever the handlers do, and lost for good when it is lost."""

import asyncio
import threading
import time

import pytest

from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, let_lease_end, stays
from yaoki import JobContext, LeaseLost, RetryPolicy, Yaoki, fixed

AGAIN = RetryPolicy(max_attempts=3, backoff=fixed(0))


def take_away(app: Yaoki, job_id: int) -> None:
    """What happens to a worker that slept past its lease: somebody took the job back."""
    let_lease_end(app, job_id)
    assert [one.id for one in app.rescue()] == [job_id]


def test_it_is_kept_while_handlers_block_the_loop_and_hold_the_interpreter(
    app: Yaoki, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    runs = []

    @app.job("blocks", retry=AGAIN)
    async def blocks(ctx: JobContext) -> str:
        runs.append("blocks")
        time.sleep(4)
        return "done"

    @app.job("computes", retry=AGAIN)
    def computes(ctx: JobContext) -> str:
        runs.append("computes")
        end = time.monotonic() + 4
        while time.monotonic() < end:
            sum(number * number for number in range(20_000))
        return "done"

    jobs = [blocks.enqueue(), computes.enqueue()]
    start_worker(lease_for=1)
    start_worker(lease_for=1)

    ended = [app.wait(job, timeout=15) for job in jobs]
    named = f"job {jobs[0].id} (blocks, attempt 1)"
    assert sorted(runs) == ["blocks", "computes"]
    assert {(one.status, one.attempt, one.result) for one in ended} == {("completed", 1, "done")}
    assert f"{named} has blocked the event loop for" in caplog.text
    eventually(lambda: f"{named} blocked the event loop for 4" in caplog.text)


def test_it_is_kept_until_the_end_of_a_graceful_shutdown(
    app: Yaoki, start_worker: StartWorker
) -> None:
    started, runs = threading.Event(), []

    @app.job("long", retry=AGAIN)
    def long(ctx: JobContext) -> None:
        runs.append(ctx.attempt)
        started.set()
        time.sleep(2)

    job = long.enqueue()
    first = start_worker(lease_for=1, grace=20)
    started.wait(5)
    start_worker(lease_for=1)
    ending = first.drain()

    ended = app.get(job)
    assert runs == [1]
    assert (ended.status, ended.attempt) == ("completed", 1)
    assert ending.exit_code == 0


def test_it_is_renewed_at_a_third_of_its_length(app: Yaoki, start_worker: StartWorker) -> None:
    started, seen = threading.Event(), set()

    @app.job("long")
    def long(ctx: JobContext) -> None:
        started.set()
        ctx.wait_stopping(10)

    job = long.enqueue()
    start_worker(lease_for=1)
    started.wait(5)
    assert stays(lambda: seen.add(app.get(job).lease_expires_at) is None, during=2)

    assert 5 <= len(seen) <= 9
    gaps = [(b - a).total_seconds() for a, b in zip(sorted(seen), sorted(seen)[1:], strict=False)]
    assert max(gaps) < 0.6


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_handler_whose_lease_was_lost_is_told_and_refused(
    app: Yaoki, start_worker: StartWorker, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    started, seen = threading.Event(), []

    @app.job("def", retry=AGAIN)
    def plain(ctx: JobContext) -> str:
        if ctx.attempt > 1:
            return "second"
        started.set()
        seen.append(ctx.wait_stopping(10))
        seen.append(ctx.stopping)
        with pytest.raises(LeaseLost):
            ctx.progress(1, 2)
        with pytest.raises(LeaseLost), ctx.transaction():
            seen.append("inside")
        return "first"

    @app.job("async def", retry=AGAIN)
    async def coroutine(ctx: JobContext) -> str:
        if ctx.attempt > 1:
            return "second"
        started.set()
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            seen.append(True)
        seen.append(ctx.stopping)
        with pytest.raises(LeaseLost):
            await ctx.aprogress(1, 2)
        with pytest.raises(LeaseLost):
            async with ctx.atransaction():
                seen.append("inside")
        return "first"

    job = app.enqueue(kind)
    start_worker(lease_for=1)
    started.wait(5)
    take_away(app, job.id)
    ended = app.wait(job, timeout=10)
    eventually(lambda: len(seen) >= 2)

    assert seen == [True, "lease lost"]
    assert (ended.status, ended.attempt, ended.result) == ("completed", 2, "second")
    assert "its lease was lost" in caplog.text
    assert app.get(job) == ended


@pytest.mark.parametrize("way_out", ["returns", "raises", "snoozes"])
def test_a_worker_that_claims_its_own_lost_job_again_refuses_its_first_attempt(
    app: Yaoki, start_worker: StartWorker, way_out: str
) -> None:
    """One worker, both attempts at once: only the second may write."""
    first_began, go_on = threading.Event(), threading.Event()
    second_began, second_may_end = threading.Event(), threading.Event()

    @app.job("a", retry=AGAIN)
    def handler(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            first_began.set()
            go_on.wait(10)
            if way_out == "raises":
                raise ValueError("late")
            return "first"
        second_began.set()
        second_may_end.wait(10)
        return "second"

    job = handler.enqueue()
    working = start_worker(lease_for=1, concurrency=2)
    first_began.wait(5)
    take_away(app, job.id)
    second_began.wait(5)
    go_on.set()
    eventually(lambda: len(working.worker.slots.running) == 1)
    between = app.get(job)
    second_may_end.set()
    ended = app.wait(job, timeout=10)

    assert (between.status, between.attempt) == ("running", 2)
    assert (ended.status, ended.attempt, ended.result) == ("completed", 2, "second")
    assert len(ended.errors) == 1


def test_a_silent_worker_loses_its_job_to_a_living_one(
    app: Yaoki, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("a", retry=AGAIN)
    def handler() -> str:
        return "done"

    job = handler.enqueue()
    app.claim("silent", lease_for=1)
    start_worker(lease_for=1)
    ended = app.wait(job, timeout=5)

    assert (ended.status, ended.attempt) == ("completed", 2)
    assert ended.errors[0].error == "lease lost (worker silent)"
    assert "was taken back from worker silent" in caplog.text


def test_a_rescue_needs_no_free_slot(app: Yaoki, start_worker: StartWorker) -> None:
    started = threading.Barrier(3, timeout=5)

    @app.job("fills")
    def fills(ctx: JobContext) -> None:
        started.wait()
        ctx.wait_stopping(20)

    @app.job("orphan")
    def orphan() -> None: ...

    lost = orphan.enqueue()
    app.claim("silent", lease_for=1)
    fills.enqueue_many([{}] * 2)
    start_worker(lease_for=1, concurrency=2)
    started.wait()

    eventually(lambda: app.get(lost).status == "pending", within=5)


def test_a_new_worker_under_the_old_name_does_not_hide_what_the_old_one_held(
    app: Yaoki, start_worker: StartWorker
) -> None:
    @app.job("a", retry=AGAIN)
    def handler() -> str:
        return "done"

    job = handler.enqueue()
    app.claim("pod-0", lease_for=1)
    start_worker(lease_for=1, worker_id="pod-0")

    ended = app.wait(job, timeout=6)
    assert ended.status == "completed"


def test_workers_that_were_given_no_name_have_different_ones(
    app: Yaoki, start_worker: StartWorker
) -> None:
    @app.job("a")
    def handler() -> None: ...

    first, second = start_worker(), start_worker()

    assert first.worker.settings.worker_id != second.worker.settings.worker_id


def test_jobs_claimed_ahead_do_not_run_twice_although_they_wait_in_line(
    app: Yaoki, start_worker: StartWorker
) -> None:
    runs: list[int] = []

    @app.job("quick")
    def quick(number: int) -> None: ...

    @app.job("half a lease")
    def half(number: int) -> None:
        runs.append(number)
        time.sleep(0.5)

    quick.enqueue_many([{"number": number} for number in range(300)])
    half.enqueue_many([{"number": number} for number in range(6)])
    start_worker(lease_for=1, concurrency=1)
    start_worker(lease_for=1, concurrency=1)
    eventually(lambda: len(list(app.jobs(type="half a lease", status="completed"))) == 6, within=15)

    assert sorted(runs) == list(range(6))
