"""Leases: kept alive, run out, taken back; and the tokens that fence them."""

from datetime import timedelta

import msgspec
import pytest

from tests.support.acts import (
    BOOM,
    SECOND,
    claim,
    claim_one,
    end,
    failed_for_now,
    held,
    ids,
    lease_of,
    make,
    read,
    row_of,
)
from tests.support.clocks import Clock
from tests.support.databases import backup
from yaoki import InvalidOption, LeaseLost, Yaoki, fixed
from yaoki.core.outcomes import Completed, Failed, Released, Retried, Snoozed
from yaoki.core.said import Unsaid
from yaoki.store import Store
from yaoki.store.ops.jobs import Cancel, Retry
from yaoki.store.ops.settling import Extend, Held
from yaoki.store.ops.upkeep import KeepAlive, Leases, MarkStarted, Rescue, Rescued, WorkerRow
from yaoki.store.ops.workers import Leave

LEASE = 60
WORKER = WorkerRow("w1", "host", 1, "0", None, "[]", 1, "working", LEASE * SECOND)


def test_a_job_whose_lease_is_over_is_put_back_as_a_failed_attempt(
    store: Store, clock: Clock
) -> None:
    job = make(store)
    claim_one(store, "w-dead", policies={"mail": Unsaid(backoff=backoff_of(7))})
    clock.advance(LEASE)

    [rescued] = store.run(Rescue())

    assert (rescued.id, rescued.type, rescued.worker_id, rescued.counted) == (
        job.id,
        "mail",
        "w-dead",
        True,
    )
    back = read(store, job)
    assert (back.status, back.attempt, back.rescues) == ("pending", 1, 1)
    assert back.error == "lease lost (worker w-dead)"
    assert back.run_at == clock.time + timedelta(seconds=7)
    assert (back.worker_id, back.lease_expires_at) == (None, None)
    assert [(one.outcome, one.error) for one in back.errors] == [
        ("retried", "lease lost (worker w-dead)")
    ]


def backoff_of(seconds: float) -> str:
    return msgspec.json.encode(fixed(seconds).to_dict()).decode()


def test_a_lease_that_is_not_over_is_left_alone(store: Store, clock: Clock) -> None:
    make(store)
    job = claim_one(store)
    before = row_of(store, job)
    clock.now += LEASE * SECOND - 1

    assert store.run(Rescue()) == []

    assert row_of(store, job) == before


def test_a_job_that_kills_its_workers_is_failed_after_its_attempts(
    store: Store, clock: Clock
) -> None:
    """Attempts are counted by the claim, not by whoever catches the error (fault 20)."""
    job = make(store, max_attempts=3)

    for _ in range(3):
        claim_one(store, "w-dead")
        clock.advance(LEASE)
        assert len(store.run(Rescue())) == 1
        clock.advance(3_600)

    dead = read(store, job)
    assert (dead.status, dead.attempt, dead.rescues) == ("failed", 3, 3)
    assert dead.error == "lease lost (worker w-dead)"
    assert [one.outcome for one in dead.errors] == ["retried", "retried", "failed"]
    assert claim(store) == []


def test_a_job_that_had_not_begun_goes_back_uncounted_the_first_time(
    store: Store, clock: Clock
) -> None:
    begun, ahead = make(store), make(store)
    claim(store, 2, slots=1)
    clock.advance(LEASE)

    rescued = store.run(Rescue())

    assert [(one.id, one.counted) for one in rescued] == [(begun.id, True), (ahead.id, False)]
    innocent = read(store, ahead)
    assert (innocent.status, innocent.attempt, innocent.rescues) == ("pending", 0, 1)
    assert innocent.error is None
    assert innocent.errors == ()
    assert [one.error for one in innocent.attempts] == ["lease lost (worker w1) before it began"]
    assert ids(claim(store)) == [ahead.id]


def test_the_second_time_a_rescue_counts_although_the_job_had_not_begun(
    store: Store, clock: Clock
) -> None:
    """Otherwise a job that kills its worker while it is unpacked would do so for ever."""
    job = make(store)
    for _ in range(2):
        claim(store, 1, slots=0) or claim(store, 1)
        clock.advance(LEASE)
        store.run(Rescue())
        clock.advance(3_600)

    assert (read(store, job).attempt, read(store, job).rescues) == (1, 2)


def test_a_job_that_was_marked_as_begun_counts(store: Store, clock: Clock) -> None:
    make(store)
    [job] = claim(store, slots=0)
    store.run(MarkStarted([(held(job), SECOND)]))
    clock.advance(LEASE)

    [rescued] = store.run(Rescue())

    assert rescued.counted
    [record] = read(store, job).attempts
    assert record.started_at == record.claimed_at - timedelta(seconds=1)


def test_the_first_mark_of_the_beginning_stays(store: Store, clock: Clock) -> None:
    make(store)
    [job] = claim(store, slots=0)

    for ran_for in (2 * SECOND, SECOND):
        store.run(MarkStarted([(held(job), ran_for)]))

    clock.advance(LEASE)
    store.run(Rescue())
    [record] = read(store, job).attempts
    assert record.started_at == record.claimed_at - timedelta(seconds=2)


def test_a_cancelled_job_whose_worker_dies_is_cancelled(store: Store, clock: Clock) -> None:
    for slots in (0, 1):
        job = make(store)
        claim(store, slots=slots)
        store.run(Cancel(job.id))
        clock.advance(LEASE)

        store.run(Rescue())

        assert read(store, job).status == "cancelled"


def test_of_two_rescuers_with_the_same_list_the_second_does_nothing(
    store: Store, clock: Clock
) -> None:
    """Whoever lost the race looks at the number of rows (fault 33)."""
    job = make(store)
    claim_one(store)
    clock.advance(LEASE)
    seen = store.run(Leases()).suspects

    first, second = store.run(Rescue(seen)), store.run(Rescue(seen))

    assert (ids_of(first), second) == ([job.id], [])
    assert (read(store, job).attempt, read(store, job).rescues) == (1, 1)


def ids_of(rescued: list[Rescued]) -> list[int]:
    return [one.id for one in rescued]


def test_a_lease_that_moved_since_it_was_seen_is_left_alone(store: Store, clock: Clock) -> None:
    make(store)
    job = claim_one(store)
    clock.advance(LEASE)
    seen = store.run(Leases()).suspects
    store.run(KeepAlive(WORKER, [held(job)]))

    assert store.run(Rescue(seen)) == []

    assert read(store, job).status == "running"


def test_a_job_that_runs_under_another_token_since_it_was_seen_is_left_alone(
    store: Store, clock: Clock
) -> None:
    make(store)
    job = claim_one(store)
    clock.advance(LEASE)
    seen = store.run(Leases()).suspects
    end(store, job, Released("x"))
    again = claim_one(store)

    assert store.run(Rescue(seen)) == []

    assert read(store, again).attempt == 1


def test_a_rescuer_may_take_a_lease_that_the_clock_says_is_good(store: Store, clock: Clock) -> None:
    """The clock was set back an hour: what was seen unchanged for long enough is dead."""
    make(store)
    job = claim_one(store)
    clock.advance(-3_600)
    seen = store.run(Leases()).suspects
    assert not seen[0].expired

    assert ids_of(store.run(Rescue(seen))) == [job.id]


def test_leases_that_are_plainly_good_are_passed_over(store: Store, clock: Clock) -> None:
    for _ in range(3):
        make(store)
    over, good = claim_one(store, lease_for=10 * SECOND), claim_one(store, lease_for=99 * SECOND)
    clock.advance(10)

    page = store.run(Leases())

    [lease] = page.suspects
    assert (lease.id, lease.lease, lease.expired) == (over.id, over.lease, True)
    assert lease.lease_for == 10 * SECOND
    assert (page.last, page.shortest) == (None, 10 * SECOND)
    clock.advance(-10.000001)
    set_back = store.run(Leases()).suspects
    assert [(one.id, one.expired) for one in set_back] == [(over.id, False), (good.id, False)]


def test_leases_are_looked_at_by_the_page(store: Store, clock: Clock) -> None:
    """However many there are, of one's own and of others (fault 52)."""
    for _ in range(7):
        make(store)
    jobs = claim(store, 7)
    clock.advance(LEASE)
    store.run(KeepAlive(WORKER, [held(job) for job in jobs[2:4]]))

    pages, after = [], 0
    while after is not None:
        page = store.run(Leases(after, most=3))
        pages.append([lease.id for lease in page.suspects])
        after = page.last

    first, second, _, _, *others = ids(jobs)
    assert pages == [[first, second], others[:2], others[2:]]


def test_a_page_that_ends_with_the_last_lease_is_followed_by_an_empty_one(
    store: Store, clock: Clock
) -> None:
    for _ in range(2):
        make(store)
    last = claim(store, 2)[-1]

    assert store.run(Leases(most=2)) == ([], last.id, LEASE * SECOND, 2)
    assert store.run(Leases(last.id, most=2)) == ([], None, None, 0)


def test_a_rescue_takes_a_bounded_bite(store: Store, clock: Clock) -> None:
    for _ in range(7):
        make(store)
    claim(store, 7)
    clock.advance(LEASE)

    assert [len(store.run(Rescue(limit=3))) for _ in range(4)] == [3, 3, 1, 0]


def test_a_rescue_does_not_need_a_slot_a_queue_or_a_registered_worker(
    store: Store, clock: Clock
) -> None:
    """It goes by the lease alone, so no deleted or revived worker row hides a job (fault 1)."""
    job = make(store)
    store.run(KeepAlive(WORKER, []))
    claim_one(store, "w1")
    store.run(Leave("w1"))
    clock.advance(LEASE)
    store.run(KeepAlive(WORKER, []))

    assert ids_of(store.run(Rescue())) == [job.id]


def test_the_back_off_of_the_row_decides_when_a_rescued_job_runs_again(
    store: Store, clock: Clock
) -> None:
    """Without one, the default: between half of 10 s and all of it."""
    make(store)
    job = claim_one(store)
    clock.advance(LEASE)

    store.run(Rescue(seed=7))

    wait = (read(store, job).run_at - clock.time).total_seconds()
    assert 5 <= wait <= 10


def test_a_back_off_that_this_version_cannot_read_does_not_stop_the_rescue(
    store: Store, clock: Clock
) -> None:
    make(store)
    job = claim_one(store, policies={"mail": Unsaid(backoff='{"kind":"of another age"}')})
    clock.advance(LEASE)

    store.run(Rescue())

    assert read(store, job).status == "pending"


# Keeping a lease


def test_a_renewed_lease_is_good_for_its_length_again(store: Store, clock: Clock) -> None:
    make(store)
    job = claim_one(store, lease_for=20 * SECOND)

    for _ in range(5):
        clock.advance(15)
        kept = store.run(KeepAlive(WORKER, [held(job)]))
        assert kept.lost == frozenset()
        assert store.run(Rescue()) == []

    assert read(store, job).lease_expires_at == clock.time + timedelta(seconds=20)
    assert read(store, job).revision == job.revision


def test_a_lease_that_ran_out_but_was_not_taken_can_still_be_renewed(
    store: Store, clock: Clock
) -> None:
    make(store)
    job = claim_one(store)
    clock.advance(3_600)

    kept = store.run(KeepAlive(WORKER, [held(job)]))

    assert kept.lost == frozenset()
    assert store.run(Rescue()) == []


def test_a_keeper_learns_which_leases_it_lost_and_what_it_holds(store: Store) -> None:
    for _ in range(4):
        make(store)
    jobs = claim(store, 3)
    other = claim_one(store, "w2")
    end(store, jobs[0], Released("x"))

    kept = store.run(KeepAlive(WORKER, [held(job) for job in (*jobs, other)]))

    assert kept.lost == {held(jobs[0])}
    assert kept.held == [held(job) for job in jobs[1:]]


def test_extending_a_lease_changes_its_length_for_renewals_too(store: Store, clock: Clock) -> None:
    make(store)
    job = claim_one(store)

    extended = store.run(Extend(held(job), 300 * SECOND))

    assert extended.lease_expires_at == clock.time + timedelta(seconds=300)
    clock.advance(100)
    store.run(KeepAlive(WORKER, [held(job)]))
    assert read(store, job).lease_expires_at == clock.time + timedelta(seconds=300)


def test_an_extended_job_shows_no_lease_but_the_claim_still_works(app: Yaoki) -> None:
    app.enqueue("mail")
    [job] = app.claim("w1", lease_for=5)

    app.extend(job, timedelta(minutes=5))

    assert app.complete(job).status == "completed"


@pytest.mark.parametrize("lease_for", [0, 0.9, -1, float("inf")])
def test_an_extension_that_cannot_be_is_refused(app: Yaoki, lease_for: float) -> None:
    app.enqueue("mail")
    [job] = app.claim("w1")

    with pytest.raises(InvalidOption, match="lease_for"):
        app.extend(job, lease_for)


def test_the_verb_rescues_at_once(app: Yaoki, clock: Clock) -> None:
    app.enqueue("mail")
    [job] = app.claim("w1", lease_for=1)
    assert app.rescue() == []
    clock.advance(1)

    [rescued] = app.rescue()

    assert rescued.id == job.id
    with pytest.raises(LeaseLost):
        app.complete(job)


def test_a_worker_that_comes_back_after_its_rescue_is_refused_everything(
    app: Yaoki, clock: Clock
) -> None:
    """Also while the job waits for its next attempt, before anybody else has it (fault 21)."""
    app.enqueue("mail")
    [late] = app.claim("w1", lease_for=1)
    clock.advance(1)
    app.rescue()
    before = app.get(late)

    for verb in (app.complete, app.release, app.extend):
        with pytest.raises(LeaseLost):
            verb(late)
    with pytest.raises(LeaseLost):
        app.fail(late, "x")

    assert app.get(late) == before


# Tokens


def test_tokens_only_grow_whatever_happens_to_the_job(store: Store, clock: Clock) -> None:
    """A number that comes back would let a late worker match a new lease (fault 22)."""
    make(store, max_attempts=99)
    tokens = [0]
    for step in range(30):
        job = claim_one(store)
        tokens.append(lease_of(job))
        match step % 6:
            case 0:
                clock.advance(LEASE)
                store.run(Rescue())
            case 1:
                end(store, job, Released("x"))
            case 2:
                end(store, job, Snoozed(0, "x"))
            case 3:
                end(store, job, failed_for_now())
            case 4:
                end(store, job, Failed(BOOM))
            case 5:
                store.run(Cancel(job.id))
                end(store, job, Completed())
        tokens.append(lease_of(read(store, job)))
        if read(store, job).is_final:
            store.run(Retry(job.id))
            tokens.append(lease_of(read(store, job)))
        clock.advance(3_600 if step % 2 else -3_600)
        store.run(Retry(job.id))

    assert tokens == sorted(tokens)
    claims = [token for token in tokens if token % 2]
    assert len(set(claims)) == len(claims) == 30


def test_a_claim_after_a_restored_copy_gets_a_token_above_those_of_the_lost_time(
    store: Store, clock: Clock
) -> None:
    """A backup knows nothing of the leases that were given out after it."""
    make(store)
    restore = backup(store)
    given_out = []
    for _ in range(5):
        clock.advance(0.001)
        job = claim_one(store)
        given_out.append(lease_of(job))
        end(store, job, Released("x"))
    late = job
    restore()
    clock.advance(1)

    restored = claim_one(store)

    assert lease_of(restored) > max(given_out)
    with pytest.raises(LeaseLost):
        end(store, late, Completed())


def test_a_token_is_above_the_one_before_although_the_clock_stands_still(store: Store) -> None:
    make(store)
    tokens = []
    for _ in range(5):
        job = claim_one(store)
        tokens.append(lease_of(job))
        end(store, job, Released("x"))

    assert tokens == sorted(set(tokens))


def test_every_owner_gets_a_token_of_its_own(store: Store) -> None:
    for _ in range(3):
        make(store)

    jobs = claim(store, 3)

    assert all(isinstance(held(job), Held) for job in jobs)
    for job in jobs:
        assert end(store, job, Retried(BOOM, 0)).status == "pending"
