"""What handlers do to the process that they share with the worker, and what it makes of it."""

import asyncio
import os
import threading
from collections import Counter

import pytest

from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, stays, work_off
from yaoki import JobContext, RetryPolicy, Yaoki, fixed

ONCE = RetryPolicy(max_attempts=1)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_child_task_that_exits_does_not_take_the_event_loop_with_it(
    app: Yaoki, start_worker: StartWorker, error: BaseException
) -> None:
    """asyncio lets these two out of its loop, wherever in a task they are raised."""

    async def child() -> None:
        await asyncio.sleep(0)
        raise error

    @app.job("parent", retry=ONCE)
    async def parent() -> None:
        await asyncio.gather(child(), asyncio.sleep(0.05))

    @app.job("neighbour")
    async def neighbour() -> str:
        await asyncio.sleep(0.3)
        return "done"

    beside = neighbour.enqueue()
    start_worker(concurrency=5)
    eventually(lambda: app.get(beside).status == "running")
    bad = parent.enqueue()
    ended = app.wait(bad, timeout=5)
    after = neighbour.enqueue()

    assert ended.status == "failed"
    assert app.wait(beside, timeout=5).status == "completed"
    assert app.wait(after, timeout=5).status == "completed"


def test_a_handler_that_stops_the_event_loop_does_not_stop_the_worker(
    app: Yaoki, start_worker: StartWorker
) -> None:
    @app.job("stops", retry=ONCE)
    async def stops() -> None:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)

    @app.job("next")
    async def following() -> str:
        await asyncio.sleep(0.01)
        return "done"

    start_worker()
    bad = stops.enqueue()
    app.wait(bad, timeout=5)

    assert app.wait(following.enqueue(), timeout=5).result == "done"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_thread_that_cannot_be_started_strands_no_job(
    app: Yaoki, start_worker: StartWorker, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """The process is at its limit of threads for a moment: stacks of 128 TB cannot be had."""
    ran = []

    @app.job("def", retry=RetryPolicy(max_attempts=2))
    def plain() -> None:
        ran.append(1)

    @app.job("async def", retry=RetryPolicy(max_attempts=2))
    async def coroutine() -> None:
        ran.append(1)

    start_worker(concurrency=3)
    # The worker's own threads are there when a job of the other kind has run.
    app.wait(app.enqueue("async def" if kind == "def" else "def"), timeout=5)
    ran.clear()
    before = threading.stack_size()
    try:
        threading.stack_size(1 << 47)
        jobs = app.enqueue_many(kind, [{}] * 3)
        eventually(lambda: "start new thread" in caplog.text)
        stays(lambda: True, during=0.5)
    finally:
        threading.stack_size(before)
    tries = caplog.text.count("can't start new thread")
    ended = [app.wait(job, timeout=10) for job in jobs]

    assert len(ran) == 3
    assert {(one.status, one.attempt) for one in ended} == {("completed", 1)}
    assert tries < 100, "it should pause for a moment before it claims again"


def test_two_workers_that_were_given_one_name_leave_each_other_alone(
    app: Yaoki, start_worker: StartWorker
) -> None:
    """The name is a label for people: it proves no ownership."""
    runs: Counter[int] = Counter()

    @app.job("a", retry=RetryPolicy(backoff=fixed(0)))
    def handler(ctx: JobContext) -> None:
        runs[ctx.job.id] += 1
        ctx.wait_stopping(2.5)

    jobs = handler.enqueue_many([{}] * 4)
    start_worker(worker_id="pod-0", lease_for=1, concurrency=2)
    start_worker(worker_id="pod-0", lease_for=1, concurrency=2)
    ended = [app.wait(job, timeout=15) for job in jobs]

    assert runs == {job.id: 1 for job in jobs}
    assert {(one.status, one.attempt, one.releases) for one in ended} == {("completed", 1, 0)}


def test_one_that_leaves_does_not_strike_the_other_of_its_name_off_the_list(
    app: Yaoki, start_worker: StartWorker
) -> None:
    @app.job("a")
    def handler() -> None: ...

    start_worker(worker_id="pod-0", lease_for=60)
    second = start_worker(worker_id="pod-0", lease_for=60)
    eventually(app.workers)
    second.drain()

    [left] = app.workers()
    assert left.worker_id.startswith("pod-0")


def test_a_handler_that_changes_the_folder_does_not_lose_the_file(
    app: Yaoki, start_worker: StartWorker
) -> None:
    here = os.getcwd()

    @app.job("a")
    def handler() -> None:
        os.chdir("/")

    try:
        first = handler.enqueue()
        start_worker()
        app.wait(first, timeout=5)
        assert app.wait(handler.enqueue(), timeout=5).status == "completed"
    finally:
        os.chdir(here)


def test_a_handler_may_run_an_event_loop_of_its_own(app: Yaoki) -> None:
    """asyncio.run in a plain handler is its own affair."""

    @app.job("a")
    def handler() -> int:
        async def program() -> int:
            await asyncio.sleep(0.01)
            return 7

        return asyncio.run(program())

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).result == 7
