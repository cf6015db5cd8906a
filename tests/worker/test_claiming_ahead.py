"""How much a worker claims ahead, what it never claims ahead, and what it gives back."""

import threading
import time

import pytest

from tests.support.databases import ask
from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, let_lease_end, stays, work_off
from yaoki import JobContext, RetryPolicy, Yaoki, fixed


def warm_up(app: Yaoki, count: int = 200) -> None:
    """So many quick jobs that the worker has learnt to claim ahead."""
    app.enqueue_many("quick", [{}] * count)


@pytest.fixture
def quick(app: Yaoki) -> None:
    @app.job("quick")
    def quick() -> None: ...


def test_nothing_is_claimed_ahead_of_slow_jobs(app: Yaoki, start_worker: StartWorker) -> None:
    most = []

    @app.job("slow")
    def slow() -> None:
        most.append(running(app))
        time.sleep(0.12)

    slow.enqueue_many([{}] * 12)
    working = start_worker(concurrency=2)
    eventually(lambda: len(most) == 12, within=10)
    working.drain()

    assert max(most) <= 2


def running(app: Yaoki) -> int:
    return len(list(app.jobs(status="running", limit=1000)))


@pytest.mark.usefixtures("quick")
def test_quick_jobs_are_claimed_ahead(app: Yaoki, start_worker: StartWorker) -> None:
    most = []

    @app.job("looks")
    def looks() -> None:
        most.append(running(app))

    for _ in range(5):
        warm_up(app, 100)
        looks.enqueue()
    start_worker(concurrency=1)
    eventually(lambda: len(most) == 5, within=10)

    assert max(most) > 1


@pytest.mark.usefixtures("quick")
def test_what_waits_in_line_goes_back_on_shutdown_uncounted(
    app: Yaoki, start_worker: StartWorker
) -> None:
    started = threading.Event()

    @app.job("long")
    def long(ctx: JobContext) -> None:
        started.set()
        ctx.wait_stopping(10)

    @app.job("behind")
    def behind() -> None: ...

    warm_up(app)
    jobs = []
    for _ in range(3):
        long.enqueue()
        jobs += behind.enqueue_many([{}] * 30)
    working = start_worker(concurrency=1, lease_for=60)
    started.wait(10)
    eventually(lambda: running(app) > 1)
    held = working.worker.slots.waiting
    ending = working.drain()

    left = [app.get(job) for job in jobs]
    assert held > 0
    assert ending.handed_back == 0
    assert {(one.status, one.attempt, one.releases, len(one.attempts)) for one in left} == {
        ("pending", 0, 0, 0)
    }


@pytest.mark.usefixtures("quick")
def test_a_stale_line_is_given_to_others(app: Yaoki, start_worker: StartWorker) -> None:
    started = threading.Event()

    @app.job("long")
    def long(ctx: JobContext) -> None:
        started.set()
        ctx.wait_stopping(10)

    @app.job("behind")
    def behind() -> None: ...

    warm_up(app)
    long.enqueue()
    jobs = behind.enqueue_many([{}] * 20)
    stuck = start_worker(concurrency=1, lease_for=60)
    started.wait(10)
    eventually(lambda: stuck.worker.slots.waiting > 0, within=2)
    start_worker(concurrency=1, lease_for=60)
    eventually(lambda: all(app.get(job).status == "completed" for job in jobs), within=4)

    assert {app.get(job).attempt for job in jobs} == {1}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("why", ["rescued before", "only one attempt"])
def test_a_dangerous_job_is_never_claimed_ahead(
    app: Yaoki, start_worker: StartWorker, why: str
) -> None:
    started = threading.Event()

    @app.job("long")
    def long(ctx: JobContext) -> None:
        started.set()
        ctx.wait_stopping(10)

    @app.job("dangerous", retry=RetryPolicy(max_attempts=1 if why == "only one attempt" else 4))
    def dangerous() -> None: ...

    dangerous_job = dangerous.using(priority=50).enqueue()
    if why == "rescued before":
        app.claim("dies", lease_for=1)
        eventually(app.rescue, within=3)
    ask(app.store, "UPDATE yaoki.jobs SET run_at = 9, priority = 0")
    warm_up(app)
    ask(app.store, "UPDATE yaoki.jobs SET run_at = 1 WHERE type = 'quick'")
    ask(app.store, "UPDATE yaoki.jobs SET run_at = 2 WHERE type = 'long'")
    job = long.enqueue()
    ask(app.store, "UPDATE yaoki.jobs SET run_at = 2 WHERE id = :id", {"id": job.id})
    start_worker(concurrency=1, lease_for=60)
    started.wait(10)
    # A stale line would be given back after a second: it must not have been there at all.
    assert stays(lambda: app.get(dangerous_job).status == "pending", during=0.4)


@pytest.mark.parametrize(("rescues", "max_attempts"), [(2, 9), (1, 2)])
def test_a_job_that_was_rescued_twice_or_has_one_attempt_left_runs_alone(
    app: Yaoki, rescues: int, max_attempts: int
) -> None:
    """It may be the one that kills workers, or was beside it: it is with no other again."""
    at_once, most_beside = set(), []

    @app.job("suspect", retry=RetryPolicy(max_attempts=max_attempts, backoff=fixed(0)))
    def suspect() -> None:
        for _ in range(30):
            most_beside.append(len(at_once))
            time.sleep(0.01)

    @app.job("innocent")
    def innocent(number: int) -> None:
        at_once.add(number)
        time.sleep(0.02)
        at_once.discard(number)

    job = suspect.enqueue()
    for _ in range(rescues):
        assert app.claim("dies", lease_for=1)
        let_lease_end(app, job.id)
        app.rescue()
    innocent.enqueue_many([{"number": number} for number in range(60)])
    work_off(app, concurrency=8)

    assert app.get(job).status == "completed"
    assert app.get(job).rescues == rescues
    assert set(most_beside) == {0}


def test_many_that_must_run_alone_take_turns_with_the_others(app: Yaoki) -> None:
    """A machine with many jobs has died; those that were enqueued since do not wait for all."""
    order: list[str] = []

    @app.job("suspect", retry=RetryPolicy(max_attempts=9, backoff=fixed(0)))
    def suspect() -> None:
        order.append("suspect")
        time.sleep(0.1)

    @app.job("other")
    def other() -> None:
        order.append("other")
        time.sleep(0.1)

    suspect.enqueue_many([{}] * 6)
    ask(app.store, "UPDATE yaoki.jobs SET rescues = 2")
    other.enqueue_many([{}] * 6)
    work_off(app, concurrency=2)

    assert order[:3] == ["suspect", "other", "other"]
    assert order[-3:] == ["suspect"] * 3
    assert sorted(order) == ["other"] * 6 + ["suspect"] * 6


@pytest.mark.usefixtures("quick")
def test_an_urgent_job_starts_next_although_a_thousand_wait(
    app: Yaoki, start_worker: StartWorker
) -> None:
    order: list[str] = []
    urgent_started = threading.Event()

    @app.job("low", priority="low")
    def low() -> None:
        order.append("low")
        time.sleep(0.06)

    @app.job("urgent", priority="high")
    def urgent() -> None:
        order.append("urgent")
        urgent_started.set()

    low.enqueue_many([{}] * 1000)
    start_worker(concurrency=2)
    eventually(lambda: len(order) > 6)
    before = len(order)
    urgent.enqueue()
    urgent_started.wait(5)

    assert order.index("urgent") - before <= 3


def test_equal_jobs_run_first_in_first_out(app: Yaoki) -> None:
    order: list[int] = []

    @app.job("numbered")
    def numbered(number: int) -> None:
        order.append(number)

    for number in range(50):
        numbered.enqueue(number=number)
    numbered.enqueue_many([{"number": number} for number in range(50, 400)])
    work_off(app, concurrency=1)

    assert order == list(range(400))


def test_higher_priorities_run_first(app: Yaoki) -> None:
    order: list[int] = []

    @app.job("a")
    def handler(number: int) -> None:
        order.append(number)

    for number in (0, -100, 30, 5, 100, 29):
        handler.using(priority=number).enqueue(number=number)
    work_off(app, concurrency=1)

    assert order == [100, 30, 29, 5, 0, -100]
