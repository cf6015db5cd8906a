"""Another program lets nobody write for longer than leases last, and then goes on."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.databases import assert_intact, locked, postgres_connection
from tests.support.dialects import on_postgres
from tests.support.eventually import eventually
from tests.support.processes import Processes
from tests.worker.crashing import Crashing
from tests.worker.support_processes import StartProgram, app, ready, start_program, written
from tests.worker.support_workers import StartWorker, release, start_worker, stays
from yaoki import Yaoki
from yaoki.store import Store

__all__ = ["app", "release", "start_program", "start_worker"]


@contextmanager
def writes_blocked(store: Store) -> Iterator[None]:
    """Reads go on: another writer on SQLite; on PostgreSQL what CREATE INDEX does to a table."""
    if on_postgres(store.url):
        with postgres_connection(store) as connection, connection.transaction():
            connection.execute("LOCK TABLE yaoki.jobs IN SHARE MODE")
            yield
    else:
        with locked(store):
            yield


def started_within(app: Yaoki, seconds: float) -> bool:
    """Does a new job start so soon?"""
    made = app.wait(app.enqueue("short", {"number": 1}), timeout=10)
    assert made.claimed_at is not None
    return (made.claimed_at - made.created_at).total_seconds() < seconds


def test_no_living_workers_job_is_rescued_and_all_goes_on_afterwards(
    app: Crashing, start_program: StartProgram
) -> None:
    programs = [start_program("lease_for=1", "concurrency=3") for _ in range(3)]
    ready(app, *programs)
    jobs = [app.enqueue("long", {"seconds": 3.5}) for _ in range(6)]
    eventually(lambda: written(app, "began") == 6, within=10)
    with writes_blocked(app.store):
        stays(lambda: True, during=2.7)
    eventually(lambda: started_within(app, 0.5), within=5)
    ended = [app.wait(job, timeout=20) for job in jobs]

    assert {(job.status, job.attempt, job.rescues) for job in ended} == {("completed", 1, 0)}
    assert written(app, "began") == 6
    assert_intact(app.store)


@pytest.mark.parametrize("any_url", ["sqlite"], indirect=True)
def test_an_impatient_worker_says_in_few_lines_that_another_program_has_the_lock(
    url: str,
    tmp_path: Path,
    processes: Processes,
    start_worker: StartWorker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its busy timeout is over long before the lock is let go."""
    app, outside = Yaoki(f"{url}?busy_timeout=0.2"), Yaoki(url)
    runs = []

    @app.job("short")
    def short(number: int) -> None:
        runs.append(number)

    working = start_worker(app, lease_for=1)
    assert started_within(outside, 10)
    holder = ("tests.store.sqlite.hold_the_lock", str(tmp_path / "jobs.db"), "3")
    program = processes.python("-m", *holder)
    program.wait_for_line("holding")
    waiting = outside.enqueue("short", {"number": 2})
    program.wait()
    outside.wait(waiting, timeout=5)

    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    failed = [line for line in lines if " failed (" in line]
    assert failed
    assert all("another program held the SQLite write lock" in line for line in failed)
    assert len(lines) < 40
    eventually(lambda: started_within(outside, 0.5), within=5)
    assert runs[:2] == [1, 2]
    working.drain()
    outside.close()
    app.close()
