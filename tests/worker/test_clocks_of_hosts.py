"""Wall clocks that are wrong, that jump, and machines that stand still: with real processes.

That the clock of a store decides nothing about the living is tested in test_clock.py.
"""

import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest

from tests.support.clocks import HostClock, other_clock
from tests.support.databases import assert_intact
from tests.support.eventually import eventually
from tests.support.processes import Processes
from tests.worker.crashing import Crashing, build
from tests.worker.support_processes import Program, StartProgram, ready, start_program, written
from tests.worker.support_workers import stays
from yaoki import Job
from yaoki.store import SQLiteStore

__all__ = ["start_program"]

TEN_MINUTES = 600.0
HOUR = 3_600.0

TWO_LEASES = 2 + 3
"""Seconds, with some for a busy machine."""

ONCE = {("completed", 1, 0)}
"""Status, attempt and rescues of jobs that ran once."""


@pytest.fixture
def app(any_url: str, tmp_path: Path) -> Iterator[Crashing]:
    """The same app as the programs', to enqueue and to look."""
    made = build(any_url, tmp_path / "ledger")
    made.migrate()
    yield made
    made.close()


def how(job: Job) -> tuple[str, int, int]:
    return job.status, job.attempt, job.rescues


def late(job: Job) -> timedelta:
    """How long after its time it was claimed, by the clock of the database."""
    assert job.claimed_at is not None
    return job.claimed_at - job.run_at


def seconds_until_taken_back(app: Crashing, job: Job) -> float:
    began = time.monotonic()
    [lost] = eventually(lambda: app.get(job).attempts, within=20)
    assert str(lost.error).startswith("lease lost")
    return time.monotonic() - began


def fast_and_slow(start_program: StartProgram) -> list[Program]:
    return [
        start_program("lease_for=1", "concurrency=10", env=other_clock(ahead))
        for ahead in (TEN_MINUTES, -TEN_MINUTES)
    ]


@pytest.mark.parametrize("any_url", ["postgres"], indirect=True)
def test_on_postgres_nothing_depends_on_the_clock_of_a_worker_or_client(
    app: Crashing, start_program: StartProgram, processes: Processes
) -> None:
    programs = fast_and_slow(start_program)
    ready(app, *programs)
    clients = [
        processes.yaoki(
            *("--url", app.url, "enqueue", "long", '{"seconds": 0}', "--delay", "1"),
            env=other_clock(ahead),
        )
        for ahead in (TEN_MINUTES, -TEN_MINUTES)
    ]
    assert [client.wait() for client in clients] == [0, 0]
    delayed = [*app.jobs(), *(app.enqueue("long", {"seconds": 0}, delay=1) for _ in range(4))]
    held = [app.enqueue("long", {"seconds": 2}) for _ in range(4)]
    limited = [app.enqueue("polite", {"seconds": 9}, timeout=0.8) for _ in range(2)]
    ended = [app.wait(job, timeout=20) for job in delayed]
    workers = {worker.worker_id: worker for worker in app.workers()}
    held = [app.wait(job, timeout=20) for job in held]

    assert len(delayed) == 6
    assert {job.run_at - job.created_at for job in delayed} == {timedelta(seconds=1)}
    # A claim notes the instant of its first statement; what is due is asked by a later one.
    moment = timedelta(milliseconds=50)
    assert [late(job) for job in ended if not -moment < late(job) < timedelta(seconds=2)] == []
    assert {how(job) for job in [*ended, *held]} == ONCE
    assert not any(worker.silent for worker in workers.values())
    for job in limited:
        eventually(lambda job=job: app.get(job).attempts, within=10)  # type: ignore[misc]
        first = app.get(job).attempts[0]
        assert str(first.error).startswith("TimeLimitExceeded")
        assert timedelta(seconds=0.7) < first.ended_at - first.claimed_at < timedelta(seconds=5)

    orphan = app.enqueue("long", {"seconds": 0.7})
    eventually(lambda: written(app, "began", orphan.id), within=10)
    [doomed] = [one for one in programs if one.pid == workers[app.get(orphan).worker_id].pid]
    doomed.send(signal.SIGKILL)
    assert seconds_until_taken_back(app, orphan) < TWO_LEASES
    assert app.wait(orphan, timeout=20).attempt == 2
    assert_intact(app.store)


@pytest.mark.parametrize("any_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("jump", [HOUR, -HOUR], ids=["forward", "back"])
def test_on_sqlite_a_clock_that_jumps_frees_nobody_living_and_hides_nobody_dead(
    app: Crashing, tmp_path: Path, start_program: StartProgram, jump: float
) -> None:
    """Forward is also what a machine that was suspended sees: its monotonic clock stood still."""
    clock = HostClock(tmp_path / "clock")
    app.close()
    app.store = SQLiteStore(app.url, clock=clock)
    programs = [start_program("lease_for=1", env=clock.environment) for _ in range(2)]
    ready(app, *programs)
    held = [app.enqueue("long", {"seconds": 3}) for _ in range(4)]
    eventually(lambda: all(written(app, "began", job.id) for job in held), within=10)
    delayed = app.enqueue("long", {"seconds": 0}, delay=2)
    due = time.monotonic() + 2
    app.enqueue("innocent")
    [orphan] = app.claim("dead", types=["innocent"], lease_for=1)

    clock.set(jump)
    taken_back = seconds_until_taken_back(app, orphan)
    later = app.enqueue("long", {"seconds": 0}, delay=0.5)
    ended = [app.wait(job, timeout=20) for job in [*held, later]]
    waits = app.get(delayed).status == "pending"
    clock.set(0)
    ended.append(app.wait(delayed, timeout=20))

    assert taken_back < TWO_LEASES
    assert {how(job) for job in ended} == ONCE
    assert written(app, "began") == len(ended)
    assert waits or jump > 0
    assert time.monotonic() > due
    assert app.wait(orphan, timeout=20).attempt == 2
    assert_intact(app.store)


def test_a_machine_that_was_suspended_goes_on_where_it_was(
    app: Crashing, start_program: StartProgram
) -> None:
    """All its processes stand still for longer than leases last."""
    programs = [start_program("lease_for=1") for _ in range(2)]
    ready(app, *programs)
    held = [app.enqueue("long", {"seconds": 3}) for _ in range(3)]
    eventually(lambda: all(written(app, "began", job.id) for job in held), within=10)
    meanwhile: list[Job] = []
    for program in programs:
        program.send(signal.SIGSTOP)
    # Who was stopped in the middle of a write keeps SQLite's lock: then this waits.
    enqueuing = Thread(target=lambda: meanwhile.append(app.enqueue("long", {"seconds": 0})))
    enqueuing.start()
    stays(lambda: True, during=1.8)
    for program in programs:
        program.send(signal.SIGCONT)
    resumed = time.monotonic()
    enqueuing.join(10)
    app.wait(meanwhile[-1], timeout=10)
    assert time.monotonic() - resumed < 5
    ended = [app.wait(job, timeout=20) for job in [*held, *meanwhile]]

    assert {how(job) for job in ended} == ONCE
    assert written(app, "began") == len(ended)
    assert_intact(app.store)
