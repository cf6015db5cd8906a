"""Real workers that are told to stop: what has begun is finished, or handed back at once."""

import signal
import time

import pytest

from tests.support.databases import locked
from tests.support.eventually import eventually
from tests.worker.crashing import Crashing
from tests.worker.support_processes import (
    StartProgram,
    app,
    began,
    ready,
    start_program,
    written,
)
from tests.worker.support_workers import stays

pytestmark = pytest.mark.crash

__all__ = ["app", "start_program"]


def draining(app: Crashing) -> None:
    """Wait until the one worker has heard that it is to end."""
    eventually(lambda: [worker.state for worker in app.workers()] == ["draining"])


STOPS = [signal.SIGTERM, signal.SIGINT]


@pytest.mark.parametrize("number", STOPS)
@pytest.mark.parametrize("kind", ["long", "long-async"])
def test_what_has_begun_is_finished_within_the_grace_period(
    app: Crashing, start_program: StartProgram, kind: str, number: signal.Signals
) -> None:
    job = app.enqueue(kind, {"seconds": 1.5})
    program = start_program("grace=10", "lease_for=1")
    began(app, job.id)
    program.send(number)
    draining(app)
    late = app.enqueue("long", {"seconds": 0})
    code = program.wait(within=8)

    done = app.get(job)
    assert code == 0
    assert (done.status, done.attempt, done.result) == ("completed", 1, "attempt 1")
    assert done.errors == ()
    assert app.get(late).status == "pending"
    assert app.get(late).attempt == 0
    assert program.out == "handlers put back\n"
    assert app.workers() == []


@pytest.mark.parametrize("kind", ["long", "long-async"])
def test_what_takes_longer_is_handed_back_at_once_and_uses_no_attempt(
    app: Crashing, start_program: StartProgram, kind: str
) -> None:
    job = app.enqueue(kind, {"seconds": 30})
    program = start_program("grace=1", "lease_for=60")
    began(app, job.id)
    asked = time.monotonic()
    program.send(signal.SIGTERM)
    code = program.wait(within=8)
    took = time.monotonic() - asked

    back = app.get(job)
    [again] = app.claim("another")
    assert code == 1
    assert 0.9 < took < 3.5
    assert (back.status, back.attempt, back.releases, back.error) == ("pending", 0, 1, None)
    assert [one.outcome for one in back.attempts] == ["released"]
    assert again.id == job.id
    assert "Traceback" not in program.err


def test_twenty_jobs_at_the_end_of_the_grace_period_go_back_each_once(
    app: Crashing, start_program: StartProgram
) -> None:
    jobs = app.enqueue_many("long", [{"seconds": 30}] * 20)
    program = start_program("grace=0", "lease_for=60", "concurrency=20")
    for job in jobs:
        began(app, job.id)
    program.send(signal.SIGTERM)
    code = program.wait(within=8)

    back = [app.get(job) for job in jobs]
    assert code == 1
    assert {(one.status, one.attempt, one.releases) for one in back} == {("pending", 0, 1)}


@pytest.mark.parametrize("number", STOPS)
@pytest.mark.parametrize("kind", ["long", "long-async", "blocks-the-loop", "in-transaction"])
def test_a_second_signal_stops_at_once(
    app: Crashing, start_program: StartProgram, kind: str, number: signal.Signals
) -> None:
    job = app.enqueue(kind, {"seconds": 30})
    program = start_program("grace=30", "lease_for=60")
    began(app, job.id)
    program.send(number)
    if kind == "in-transaction" and app.store.one_writer:
        # It cannot say that it drains: its own handler holds the write lock.
        assert stays(lambda: program.alive, during=0.5)
    else:
        draining(app)
    asked = time.monotonic()
    program.send(number)
    code = program.wait(within=15)
    took = time.monotonic() - asked

    back = app.get(job)
    assert code == 128 + number
    assert took < 2
    assert (back.status, back.attempt) == ("pending", 0)
    assert "Traceback" not in program.err


@pytest.mark.parametrize("kind", ["long", "wants-the-lock", "wants-the-lock-async"])
def test_a_second_signal_stops_at_once_although_the_database_is_locked(
    app: Crashing, start_program: StartProgram, kind: str
) -> None:
    """Another program holds the lock: what was begun stays with its lease."""
    job = app.enqueue(kind, {"seconds": 30})
    program = start_program("grace=30", "lease_for=60")
    began(app, job.id)
    with locked(app.store):
        program.send(signal.SIGTERM)
        assert stays(lambda: program.alive, during=0.5)
        asked = time.monotonic()
        program.send(signal.SIGTERM)
        code = program.wait(within=20)
        took = time.monotonic() - asked

    assert code == 143
    assert took < 3
    assert "Traceback" not in program.err


def test_a_third_signal_makes_no_fuss(app: Crashing, start_program: StartProgram) -> None:
    job = app.enqueue("long", {"seconds": 30})
    program = start_program("grace=30", "lease_for=60")
    began(app, job.id)
    program.send(signal.SIGTERM)
    draining(app)
    for _ in range(5):
        program.send(signal.SIGTERM)
        stays(lambda: program.alive, during=0.02)
    code = program.wait(within=5)

    assert code in (143, -signal.SIGTERM)
    assert "Traceback" not in program.err


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_to_the_whole_group_is_the_same(
    app: Crashing, start_program: StartProgram, number: signal.Signals
) -> None:
    job = app.enqueue("long", {"seconds": 1})
    program = start_program()
    began(app, job.id)
    program.send_to_group(number)
    code = program.wait(within=8)

    assert code == 0
    assert app.get(job).status == "completed"


def test_an_idle_worker_ends_at_once_and_claims_nothing_more(
    app: Crashing, start_program: StartProgram
) -> None:
    program = start_program()
    ready(app, program)
    asked = time.monotonic()
    program.send(signal.SIGTERM)
    code = program.wait(within=5)
    took = time.monotonic() - asked
    job = app.enqueue("long", {"seconds": 0})

    assert code == 0
    assert took < 1.5
    assert app.get(job).status == "pending"


def test_a_plain_handler_is_told_of_the_shutdown(
    app: Crashing, start_program: StartProgram
) -> None:
    job = app.enqueue("polite", {"seconds": 30})
    program = start_program("grace=10")
    began(app, job.id)
    program.send(signal.SIGTERM)
    code = program.wait(within=5)

    assert code == 0
    assert written(app, "told", job.id, "shutdown") == 1
    assert app.get(job).result == "saved what it had"


def test_ten_deploys_during_one_job_do_not_use_its_attempts(
    app: Crashing, start_program: StartProgram
) -> None:
    job = app.enqueue("long-async", {"seconds": 30})
    for count in range(1, 11):
        program = start_program("grace=0", "lease_for=60")
        eventually(lambda least=count: written(app, "began", job.id) >= least, within=10)
        program.send(signal.SIGTERM)
        assert program.wait(within=8) == 1

    back = app.get(job)
    assert (back.status, back.attempt, back.releases, back.errors) == ("pending", 0, 10, ())


def test_a_line_of_jobs_claimed_ahead_goes_back_uncounted(
    app: Crashing, start_program: StartProgram
) -> None:
    app.enqueue_many("short", [{"number": number} for number in range(5_000)])
    program = start_program("lease_for=60", "concurrency=4")
    eventually(lambda: app.jobs(status="completed", limit=1000).cursor is not None, within=15)
    program.send(signal.SIGTERM)
    code = program.wait(within=8)

    [queue] = app.queues()
    left = app.jobs(status="pending", limit=1000)
    assert code == 0
    assert queue.running == 0
    assert {(one.attempt, one.releases) for one in left} == {(0, 0)}
