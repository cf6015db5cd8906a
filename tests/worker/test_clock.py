"""Leases end and live by what passes, also when somebody moves the database's clock.

On SQLite that is the host's: test_clocks_of_hosts.py moves it under real processes.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import yaoki
from tests.support.dialects import store_with_clock
from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, stays
from yaoki import JobContext, RetryPolicy, Yaoki, fixed

HOUR = 3_600_000_000


class Clock:
    """The database's clock, and how far somebody has moved it (microseconds)."""

    def __init__(self) -> None:
        self.moved = 0

    def __call__(self) -> int:
        return time.time_ns() // 1000 + self.moved


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def app(any_url: str, clock: Clock) -> Iterator[Yaoki]:
    """A queue whose clock the test can move."""
    made = Yaoki(any_url)
    made.store = store_with_clock(any_url, clock)
    yield made
    made.close()


@pytest.mark.parametrize("any_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("moved", [-HOUR, HOUR])
def test_a_silent_workers_job_is_rescued_although_the_clock_moved(
    app: Yaoki, clock: Clock, start_worker: StartWorker, moved: int
) -> None:
    @app.job("a", retry=RetryPolicy(backoff=fixed(0)))
    def handler() -> str:
        return "done"

    job = handler.enqueue()
    app.claim("silent", lease_for=1)
    clock.moved = moved
    start_worker(lease_for=1)
    start_worker(lease_for=1)
    handed_on = eventually(lambda: app.get(job).attempts, within=6)

    assert handed_on[0].error == "lease lost (worker silent)"
    eventually(lambda: app.get(job).attempt == 2 or app.get(job).run_at.timestamp() > time.time())


@pytest.mark.parametrize("any_url", ["postgres"], indirect=True)
@pytest.mark.parametrize("moved", [-HOUR, HOUR])
def test_a_living_workers_job_is_never_rescued_because_the_clock_moved(
    app: Yaoki, clock: Clock, start_worker: StartWorker, moved: int
) -> None:
    runs = []

    @app.job("a", retry=RetryPolicy(backoff=fixed(0)))
    def handler(ctx: JobContext) -> None:
        runs.append(ctx.attempt)
        ctx.wait_stopping(2.4)

    job = handler.enqueue()
    start_worker(lease_for=1)
    start_worker(lease_for=1)
    assert eventually(lambda: runs) == [1]
    assert stays(lambda: app.get(job).status == "running", during=0.5)
    clock.moved = moved
    ended = eventually(lambda: app.get(job).is_final and app.get(job), within=10)

    assert runs == [1]
    assert ended
    assert (ended.status, ended.attempt) == ("completed", 1)


def test_a_clock_that_goes_back_and_forth_repeats_no_token(app: Yaoki, clock: Clock) -> None:
    leases = []
    app.enqueue("a", max_attempts=100)
    for moved in (0, -HOUR, HOUR, -2 * HOUR, 0):
        clock.moved = moved
        [job] = eventually(lambda: app.claim("w"), within=1) if moved >= 0 else [None]
        if job is None:
            continue
        leases.append(job.lease)
        app.release(job)

    assert leases == sorted(set(leases))


def test_delayed_jobs_survive_a_clock_that_was_set_forward_and_back(
    app: Yaoki, clock: Clock, start_worker: StartWorker
) -> None:
    @app.job("a")
    def handler() -> None: ...

    jobs = handler.using(delay=0.5).enqueue_many([{}] * 10)
    clock.moved = -HOUR
    start_worker()
    eventually(app.workers)
    waiting = {app.get(job).status for job in jobs}
    clock.moved = 0

    eventually(lambda: {app.get(job).status for job in jobs} == {"completed"}, within=5)
    assert waiting == {"pending"}


WALL_CLOCK = re.compile(r"\btime\.time\b|\btime_ns\(|datetime\.now\(|\.utcnow\(|\.today\(")

ASKED_IN = {
    "store/sqlite/connection.py": "it is the database's clock there",
    "store/postgres/examine.py": "doctor compares the host's clock with the server's",
    "cli/show/times.py": "how long ago, for people who read it",
    "cli/demo/scenes.py": "the same, in the demo",
    "core/times.py": "the text of an error",
}


def test_nothing_else_asks_the_wall_clock_of_a_host() -> None:
    source = Path(yaoki.__file__).parent
    asking = {
        file.relative_to(source).as_posix()
        for file in source.rglob("*.py")
        if WALL_CLOCK.search(file.read_text("utf-8").replace("monotonic_ns(", ""))
    }

    assert asking == ASKED_IN.keys()
