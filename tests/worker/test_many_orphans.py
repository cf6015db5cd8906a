"""Fifty thousand jobs of dead workers are taken back while work goes on."""

import threading
import time
from collections.abc import Callable, Iterator
from statistics import median

import pytest

from servers.postgres import Server
from tests.store.postgres.support_trouble import start_server
from tests.support.databases import ask, assert_intact, insert_rows, locked
from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker
from yaoki import Yaoki
from yaoki.worker.rescuer import A_SECOND, Rescuer

MANY = 50_000
SOME = 10_000

TAKEN_BACK = """
SELECT job.attempt, job.status, job.rescues, past.outcome, count(*)
FROM yaoki.jobs AS job INNER JOIN yaoki.attempts AS past ON past.job_id = job.id
GROUP BY job.attempt, job.status, job.rescues, past.outcome
ORDER BY job.attempt
"""


@pytest.fixture
def mortal() -> Iterator[Server]:
    """A server that may be stopped."""
    made = start_server()
    yield made
    made.delete()


@pytest.fixture(params=["sqlite", "postgres"])
def any_url(request: pytest.FixtureRequest) -> str:
    if request.param == "a server of its own":
        return str(request.getfixturevalue("mortal").url)
    return str(request.getfixturevalue("url" if request.param == "sqlite" else "postgres_url"))


def orphans(app: Yaoki, count: int, ends_at: int = 1, lease_for: int = 1_000_000) -> None:
    """So many jobs whose worker died, each in its first attempt; every second had not begun."""
    app.store.migrate()
    insert_rows(app.store, count, now=1, type="orphan", queue="of the dead")
    ask(
        app.store,
        "UPDATE yaoki.jobs SET status = 'running', lease = 1, lease_for = :lease_for, attempt = 1, "
        "lease_expires_at = :ends_at, worker_id = 'dead', claimed_at = 1, "
        "started_at = CASE WHEN id % 2 = 0 THEN 1 END",
        {"ends_at": ends_at, "lease_for": lease_for},
    )


def assert_each_was_taken_back_once(app: Yaoki, count: int) -> None:
    assert ask(app.store, TAKEN_BACK) == [
        (0, "pending", 1, "released", count // 2),
        (1, "pending", 1, "retried", count // 2),
    ]
    assert_intact(app.store)


def left(app: Yaoki) -> int:
    [(count,)] = ask(app.store, "SELECT count(*) FROM yaoki.jobs WHERE lease % 2 = 1")
    return int(count)


def pickups(app: Yaoki, goes_on: Callable[[], object]) -> list[float]:
    """Seconds from the enqueue of a job to its beginning, of one after the other."""
    waits = []
    while goes_on():
        enqueued = time.monotonic()
        job = app.enqueue("normal", {"at": enqueued}, queue="normal")
        waits.append(app.wait(job, timeout=30).result)
    return waits


def test_they_are_taken_back_each_once_while_other_jobs_start_at_once(
    app: Yaoki,
    start_worker: StartWorker,
    release: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """By two workers, neither of which has a free slot for them or knows their queue."""
    blocked = threading.Event()

    @app.job("normal")
    def normal(at: float) -> float:
        return time.monotonic() - at

    @app.job("blocks", timeout=None)
    def blocks() -> None:
        blocked.set()
        release.wait(300)

    orphans(app, MANY)
    blocks.enqueue()
    start_worker(lease_for=1, concurrency=1, queues=["default"])
    blocked.wait(10)
    began = time.monotonic()
    start_worker(lease_for=1, queues=["normal"])
    waits = pickups(app, lambda: left(app) > 1)
    took = time.monotonic() - began
    print(f"{took:.1f} s; {len(waits)} pickups, median {median(waits):.4f}, worst {max(waits):.4f}")

    assert_each_was_taken_back_once(app, MANY)
    assert len([one for one in caplog.messages if "taken back from worker dead" in one]) < 500
    assert len(waits) > 5
    assert median(waits) < 1
    assert max(waits) < 10


def test_a_database_that_is_locked_in_the_middle_loses_none_and_takes_none_twice(
    app: Yaoki, start_worker: StartWorker
) -> None:
    begin_to_take_back(app, start_worker)
    with locked(app.store):
        time.sleep(1.5)
    eventually(lambda: left(app) == 0, within=40, every=0.1)

    assert_each_was_taken_back_once(app, SOME)


@pytest.mark.parametrize("any_url", ["a server of its own"], indirect=True)
def test_a_server_that_crashes_in_the_middle_loses_none_and_takes_none_twice(
    app: Yaoki, start_worker: StartWorker, mortal: Server
) -> None:
    begin_to_take_back(app, start_worker)
    mortal.stop("QUIT")
    mortal.start()
    eventually(lambda: left(app) == 0, within=40, every=0.1)

    assert_each_was_taken_back_once(app, SOME)


def begin_to_take_back(app: Yaoki, start_worker: StartWorker) -> None:
    """By two workers: some were taken back when this returns, and others were not."""

    @app.job("other")
    def other() -> None: ...

    orphans(app, SOME)
    for _ in range(2):
        start_worker(lease_for=1)
    eventually(lambda: left(app) < SOME, within=20, every=0.001)
    assert left(app) > 0


def test_a_look_at_the_leases_of_the_living_is_a_small_part_of_the_time(app: Yaoki) -> None:
    """However many there are: those that are plainly good are not even read."""
    orphans(app, MANY, ends_at=2**53, lease_for=2**53)
    rescuer = Rescuer(app.store, lease_for=1)
    began = time.monotonic()
    rest = rescuer.once()
    took = time.monotonic() - began
    print(f"{took:.3f} s, then a rest of {rest:.1f} s")

    assert left(app) == MANY
    assert rest == MANY / A_SECOND
    assert took < rest
