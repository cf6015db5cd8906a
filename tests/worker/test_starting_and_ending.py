"""A worker's first and last moments, with a database that is there."""

import asyncio
import threading
import time

import pytest

from tests.support.eventually import eventually
from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker, Working
from yaoki import JobContext, RetryPolicy, Yaoki
from yaoki.worker.worker import Ending


def test_a_worker_that_was_drained_before_it_ran_ends_at_once(app: Yaoki) -> None:
    @app.job("a")
    def handler() -> None: ...

    job = handler.enqueue()
    worker = app.worker()
    worker.drain()
    began = time.monotonic()
    ending = worker.run()

    assert time.monotonic() - began < 2
    assert ending.exit_code == 0
    assert app.get(job).attempt in (0, 1)
    assert app.get(job).status in ("pending", "completed")


def test_an_idle_worker_ends_at_once(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("a")
    def handler() -> None: ...

    working = start_worker(grace=30)
    eventually(app.workers)
    began = time.monotonic()
    working.drain()

    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_grace_period_of_nothing_hands_back_at_once(
    app: Yaoki, start_worker: StartWorker, release: threading.Event, kind: str
) -> None:
    started = threading.Event()

    @app.job("def", retry=RetryPolicy(max_attempts=1))
    def plain() -> None:
        started.set()
        release.wait(20)

    @app.job("async def", retry=RetryPolicy(max_attempts=1))
    async def coroutine() -> None:
        started.set()
        await asyncio.sleep(20)

    job = app.enqueue(kind)
    working = start_worker(grace=0, lease_for=60)
    started.wait(5)
    ending = working.drain(within=5)

    back = app.get(job)
    assert (ending.handed_back, ending.exit_code) == (1, 1)
    assert (back.status, back.attempt, back.releases) == ("pending", 0, 1)
    assert back.attempts[0].error == "stopped when its worker shut down"


@pytest.mark.usefixtures("noted")
def test_a_handler_that_was_left_behind_changes_nothing_later(
    app: Yaoki, start_worker: StartWorker
) -> None:
    started, go_on, done = threading.Event(), threading.Event(), threading.Event()

    @app.job("a")
    def handler(ctx: JobContext) -> str:
        started.set()
        go_on.wait(20)
        try:
            ctx.progress(1, 2)
            with ctx.transaction() as tx:
                tx.execute(*add(app, "late"))
        finally:
            done.set()
        return "late"

    job = handler.enqueue()
    working = start_worker(grace=0, lease_for=60)
    started.wait(5)
    working.drain(within=5)
    before = app.get(job)
    go_on.set()
    done.wait(5)

    assert app.get(job) == before
    assert before.status == "pending"
    assert notes(app) == []


def test_a_job_that_ended_during_the_grace_period_is_recorded(
    app: Yaoki, start_worker: StartWorker
) -> None:
    started = threading.Event()

    @app.job("a")
    def handler(ctx: JobContext) -> str:
        started.set()
        assert ctx.wait_stopping(10)
        return str(ctx.stopping)

    job = handler.enqueue()
    working = start_worker(grace=10)
    started.wait(5)
    ending = working.drain()

    assert ending.exit_code == 0
    assert (app.get(job).status, app.get(job).result) == ("completed", "shutdown")


def test_an_async_handler_that_finishes_when_it_is_cancelled_was_not_handed_back(
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
        return "saved what it had"

    job = handler.enqueue()
    working = start_worker(grace=0)
    started.wait(5)
    ending = working.drain()

    assert (app.get(job).status, app.get(job).result) == ("completed", "saved what it had")
    assert (ending.handed_back, ending.exit_code) == (0, 0)


def test_a_failure_during_the_grace_period_counts_as_one(
    app: Yaoki, start_worker: StartWorker
) -> None:
    started = threading.Event()

    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(ctx: JobContext) -> None:
        started.set()
        ctx.wait_stopping(10)
        raise ValueError("because it was stopped")

    job = handler.enqueue()
    working = start_worker(grace=10)
    started.wait(5)
    working.drain()

    assert (app.get(job).status, app.get(job).error) == (
        "failed",
        "ValueError: because it was stopped",
    )


def test_many_workers_start_and_end_at_once(app: Yaoki) -> None:
    @app.job("a")
    def handler() -> None: ...

    jobs = handler.enqueue_many([{}] * 500)
    workers = [Working(app, until_empty=True, lease_for=5) for _ in range(6)]
    for working in workers:
        assert working.wait().exit_code == 0

    assert {app.get(job).status for job in jobs} == {"completed"}
    assert {app.get(job).attempt for job in jobs} == {1}
    assert app.workers() == []


def test_nothing_is_left_running_when_workers_have_ended(app: Yaoki) -> None:
    @app.job("a")
    def handler() -> None: ...

    @app.job("b")
    async def coroutine() -> None: ...

    def ours() -> set[str]:
        """Threads that a worker starts, but for those that rest for a while, idle."""
        names = {thread.name for thread in threading.enumerate()}
        return {
            name
            for name in names
            if name.startswith("yaoki-") and name not in ("yaoki-job", "yaoki-writer")
            if not name.startswith("yaoki-read")
        }

    handler.enqueue()
    coroutine.enqueue()
    Working(app, until_empty=True).wait()

    assert ours() == set()


def test_an_ending_that_could_not_record_everything_is_no_success() -> None:
    assert Ending().exit_code == 0
    assert Ending(unrecorded=1).exit_code == 1
    assert Ending(handed_back=1).exit_code == 1
    assert Ending(unrecorded=1, hurried_by=15).exit_code == 143
