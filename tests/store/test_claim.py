"""Claiming: who gets which jobs, in which order, and what the claim writes."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.acts import (
    SECOND,
    claim,
    claim_one,
    end,
    failed_for_now,
    ids,
    lease_of,
    make,
    publish,
    read,
)
from tests.support.clocks import Clock
from tests.support.databases import insert_rows
from yaoki import InvalidOption, Job, Yaoki
from yaoki.core.job import AT
from yaoki.core.said import NO_LIMIT, Unsaid
from yaoki.store import Store
from yaoki.store.ops.claims import WINDOW, Claim, DueTypes, Look
from yaoki.store.ops.queues import Pause, Resume
from yaoki.store.ops.upkeep import Rescue

# Order


def test_the_highest_priority_is_claimed_first(store: Store) -> None:
    low, high, middle = (make(store, priority=priority) for priority in (-100, 100, 0))

    assert ids(claim(store, 3)) == ids([high, middle, low])


def test_equal_priority_is_first_in_first_out(store: Store) -> None:
    jobs = [make(store, kind) for kind in ("a", "b", "a", "c", "b")]

    one_by_one = [claim_one(store) for _ in jobs]

    assert ids(one_by_one) == ids(jobs)


def test_of_equal_priority_the_one_that_was_due_earlier_goes_first(
    store: Store, clock: Clock
) -> None:
    late = make(store, delay=5 * SECOND)
    early = make(store, delay=2 * SECOND)
    at_once = make(store)
    clock.advance(10)

    assert ids(claim(store, 3)) == ids([at_once, early, late])


def test_a_delayed_job_is_not_claimed_before_its_instant(store: Store, clock: Clock) -> None:
    job = make(store, delay=2 * SECOND, priority=100)

    clock.now += 2 * SECOND - 1
    assert claim(store) == []
    clock.now += 1
    assert ids(claim(store)) == [job.id]


def test_priority_counts_across_queues_of_one_claim(store: Store) -> None:
    """Not only inside each queue, nor only among those that were fetched (fault 138)."""
    for _ in range(50):
        make(store, queue="a")
    high = make(store, queue="b", priority=20)

    assert claim_one(store, queues=("a", "b")).id == high.id


def test_a_claim_never_takes_more_than_its_limit(store: Store) -> None:
    """A join with LIMIT in a subquery took all 200 under some plans (fault 59)."""
    for number in range(200):
        make(store, priority=number % 3)

    for limit in (1, 2, 5, 17):
        assert len(claim(store, limit)) == limit

    assert len(claim(store, 1_000)) == 200 - 25


def test_a_claim_of_nothing_takes_nothing(store: Store) -> None:
    make(store)

    assert claim(store, 0) == []
    assert claim(store, -1) == []


def test_a_claim_goes_through_tiers_until_it_has_enough(store: Store) -> None:
    jobs = [make(store, priority=priority) for priority in (30, 20, 20, 10, 0, -5)]

    assert ids(claim(store, 4)) == ids(jobs[:4])
    assert ids(claim(store, 4)) == ids(jobs[4:])


# Who may take what


def test_a_claim_takes_from_its_queues_only(store: Store) -> None:
    mail, _, other = (make(store, queue=queue) for queue in ("mail", "images", "other"))

    assert ids(claim(store, 9, queues=("mail", "other"))) == ids([mail, other])
    assert claim(store, 9, queues=("nowhere",)) == []
    assert claim(store, 9, queues=()) == []


def test_a_claim_takes_its_types_only(store: Store) -> None:
    """A type that nobody here knows uses no attempt: it is left for somebody who does."""
    a, b, _ = (make(store, kind) for kind in ("a", "b", "c"))

    assert ids(claim(store, 9, types=("a", "b"))) == ids([a, b])
    assert claim(store, 9, types=()) == []


def test_types_and_queues_narrow_each_other(store: Store) -> None:
    make(store, "a", queue="x")
    wanted = make(store, "a", queue="y")
    make(store, "b", queue="y")

    assert ids(claim(store, 9, types=("a",), queues=("y",))) == [wanted.id]


@pytest.mark.parametrize(("kind", "name"), [("queue", "slow"), ("type", "mail")])
def test_what_is_paused_is_not_claimed_until_it_is_resumed(
    store: Store, kind: Any, name: str
) -> None:
    job = make(store, "mail", queue="slow")
    store.run(Pause(kind, name))

    assert claim(store, 9) == []
    assert claim(store, 9, by_lanes=True) == []
    assert claim(store, 9, types=("mail",), queues=("slow",), by_lanes=True) == []
    store.run(Resume(kind, name))
    assert ids(claim(store, 9)) == [job.id]


def test_names_that_look_like_patterns_or_json_are_only_names(store: Store) -> None:
    strange = ['a"b', "a%", "a_", "[]", "ä", "お知らせ", "a'b", "a\\b"]
    jobs = {name: make(store, name, queue=name) for name in strange}

    for name in strange:
        assert ids(claim(store, 9, types=(name,), queues=(name,))) == [jobs[name].id]


# Limits of queues


def test_a_capped_queue_gives_no_more_than_its_cap(store: Store) -> None:
    a = [make(store, queue="a") for _ in range(3)]
    b = make(store, queue="b")

    assert ids(claim(store, 4, caps={"a": 2})) == ids([*a[:2], b])


def test_a_crowd_of_a_capped_queue_does_not_hide_the_jobs_behind_it(store: Store) -> None:
    [first, *_] = [make(store, queue="a") for _ in range(10)]
    behind = [make(store, queue="b") for _ in range(3)]

    assert ids(claim(store, 4, caps={"a": 1})) == ids([first, *behind])


def test_a_queue_whose_cap_is_used_up_gives_nothing(store: Store) -> None:
    make(store, queue="a", priority=9)
    b = make(store, queue="b")

    assert ids(claim(store, 1, caps={"a": 0})) == [b.id]


# What must start at once, and what must run alone


def rescued(
    store: Store, clock: Clock, times: int, kind: str = "dangerous", max_attempts: int | None = 9
) -> Job:
    """A job that took so many workers with it."""
    job = make(store, kind, max_attempts=max_attempts, priority=50)
    for _ in range(times):
        claim_one(store, types=(kind,))
        clock.advance(61)
        store.run(Rescue())
        clock.advance(700)
    return read(store, job)


def test_a_job_with_one_attempt_is_claimed_into_a_free_slot_only(store: Store) -> None:
    ordinary = [make(store, max_attempts=2) for _ in range(2)]
    single = make(store, max_attempts=1)
    behind = make(store, max_attempts=2)

    assert ids(claim(store, 9, slots=2)) == ids(ordinary)
    assert ids(claim(store, 9, slots=1)) == ids([single, behind])


def test_a_job_that_was_rescued_is_claimed_into_a_free_slot_only(
    store: Store, clock: Clock
) -> None:
    once_rescued = rescued(store, clock, 1)

    assert claim(store, 9, slots=0) == []
    assert ids(claim(store, 9, slots=1)) == [once_rescued.id]


def test_what_is_claimed_beyond_the_slots_has_not_begun(store: Store, clock: Clock) -> None:
    for _ in range(3):
        make(store)

    started = [job._row[AT["started_at"]] for job in claim(store, 3, slots=1)]

    assert started == [clock.now, None, None]


def test_a_job_that_was_rescued_twice_is_claimed_alone(store: Store, clock: Clock) -> None:
    dangerous = rescued(store, clock, 2)
    make(store)

    claimed = store.run(Claim(worker_id="w1", limit=9, alone="may run"))

    assert ids(claimed.jobs) == [dangerous.id]
    assert not claimed.alone_waits


def test_a_job_that_was_rescued_once_is_claimed_alone_in_its_last_attempt(
    store: Store, clock: Clock
) -> None:
    """It may be an innocent one that shared a worker with a killer: it is not to do so again."""
    innocent = rescued(store, clock, 1, max_attempts=2)
    make(store)

    claimed = store.run(Claim(worker_id="w1", limit=9, alone="may run"))

    assert ids(claimed.jobs) == [innocent.id]
    assert (claimed.alone, claimed.jobs[0].attempt) == (True, 2)


def test_a_job_that_was_rescued_once_and_has_attempts_left_runs_with_others(
    store: Store, clock: Clock
) -> None:
    again = rescued(store, clock, 1, max_attempts=3)
    other = make(store)

    claimed = store.run(Claim(worker_id="w1", limit=9, alone="may run"))

    assert ids(claimed.jobs) == [again.id, other.id]
    assert not claimed.alone


def test_the_last_attempt_is_that_of_the_definition_where_the_caller_said_nothing(
    store: Store, clock: Clock
) -> None:
    """Also for a busy worker, whose search goes by what the claim before wrote on the row."""
    again = rescued(store, clock, 1, "mail", max_attempts=None)
    other = make(store, "other")
    stricter = {"mail": Unsaid(max_attempts=2)}

    waiting = store.run(Claim(worker_id="w1", limit=9, alone="wait", policies=stricter))
    around = store.run(Claim(worker_id="w1", limit=9, alone="skip", policies=stricter))
    last = store.run(Claim(worker_id="w1", limit=9, alone="may run", policies=stricter))

    assert (waiting.jobs, waiting.alone_waits) == ([], True)
    assert ids(around.jobs) == [other.id]
    assert (ids(last.jobs), last.alone) == ([again.id], True)


def test_jobs_before_one_that_must_run_alone_go_first_and_it_waits(
    store: Store, clock: Clock
) -> None:
    rescued(store, clock, 2)
    before = make(store, priority=60)

    claimed = store.run(Claim(worker_id="w1", limit=9, alone="may run"))

    assert ids(claimed.jobs) == [before.id]
    assert claimed.alone_waits


def test_a_worker_that_is_busy_stops_at_a_job_that_must_run_alone(
    store: Store, clock: Clock
) -> None:
    rescued(store, clock, 2)
    make(store)

    claimed = store.run(Claim(worker_id="w1", limit=9, alone="wait"))

    assert (claimed.jobs, claimed.alone_waits) == ([], True)


@pytest.mark.parametrize("limit", [1, 2, 9])
def test_a_worker_that_has_waited_long_goes_around_jobs_that_must_run_alone(
    store: Store, clock: Clock, limit: int
) -> None:
    for number in range(2):
        rescued(store, clock, 2, f"dangerous {number}")
    rescued(store, clock, 1, "in its last attempt", max_attempts=2)
    other = make(store)

    assert ids(claim(store, limit, alone="skip")) == [other.id]


def test_a_claimer_of_its_own_takes_dangerous_jobs_like_any(store: Store, clock: Clock) -> None:
    dangerous = rescued(store, clock, 2)

    assert ids(claim(store, 9)) == [dangerous.id]


# The ineligible head


@pytest.mark.parametrize(
    ("head", "mine"),
    [
        ({"type": "unknown"}, {"types": ("mail",)}),
        ({"queue": "theirs"}, {"queues": ("default",)}),
        ({"type": "unknown", "queue": "theirs"}, {"types": ("mail",), "queues": ("default",)}),
    ],
    ids=["types", "queues", "both"],
)
def test_a_crowd_that_may_not_be_taken_does_not_hide_the_right_job(
    store: Store, clock: Clock, head: dict[str, str], mine: dict[str, Any]
) -> None:
    store.run(Look())
    insert_rows(store, WINDOW + 500, clock.now - SECOND, **head)
    low = make(store)
    high = make(store, priority=5)

    claimed = store.run(Claim(worker_id="w1", limit=5, **mine))

    assert ids(claimed.jobs) == ids([high, low])
    assert claimed.by_lanes


@pytest.mark.parametrize(("kind", "name"), [("queue", "slow"), ("type", "other")])
def test_a_crowd_that_is_paused_does_not_hide_the_right_job(
    store: Store, clock: Clock, kind: Any, name: str
) -> None:
    store.run(Pause(kind, name))
    insert_rows(store, WINDOW + 500, clock.now - SECOND, type="other", queue="slow")
    job = make(store)

    assert ids(claim(store, 5)) == [job.id]


def test_a_short_head_is_no_reason_to_go_around(store: Store) -> None:
    make(store, "unknown")
    job = make(store)

    claimed = store.run(Claim(worker_id="w1", limit=5, types=("mail",)))

    assert (ids(claimed.jobs), claimed.by_lanes) == ([job.id], False)


def test_a_claim_for_more_than_the_window_takes_them_all(store: Store, clock: Clock) -> None:
    store.run(Look())
    insert_rows(store, 2_500, clock.now - SECOND)

    assert len(claim(store, 2_400)) == 2_400


# What the claim writes


def test_the_claim_writes_all_that_a_rescue_needs(store: Store, clock: Clock) -> None:
    """Before anything else can happen: a worker may die before its first renewal (fault 8)."""
    job = make(store)
    clock.advance(3)

    claimed = claim_one(store, "worker-7", lease_for=30 * SECOND)

    found = read(store, job)
    assert (found.status, found.attempt, found.worker_id) == ("running", 1, "worker-7")
    assert found.claimed_at == clock.time
    assert found.lease_expires_at == clock.time + timedelta(seconds=30)
    assert found.revision == job.revision + 1
    assert lease_of(found) % 2 == 1
    assert lease_of(found) >= clock.now
    assert claimed._row == found._row


def test_only_the_answer_to_a_claim_shows_the_lease(app: Yaoki) -> None:
    app.enqueue("mail")

    [claimed] = app.claim("w1")

    assert isinstance(claimed.lease, int)
    assert app.get(claimed).lease is None
    assert [job.lease for job in app.jobs()] == [None]
    assert "lease" not in repr(claimed)


@pytest.mark.parametrize("by_lanes", [False, True])
def test_a_claimed_job_is_what_the_database_has(store: Store, clock: Clock, by_lanes: bool) -> None:
    """The row is not read back after the claim, so it must be put together rightly."""
    for options in ({}, {"max_attempts": 3, "timeout": NO_LIMIT}, {"timeout": SECOND}):
        make(store, **options)
    end(store, claim_one(store), failed_for_now())
    clock.advance(1)
    policies = {"mail": Unsaid(max_attempts=7, timeout=9 * SECOND, backoff='{"kind":"x"}')}

    for job in claim(store, 9, policies=policies, by_lanes=by_lanes, slots=1):
        found = read(store, job)
        assert (job._row, job._attempts) == (found._row, found._attempts)


def test_the_history_of_a_job_comes_with_its_claim(store: Store) -> None:
    make(store)
    end(store, claim_one(store), failed_for_now())

    again = claim_one(store)

    assert [one.error for one in again.errors] == ["Boom: it failed"]


def test_what_nobody_said_is_decided_by_the_worker_that_claims(store: Store) -> None:
    open_ = make(store)
    said = make(store, max_attempts=2, timeout=NO_LIMIT)
    policy = Unsaid(max_attempts=7, timeout=9 * SECOND, backoff='{"kind":"fixed","wait":5.0}')

    claim(store, 2, policies={"mail": policy})

    rows = [read(store, job)._row for job in (open_, said)]
    assert [row[AT["max_attempts"]] for row in rows] == [7, 2]
    assert [row[AT["timeout"]] for row in rows] == [9 * SECOND, None]
    assert [row[AT["backoff"]] for row in rows] == [policy.backoff] * 2


def test_a_claimer_without_a_definition_follows_the_published_one(store: Store) -> None:
    job = make(store, "mail", unsaid=Unsaid())
    publish(store, max_attempts=7, timeout=None)

    claim(store)

    assert (read(store, job).max_attempts, read(store, job).timeout) == (7, None)


def test_where_nothing_is_known_the_row_stays_as_it_was_enqueued(store: Store) -> None:
    job = make(store, unsaid=Unsaid(max_attempts=9, timeout=8 * SECOND))

    claim(store)

    assert (read(store, job).max_attempts, read(store, job).timeout) == (9, 8)


# What else a claim tells


def test_a_claim_says_when_the_next_delayed_job_is_due(store: Store, clock: Clock) -> None:
    later, soon = clock.now + 9 * SECOND, clock.now + 3 * SECOND
    make(store, run_at=later, priority=100)
    make(store, run_at=soon)
    make(store)

    claimed = store.run(Claim(worker_id="w1", limit=5))

    assert (len(claimed.jobs), claimed.next_run_at) == (1, soon)
    assert store.run(Claim(worker_id="w1", limit=5)).next_run_at == soon


def test_a_look_tells_what_is_due_without_changing_anything(store: Store, clock: Clock) -> None:
    assert store.run(Look())[:2] == (False, None)
    make(store, delay=SECOND)
    assert store.run(Look())[:2] == (False, clock.now + SECOND)
    make(store)
    assert store.run(Look())[:2] == (True, clock.now + SECOND)


def test_types_that_have_due_jobs_are_named_once_each(store: Store) -> None:
    for kind, queue in (("b", "x"), ("a", "x"), ("b", "y"), ("c", "z")):
        make(store, kind, queue=queue)
    make(store, "later", delay=SECOND)

    assert sorted(store.run(DueTypes())) == ["a", "b", "c"]
    assert sorted(store.run(DueTypes(("x", "y")))) == ["a", "b"]


# The verb


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, 10_001, 2**63])
def test_a_limit_that_cannot_be_is_refused(app: Yaoki, limit: Any) -> None:
    with pytest.raises(InvalidOption, match="limit"):
        app.claim("w1", limit=limit)


@pytest.mark.parametrize("lease_for", [0, 0.5, -1, float("nan"), 2**63])
def test_a_lease_that_cannot_be_is_refused(app: Yaoki, lease_for: Any) -> None:
    with pytest.raises(InvalidOption, match="lease_for"):
        app.claim("w1", lease_for=lease_for)


@pytest.mark.parametrize("worker_id", ["", "a\0", "\ud83d", "w" * 201, None])
def test_a_worker_id_that_cannot_be_is_refused(app: Yaoki, worker_id: Any) -> None:
    with pytest.raises(InvalidOption):
        app.claim(worker_id)


def test_queues_given_as_one_text_are_refused(app: Yaoki) -> None:
    """Otherwise "mail" would be the queues m, a, i and l."""
    with pytest.raises(InvalidOption, match=r"\['mail'\]"):
        app.claim("w1", queues="mail")
    with pytest.raises(InvalidOption, match=r"\['mail'\]"):
        app.claim("w1", types="mail")
