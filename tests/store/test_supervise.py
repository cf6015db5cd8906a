"""What a supervisor asks: what a worker holds, to keep it, to give it back when it has died."""

from tests.support.acts import (
    BOOM,
    SECOND,
    claim,
    claim_one,
    end,
    held,
    ids,
    make,
    read,
    row_of,
)
from tests.support.clocks import Clock
from yaoki.core.outcomes import Failed
from yaoki.core.said import Unsaid
from yaoki.store import Store
from yaoki.store.ops.jobs import Cancel
from yaoki.store.ops.supervise import Bury, Sustain, Watch, Watched
from yaoki.store.ops.upkeep import KeepAlive, WorkerRow
from yaoki.store.ops.workers import Workers

LEASE = 60
HOUR = 3_600 * SECOND
WHY = "worker process killed by signal 9 (SIGKILL)"


def test_all_that_a_worker_holds_is_seen_with_what_is_left_of_its_lease(
    store: Store, clock: Clock
) -> None:
    make(store)
    make(store, timeout=5 * SECOND)
    make(store)
    began, limited = claim(store, 2, slots=2)
    clock.advance(10)
    [waits] = claim(store, 1, slots=0)
    make(store)
    claim_one(store, "somebody else")

    assert store.run(Watch("w1")) == [
        Watched(*held(began), 50 * SECOND, LEASE * SECOND, 10 * SECOND, HOUR),
        Watched(*held(limited), 50 * SECOND, LEASE * SECOND, 10 * SECOND, 5 * SECOND),
        Watched(*held(waits), LEASE * SECOND, LEASE * SECOND, None, HOUR),
    ]


def test_leases_are_renewed_for_a_worker_which_counts_as_heard_of(
    store: Store, clock: Clock
) -> None:
    announce(store)
    make(store)
    make(store)
    kept, lost = claim(store, 2)
    end(store, lost, Failed(BOOM))
    before = row_of(store, lost)
    clock.advance(LEASE - 1)

    store.run(Sustain("w1", [held(kept), held(lost)]))

    [watched] = store.run(Watch("w1"))
    assert (watched.id, watched.left) == (kept.id, LEASE * SECOND)
    assert row_of(store, lost) == before
    [worker] = store.run(Workers())
    assert not worker.silent
    assert worker.seen_at == clock.time


def test_what_a_dead_worker_had_begun_is_a_failed_attempt_and_what_it_had_not_is_none(
    store: Store, clock: Clock
) -> None:
    announce(store)
    for _ in range(3):
        make(store)
    begun = claim_one(store, slots=1, policies={"mail": Unsaid(max_attempts=2)})
    waited = claim_one(store, slots=0)
    other = claim_one(store, "w2")
    before = row_of(store, other)

    buried = store.run(Bury("w1", WHY))

    assert ids(buried.jobs) == [begun.id, waited.id]
    assert [one.counted for one in buried.jobs] == [True, False]
    assert buried.left == 0
    again = read(store, begun)
    assert (again.status, again.attempt, again.rescues, again.error) == ("pending", 1, 1, WHY)
    assert again.run_at > clock.time
    fresh = read(store, waited)
    assert (fresh.status, fresh.attempt, fresh.rescues, fresh.error) == ("pending", 0, 1, None)
    assert fresh.run_at == waited.run_at
    assert row_of(store, other) == before
    assert store.run(Workers()) == []
    assert store.run(Bury("w1", WHY)).jobs == []


def test_what_had_begun_without_the_database_knowing_it_counts_as_well(store: Store) -> None:
    make(store)
    make(store)
    begun, waited = claim(store, 2, slots=0)

    store.run(Bury("w1", WHY, begun={begun.id}))

    assert (read(store, begun).attempt, read(store, begun).error) == (1, WHY)
    assert (read(store, waited).attempt, read(store, waited).error) == (0, None)


def test_a_job_that_kills_its_workers_is_failed_after_its_attempts(
    store: Store, clock: Clock
) -> None:
    job = make(store)
    for _ in range(2):
        claim_one(store, slots=1, policies={"mail": Unsaid(max_attempts=2)})
        store.run(Bury("w1", WHY))
        clock.advance(3_600)

    dead = read(store, job)
    assert (dead.status, dead.attempt, dead.error) == ("failed", 2, WHY)


def test_nobody_is_to_blame_for_an_end_that_was_wanted(store: Store) -> None:
    make(store)
    make(store)
    claim(store, 1, slots=1)
    claim(store, 1, slots=0)

    buried = store.run(Bury("w1", "stopped when its worker shut down", blameless=True))

    assert [one.counted for one in buried.jobs] == [False, False]
    for number, releases in ((1, 1), (2, 0)):
        job = read(store, number)
        assert (job.status, job.attempt, job.rescues) == ("pending", 0, 0)
        assert job.releases == releases


def test_of_a_worker_that_was_killed_for_one_job_that_one_alone_is_to_blame(store: Store) -> None:
    make(store, timeout=2 * SECOND)
    make(store)
    guilty, innocent = claim(store, 2, slots=2)

    store.run(Bury("w1", "it was killed", culprits=[held(guilty)]))

    failed = read(store, guilty)
    assert (failed.status, failed.attempt, failed.rescues) == ("pending", 1, 1)
    assert failed.error == "TimeLimitExceeded: ran longer than its time limit of 2 s; it was killed"
    assert (read(store, innocent).attempt, read(store, innocent).rescues) == (0, 0)


def test_a_job_that_was_being_cancelled_when_its_worker_died_is_cancelled(store: Store) -> None:
    job = make(store)
    claim_one(store, slots=1)
    store.run(Cancel(job.id))

    store.run(Bury("w1", WHY))

    assert read(store, job).status == "cancelled"


def announce(store: Store) -> None:
    row = WorkerRow("w1", "host", 1, "0", None, "[]", 1, "working", LEASE * SECOND)
    store.run(KeepAlive(row, []))
