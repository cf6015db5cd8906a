"""Real workers that are killed, stopped and poisoned: no job is lost, and no innocent is failed."""

import random
import signal
import time

import pytest

from tests.support.databases import ask, assert_intact
from tests.support.eventually import eventually
from tests.worker.crashing import Crashing
from tests.worker.support_processes import (
    StartProgram,
    app,
    began,
    ledger,
    ready,
    start_program,
    written,
)
from tests.worker.support_workers import stays

pytestmark = pytest.mark.crash

__all__ = ["app", "start_program"]


def test_another_worker_finishes_a_job_whose_worker_was_killed(
    app: Crashing, start_program: StartProgram
) -> None:
    job = app.enqueue("long", {"seconds": 0.3})
    first = start_program("lease_for=1")
    began(app, job.id)
    first.send(signal.SIGKILL)
    first.wait()
    killed = time.monotonic()
    second = start_program("lease_for=1")
    done = app.wait(job, timeout=10)

    assert time.monotonic() - killed < 4
    assert (done.status, done.attempt, done.result) == ("completed", 2, "attempt 2")
    assert [one.outcome for one in done.attempts] == ["retried", "completed"]
    assert str(done.errors[0].error).startswith("lease lost (worker ")
    assert done.worker_id != done.errors[0].worker_id
    assert written(app, "began", job.id) == 2
    second.send(signal.SIGTERM)
    assert second.wait() == 0


def test_a_killed_worker_holds_its_jobs_until_the_lease_is_over(
    app: Crashing, start_program: StartProgram
) -> None:
    other = start_program("lease_for=2")
    ready(app, other)
    job = app.enqueue("long", {"seconds": 30})
    began(app, job.id)
    other.send(signal.SIGKILL)
    other.wait()
    lease_ends = app.get(job).lease_expires_at
    next_one = start_program("lease_for=2")
    ready(app, next_one)
    eventually(lambda: written(app, "began", job.id) == 2, within=10)

    again = app.get(job)
    assert lease_ends is not None
    assert again.claimed_at is not None
    assert again.claimed_at >= lease_ends
    assert again.attempt == 2


@pytest.mark.parametrize("kind", ["poison", "exits"])
def test_a_job_that_kills_its_worker_dies_after_its_attempts(
    app: Crashing, start_program: StartProgram, kind: str
) -> None:
    innocents = app.enqueue_many("innocent", [{}] * 30)
    poison = app.enqueue(kind)
    innocents += app.enqueue_many("innocent", [{}] * 30)
    deaths, program = 0, start_program("lease_for=1")
    for _ in range(6):
        eventually(
            lambda: (
                not program.alive  # noqa: B023
                or all(app.get(each).is_final for each in [poison, *innocents])
            ),
            within=20,
        )
        if program.alive:
            break
        deaths += 1
        program = start_program("lease_for=1")

    dead = app.get(poison)
    assert deaths <= 4
    assert (dead.status, dead.attempt) == ("failed", 3)
    assert str(dead.error).startswith("lease lost (worker ")
    assert {app.get(each).status for each in innocents} == {"completed"}
    assert max(app.get(each).attempt for each in innocents) <= 3


def test_a_job_with_two_attempts_outlives_one_beside_it_that_kills_their_worker_twice(
    app: Crashing, start_program: StartProgram
) -> None:
    """Its last attempt is not beside anybody."""
    innocent = app.enqueue("long", {"seconds": 0.5}, max_attempts=2)
    poison = app.enqueue("poison")
    for _ in range(2):
        start_program("lease_for=1").wait()

    assert (app.get(innocent).status, app.get(innocent).attempt) == ("completed", 2)
    assert written(app, "poisoned", poison.id) == 2


def test_a_poison_job_with_one_attempt_kills_one_worker(
    app: Crashing, start_program: StartProgram
) -> None:
    innocents = app.enqueue_many("innocent", [{}] * 20)
    poison = app.enqueue("poison", max_attempts=1)
    first = start_program("lease_for=1")
    first.wait()
    start_program("lease_for=1")
    dead = app.wait(poison, timeout=10)
    for each in innocents:
        app.wait(each, timeout=10)

    assert (dead.status, dead.attempt) == ("failed", 1)
    assert written(app, "poisoned", poison.id) == 1


def test_a_thousand_jobs_survive_ten_kills(app: Crashing, start_program: StartProgram) -> None:
    seed = 20_240_607
    rng = random.Random(seed)
    jobs = app.enqueue_many("short", [{"number": number} for number in range(1_000)])
    for _ in range(10):
        program = start_program("lease_for=1")
        ready(app, program)
        stays(lambda: True, during=rng.uniform(0, 0.2))
        program.send(signal.SIGKILL)
        program.wait()
    left = 1_000 - completed(app)
    start_program("lease_for=1", "concurrency=8")
    eventually(lambda: completed(app) == len(jobs), within=30)

    ended = [app.get(job) for job in jobs]
    assert 0 < left < 1_000, "the kills came too late or too early to mean anything"
    assert any(one.rescues for one in ended), f"seed {seed}"
    assert {one.status for one in ended} == {"completed"}, f"seed {seed}"
    assert_intact(app.store)


def completed(app: Crashing) -> int:
    count, cursor = 0, None
    while True:
        page = app.jobs(status="completed", limit=1000, cursor=cursor)
        count, cursor = count + len(list(page)), page.cursor
        if cursor is None:
            return count


@pytest.mark.parametrize("kind", ["effect", "effect-once"])
def test_protected_effects_happen_once_whatever_dies_or_sleeps(
    app: Crashing, start_program: StartProgram, kind: str
) -> None:
    seed = 7
    rng = random.Random(seed)
    ask(app.store, "CREATE TABLE effects (job_id bigint)")
    jobs = []
    for _ in range(6):
        dies, sleeps = start_program("lease_for=1"), start_program("lease_for=1")
        ready(app, dies, sleeps)
        jobs += app.enqueue_many(kind, [{}] * 60)
        stays(lambda: True, during=rng.uniform(0, 0.1))
        sleeps.send(signal.SIGSTOP)
        dies.send(signal.SIGKILL)
        dies.wait()
        sleeps.send(rng.choice([signal.SIGCONT, signal.SIGKILL]))
    start_program("lease_for=1", "concurrency=4")
    eventually(lambda: completed(app) == len(jobs), within=30)

    effects = [job_id for (job_id,) in ask(app.store, "SELECT job_id FROM effects")]
    assert any(app.get(job).rescues for job in jobs), "nobody died while at it"
    assert sorted(effects) == [job.id for job in jobs], f"seed {seed}"
    assert_intact(app.store)


@pytest.mark.parametrize("kind", ["long", "long-async"])
def test_a_worker_that_was_suspended_past_its_lease_is_refused(
    app: Crashing, start_program: StartProgram, kind: str
) -> None:
    job = app.enqueue(kind, {"seconds": 1})
    late = start_program("lease_for=1")
    began(app, job.id)
    late.send(signal.SIGSTOP)
    other = start_program("lease_for=1")
    done = app.wait(job, timeout=10)
    late.send(signal.SIGCONT)
    assert stays(lambda: app.get(job) == done, during=1.5)
    late.send(signal.SIGTERM)
    code = late.wait(within=5)

    assert code == 0
    assert (done.status, done.attempt, done.result) == ("completed", 2, "attempt 2")
    assert app.get(job) == done
    assert done.worker_id is not None
    assert f":{other.pid}:" in done.worker_id
    assert "lease was lost" in late.err or "the lease was lost" in late.err


def test_a_late_worker_is_refused_while_the_new_owner_is_at_it(
    app: Crashing, start_program: StartProgram
) -> None:
    job = app.enqueue("long", {"seconds": 2.5})
    late = start_program("lease_for=1")
    began(app, job.id)
    late.send(signal.SIGSTOP)
    start_program("lease_for=1")
    eventually(lambda: written(app, "began", job.id) == 2, within=10)
    late.send(signal.SIGCONT)
    eventually(lambda: written(app, "ended", job.id, late.pid) == 1, within=20)
    done = app.wait(job, timeout=20)

    assert (done.attempt, done.result) == (2, "attempt 2")
    assert [line[0] for line in ledger(app)].count("ended") == 2
