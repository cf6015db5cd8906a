"""How attempts end: every outcome, whoever asks for it, in whatever state the job is."""

from datetime import timedelta
from typing import NamedTuple

import pytest

from tests.support.acts import (
    BOOM,
    OUTCOMES,
    SECOND,
    claim,
    claim_one,
    end,
    failed_for_now,
    held,
    lease_of,
    make,
    read,
)
from tests.support.clocks import Clock
from yaoki import Job, RetryPolicy, Yaoki
from yaoki.core.failures import Failure
from yaoki.core.job import AT
from yaoki.core.outcomes import (
    RELEASES_FREE,
    Completed,
    Failed,
    Released,
    Retried,
    Snoozed,
    settle,
)
from yaoki.core.said import NewJob
from yaoki.store import Store
from yaoki.store.ops.claims import Claim
from yaoki.store.ops.jobs import Cancel, EnqueueMany
from yaoki.store.ops.settling import (
    Exchange,
    Report,
    Settle,
    Settlement,
)


class Ended(NamedTuple):
    """What becomes of the job, and what its history says of the attempt."""

    status: str
    attempt: int
    error: str | None
    waits: bool
    record: str | None


BOOMED = "Boom: it failed"
SAID = {
    "completed": None,
    "retried": BOOMED,
    "failed": BOOMED,
    "snoozed": "not now",
    "released": "shutdown",
    "released unbegun": "shutdown",
    "cancelled": "no longer wanted",
}

# outcome → (attempts left: becomes), (none left: becomes); the attempt was the 2nd of 3 or 2.
UNCANCELLED = {
    "completed": (
        Ended("completed", 2, None, False, "completed"),
        Ended("completed", 2, None, False, "completed"),
    ),
    "retried": (
        Ended("pending", 2, BOOMED, True, "retried"),
        Ended("failed", 2, BOOMED, False, "failed"),
    ),
    "failed": (
        Ended("failed", 2, BOOMED, False, "failed"),
        Ended("failed", 2, BOOMED, False, "failed"),
    ),
    "snoozed": (
        Ended("pending", 1, "before", True, "snoozed"),
        Ended("pending", 1, "before", True, "snoozed"),
    ),
    "released": (
        Ended("pending", 1, "before", False, "released"),
        Ended("pending", 1, "before", False, "released"),
    ),
    "released unbegun": (
        Ended("pending", 1, "before", False, None),
        Ended("pending", 1, "before", False, None),
    ),
    "cancelled": (
        Ended("cancelled", 2, "before", False, "cancelled"),
        Ended("cancelled", 2, "before", False, "cancelled"),
    ),
}


def second_attempt(store: Store, clock: Clock, max_attempts: int) -> Job:
    """A job in its second attempt; the first one failed with "before"."""
    job = make(store, max_attempts=max_attempts)
    end(store, claim_one(store), Retried(Failure("before", "", "x"), 0))
    clock.advance(1)
    again = claim_one(store)
    assert (again.id, again.attempt) == (job.id, 2)
    return again


def last_record(job: Job) -> str | None:
    """The outcome of the second attempt, as the history has it."""
    later = [one for one in job.attempts if one.error != "before"]
    return later[-1].outcome if later else None


@pytest.mark.parametrize("left", [True, False], ids=["attempts left", "none left"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_outcome_makes_of_the_job_what_the_table_says(
    store: Store, clock: Clock, outcome: str, left: bool
) -> None:
    job = second_attempt(store, clock, max_attempts=3 if left else 2)
    clock.advance(5)

    after = end(store, job, OUTCOMES[outcome])

    expected = UNCANCELLED[outcome][0 if left else 1]
    waits = after.status == "pending" and after.run_at == clock.time + timedelta(seconds=30)
    record = last_record(after)
    assert Ended(after.status, after.attempt, after.error, waits, record) == expected
    assert_tidy(after, job, clock)


@pytest.mark.parametrize("left", [True, False], ids=["attempts left", "none left"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_every_way_out_of_a_cancelled_attempt_leads_to_cancelled(
    store: Store, clock: Clock, outcome: str, left: bool
) -> None:
    job = second_attempt(store, clock, max_attempts=3 if left else 2)
    asked = store.run(Cancel(job.id))
    clock.advance(5)

    after = end(store, job, OUTCOMES[outcome])

    assert after.status == "cancelled"
    assert after.is_final
    assert not after.being_cancelled
    if outcome != "released unbegun":
        assert last_record(after) == "cancelled"
    assert_tidy(after, asked, clock)


def assert_tidy(after: Job, before: Job, clock: Clock) -> None:
    """What holds after every outcome."""
    assert lease_of(after) == lease_of(before) + 1
    assert after.lease is None
    assert after.lease_expires_at is None
    assert (after.revision, after.updated_at) == (before.revision + 1, clock.time)
    if after.status == "pending":
        assert (after.worker_id, after.claimed_at, after.finished_at) == (None, None, None)
    else:
        assert (after.worker_id, after.claimed_at) == (before.worker_id, before.claimed_at)
        assert after.finished_at == clock.time


def test_completion_keeps_the_history_and_clears_the_error(app: Yaoki, clock: Clock) -> None:
    app.enqueue("mail")
    app.fail(app.claim("w1")[0], "no answer", retry_in=1)
    clock.advance(1)

    done = app.complete(app.claim("w2")[0], {"sent": True})

    assert (done.status, done.error, done.result) == ("completed", None, {"sent": True})
    assert [(one.attempt, one.outcome, one.error) for one in done.attempts] == [
        (1, "retried", "no answer"),
        (2, "completed", None),
    ]
    assert [one.worker_id for one in done.attempts] == ["w1", "w2"]
    assert [one.error for one in done.errors] == ["no answer"]


def test_the_history_says_when_each_attempt_was_claimed_began_and_ended(
    store: Store, clock: Clock
) -> None:
    make(store)
    begun = clock.time
    job = claim_one(store)
    clock.advance(7)
    end(store, job, failed_for_now(60), ran_for=7 * SECOND)

    [record] = read(store, job).attempts

    assert (record.claimed_at, record.started_at) == (begun, begun)
    assert record.ended_at == begun + timedelta(seconds=7)
    assert (record.error, record.traceback) == (BOOM.error, BOOM.traceback)


def test_a_job_that_was_claimed_ahead_says_when_it_really_began(store: Store, clock: Clock) -> None:
    make(store)
    [job] = claim(store, slots=0)
    clock.advance(7)

    after = end(store, job, failed_for_now(), ran_for=2 * SECOND)

    [record] = after.attempts
    assert record.started_at == clock.time - timedelta(seconds=2)


def test_retries_are_counted_from_the_second_run_on(app: Yaoki) -> None:
    job = app.enqueue("mail", max_attempts=3)
    counts = [(job.retry_count, job.max_retries)]

    for _ in range(3):
        [running] = app.claim("w1")
        counts.append((running.retry_count, running.attempt))
        job = app.fail(running, "no answer", retry_in=0)
        counts.append((job.retry_count, job.attempt))

    assert counts == [(0, 2), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (2, 3)]
    assert job.status == "failed"


# Hand-backs without end


def test_twenty_releases_in_a_row_are_free_and_then_each_counts(store: Store) -> None:
    job = make(store, max_attempts=3)

    attempts = []
    for _ in range(RELEASES_FREE + 2):
        after = end(store, claim_one(store), Released("shutdown"))
        attempts.append((after.status, after.attempt))
    last = end(store, claim_one(store), Released("shutdown"))

    assert attempts == [("pending", 0)] * 20 + [("pending", 1), ("pending", 2)]
    assert (last.status, last.attempt, last.error) == ("failed", 3, "shutdown")
    assert last_record(last) == "failed"
    assert read(store, job).releases == 23


def test_another_outcome_ends_the_row_of_releases(store: Store) -> None:
    make(store)
    for _ in range(RELEASES_FREE):
        end(store, claim_one(store), Released("shutdown"))

    end(store, claim_one(store), Snoozed(0, "later"))

    after = end(store, claim_one(store), Released("shutdown"))
    assert (after.attempt, after.releases, after.snoozes) == (0, 1, 1)


def test_a_release_of_what_never_began_is_not_even_counted(store: Store) -> None:
    make(store)
    for _ in range(RELEASES_FREE + 5):
        after = end(store, claim_one(store), Released("shutdown", started=False))

    assert (after.status, after.attempt, after.releases, after.attempts) == ("pending", 0, 0, ())


def test_snoozes_are_counted_and_use_no_attempt_up(store: Store) -> None:
    make(store, max_attempts=1)
    for number in range(30):
        after = end(store, claim_one(store), Snoozed(0, "later"))
        assert (after.status, after.attempt, after.snoozes) == ("pending", 0, number + 1)


def test_a_released_job_is_due_at_once_and_keeps_its_place(store: Store) -> None:
    first, _ = make(store), make(store)
    end(store, claim_one(store), Released("shutdown"))

    assert claim_one(store).id == first.id


# Many at once


def test_one_stale_outcome_in_a_batch_does_not_stop_its_neighbours(store: Store) -> None:
    for _ in range(5):
        make(store)
    jobs = claim(store, 5)
    end(store, jobs[1], failed_for_now(60))
    end(store, jobs[3], Completed())

    outcomes = [Completed(), Completed(), failed_for_now(), failed_for_now(), Failed(BOOM)]
    refused = store.run(
        Settle(
            [Settlement(held(job), settle(how)) for job, how in zip(jobs, outcomes, strict=True)]
        )
    )

    assert refused == {jobs[1].id, jobs[3].id}
    assert [read(store, job).status for job in jobs] == [
        "completed",
        "pending",
        "pending",
        "completed",
        "failed",
    ]


def test_an_exchange_records_and_claims_in_one(store: Store) -> None:
    first, second = make(store), make(store)
    job = claim_one(store)

    exchanged = store.run(
        Exchange([Settlement(held(job), settle(failed_for_now()))], Claim(worker_id="w1", limit=5))
    )

    assert exchanged.refused == frozenset()
    assert exchanged.claimed is not None
    assert [job.id for job in exchanged.claimed.jobs] == [first.id, second.id]
    assert exchanged.claimed.jobs[0].attempt == 2


def test_an_exchange_of_a_thousand_outcomes_records_them_all(store: Store) -> None:
    store.run(EnqueueMany([NewJob("mail", "{}")] * 1_000))
    jobs = claim(store, 1_000)
    outcomes = list(OUTCOMES.values())

    refused = store.run(
        Settle(
            [
                Settlement(held(job), settle(outcomes[place % len(outcomes)]))
                for place, job in enumerate(jobs)
            ]
        )
    )

    assert refused == frozenset()
    assert claim(store, 1_000, lease_for=SECOND) != []


# What is recorded


def test_progress_that_was_never_written_is_recorded_with_the_outcome(store: Store) -> None:
    make(store)
    job = claim_one(store)
    store.run(Report(held(job), '{"done":1.0,"total":3.0}'))

    after = end(store, job, Completed(), progress='{"done":3.0,"total":3.0}')

    assert after.progress is not None
    assert after.progress.fraction == 1.0


def test_progress_is_seen_by_everybody_while_the_job_runs(store: Store) -> None:
    make(store)
    job = claim_one(store)

    store.run(Report(held(job), '{"done":1.0,"total":4.0,"message":"rendering"}'))

    seen = read(store, job)
    assert seen.progress is not None
    assert (seen.progress.fraction, seen.progress.message) == (0.25, "rendering")
    assert seen.revision == job.revision + 1


@pytest.mark.parametrize("worst", ["a\0b", "a\ud800b", "x" * 10_000_000, "", "\x1b[31m"])
def test_recording_a_failure_cannot_fail(app: Yaoki, worst: str) -> None:
    """The write that records it must not be the one that breaks (faults 111, 114, 118)."""
    app.enqueue("mail", max_attempts=2)

    first = app.fail(app.claim("w1")[0], worst, retry_in=0)
    second = app.fail(app.claim("w1")[0], ValueError(worst))

    assert (first.status, second.status) == ("pending", "failed")
    assert len(second.error or "") <= 2_000
    assert all(len(one.traceback or "") <= 16_000 for one in second.errors)


@pytest.mark.parametrize(
    "result", [float("nan"), "a\0b", "\ud83d", object(), {1: 2}, "x" * 2_000_000, {"a": {1}}]
)
def test_a_result_that_json_has_not_does_not_undo_the_work(app: Yaoki, result: object) -> None:
    app.enqueue("mail")

    done = app.complete(app.claim("w1")[0], result)

    assert done.status == "completed"
    assert app.get(done).result is not None


@pytest.mark.parametrize(
    "result", [None, True, 0, 10**30, 1.5, "ありがとう", [], {"a": [1, {"b": None}]}]
)
def test_a_result_comes_back_as_it_was(app: Yaoki, result: object) -> None:
    app.enqueue("mail")

    done = app.complete(app.claim("w1")[0], result)

    assert app.get(done).result == result


def test_a_wait_named_by_the_caller_is_kept_to(app: Yaoki, clock: Clock) -> None:
    app.enqueue("mail")

    after = app.fail(app.claim("w1")[0], "come back later", retry_in=90)

    assert after.run_at == clock.time + timedelta(seconds=90)


def test_without_a_named_wait_the_back_off_of_the_row_decides(app: Yaoki, clock: Clock) -> None:
    app.enqueue("mail")

    waits = []
    for _ in range(3):
        after = app.fail(app.claim("w1")[0], "no answer")
        waits.append((after.run_at - clock.time).total_seconds())
        clock.advance(600)

    for wait, most in zip(waits, (10, 20, 40), strict=True):
        assert most / 2 <= wait <= most


def test_a_failure_without_retry_is_final(app: Yaoki) -> None:
    app.enqueue("mail")

    after = app.fail(app.claim("w1")[0], "the address is wrong", retry=False)

    assert (after.status, after.attempt, after.max_attempts) == ("failed", 1, 4)


def test_a_rule_of_the_type_can_make_a_failure_final(app: Yaoki) -> None:
    @app.job("mail", retry=RetryPolicy(give_up_on=(ValueError,)))
    def mail() -> None: ...

    for error, status in ((TypeError("x"), "pending"), (ValueError("x"), "failed")):
        job = app.enqueue("mail")
        [claimed] = [one for one in app.claim("w1") if one.id == job.id]
        assert app.fail(claimed, error).status == status


def test_a_wait_beyond_every_calendar_can_still_be_read(app: Yaoki) -> None:
    """A row that no datetime can hold would break every reader (fact F6)."""
    app.enqueue("mail")
    [job] = app.claim("w1")

    with pytest.raises(ValueError, match="retry_in"):
        app.fail(job, "x", retry_in=2**40)
    after = app.fail(job, "x", retry_in=timedelta(days=36_500))

    assert app.get(after).run_at.year > 2100
    assert job._row[AT["run_at"]] < after._row[AT["run_at"]]
