"""Plain and async handlers at once, never more of them than was said, from the queues named."""

import asyncio
import gc
import threading
import time
from collections import Counter

import pytest

from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, work_off
from yaoki import InvalidOption, JobContext, RetryPolicy, Yaoki


class Gauge:
    """How many are inside at once, by name, and the most there ever were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.inside: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def enter(self, *names: str) -> None:
        with self._lock:
            for name in names:
                self.inside[name] += 1
                self.most[name] = max(self.most[name], self.inside[name])

    def leave(self, *names: str) -> None:
        with self._lock:
            self.inside.subtract(names)


def test_plain_and_async_handlers_run_at_once(app: Yaoki, start_worker: StartWorker) -> None:
    plain_began, async_began = threading.Event(), threading.Event()

    @app.job("plain")
    def plain() -> bool:
        plain_began.set()
        return async_began.wait(5)

    @app.job("async")
    async def coroutine() -> bool:
        async_began.set()
        return await asyncio.to_thread(plain_began.wait, 5)

    jobs = [plain.enqueue(), coroutine.enqueue()]
    start_worker(concurrency=2)

    assert [app.wait(job, timeout=10).result for job in jobs] == [True, True]


def test_the_concurrency_counts_both_kinds_together(app: Yaoki) -> None:
    gauge = Gauge()

    @app.job("plain")
    def plain() -> None:
        gauge.enter("all")
        time.sleep(0.02)
        gauge.leave("all")

    @app.job("async")
    async def coroutine() -> None:
        gauge.enter("all")
        await asyncio.sleep(0.02)
        gauge.leave("all")

    for _ in range(20):
        plain.enqueue()
        coroutine.enqueue()
    work_off(app, concurrency=3)

    assert gauge.most["all"] == 3
    assert gauge.inside["all"] == 0


def test_a_queue_with_a_limit_runs_no_more_than_that(app: Yaoki) -> None:
    gauge = Gauge()

    @app.job("a")
    def handler(queue: str) -> None:
        gauge.enter("all", queue)
        time.sleep(0.02)
        gauge.leave("all", queue)

    for _ in range(15):
        for queue in ("mail", "reports", "default"):
            handler.using(queue=queue).enqueue(queue=queue)
    work_off(app, queues={"mail": 2, "reports": 1, "default": None}, concurrency=6)

    assert gauge.most["mail"] == 2
    assert gauge.most["reports"] == 1
    assert gauge.most["all"] <= 6
    assert len(list(app.jobs(status="completed", limit=100))) == 45


@pytest.mark.parametrize("limit", [1, 3])
def test_a_full_queue_does_not_hold_up_the_others(
    app: Yaoki, start_worker: StartWorker, limit: int
) -> None:
    """Six hundred short jobs of a queue that may run few at once, and idle slots for the rest."""

    @app.job("many", queue="full")
    def many() -> None:
        time.sleep(0.02)

    @app.job("other", queue="other")
    def other() -> None: ...

    many.enqueue_many([{}] * 600)
    others = other.enqueue_many([{}] * 20)
    began = time.monotonic()
    start_worker(queues={"full": limit, "other": None}, concurrency=6)
    eventually(lambda: all(app.get(job).is_final for job in others), within=15)

    assert time.monotonic() - began < 0.9


def test_only_the_named_queues_are_served(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("a")
    def handler() -> None: ...

    ours, theirs = handler.using(queue="ours").enqueue(), handler.using(queue="theirs").enqueue()
    work_off(app, queues=["ours"])

    assert (app.get(ours).status, app.get(theirs).status) == ("completed", "pending")


def test_a_paused_queue_is_left_alone_until_it_is_resumed(
    app: Yaoki, start_worker: StartWorker
) -> None:
    @app.job("a")
    def handler() -> None: ...

    app.pause("mail")
    paused, other = handler.using(queue="mail").enqueue(), handler.enqueue()
    start_worker()
    app.wait(other, timeout=5)
    still = app.get(paused)
    app.resume("mail")

    assert still.status == "pending"
    assert app.wait(paused, timeout=5).status == "completed"


def test_a_worker_runs_ten_thousand_jobs_each_once(app: Yaoki) -> None:
    seen: Counter[int] = Counter()

    @app.job("a")
    def handler(number: int) -> None:
        seen[number] += 1

    handler.enqueue_many([{"number": number} for number in range(10_000)])
    work_off(app)

    assert len(seen) == 10_000
    assert set(seen.values()) == {1}


def test_five_hundred_async_handlers_wait_at_once(app: Yaoki) -> None:
    gauge = Gauge()

    @app.job("a")
    async def handler() -> None:
        gauge.enter("all")
        await asyncio.sleep(0.3)
        gauge.leave("all")

    handler.enqueue_many([{}] * 1000)
    began = time.monotonic()
    work_off(app, concurrency=500)

    assert gauge.most["all"] == 500
    assert time.monotonic() - began < 5


def contexts_in_memory() -> int:
    gc.collect()
    return sum(type(each) is JobContext for each in gc.get_objects())


def test_nothing_of_a_job_is_kept_in_memory_after_it_ended(app: Yaoki) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(ctx: JobContext, number: int) -> None:
        if number % 3 == 0:
            raise ValueError("x")

    @app.job("b")
    async def coroutine(ctx: JobContext) -> None:
        await asyncio.sleep(0)

    handler.enqueue_many([{"number": number} for number in range(300)])
    coroutine.enqueue_many([{}] * 300)
    before = contexts_in_memory()
    work_off(app)

    # Idle threads may still hold on to their last one.
    eventually(lambda: contexts_in_memory() - before < 60)


def test_an_app_without_job_types_makes_no_worker(app: Yaoki) -> None:
    with pytest.raises(InvalidOption, match="no job types"):
        app.worker()


@pytest.mark.parametrize(
    "settings",
    [
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": "10"},
        {"lease_for": 0.5},
        {"lease_for": -1},
        {"grace": -1},
        {"grace": float("nan")},
        {"queues": "mail"},
        {"queues": {"mail": 0}},
        {"queues": [""]},
        {"worker_id": ""},
        {"max_wait": -1},
    ],
)
def test_settings_that_cannot_be_are_refused(app: Yaoki, settings: dict[str, object]) -> None:
    @app.job("a")
    def handler() -> None: ...

    with pytest.raises(InvalidOption):
        app.worker(**settings)  # type: ignore[arg-type]


def test_a_worker_is_listed_while_it_works(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("b")
    def second() -> None: ...

    @app.job("a")
    def first() -> None: ...

    working = start_worker(queues=["mail"], concurrency=3, worker_id="w1")
    [listed] = eventually(app.workers)
    working.drain()

    assert listed.worker_id.startswith("w1")
    assert (listed.queues, listed.types) == (("mail",), ("b", "a"))
    assert (listed.concurrency, listed.state, listed.silent) == (3, "working", False)
    assert app.workers() == []
