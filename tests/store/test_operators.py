"""What operators do to jobs: cancel, put back, discard."""

from typing import Any

import pytest

from tests.support.acts import (
    BOOM,
    claim,
    claim_one,
    end,
    failed_for_now,
    held,
    ids,
    make,
    read,
    row_of,
)
from tests.support.clocks import Clock
from tests.support.databases import ask, set_last_id
from yaoki import InvalidOption, Job, JobNotFound, WrongStatus, Yaoki
from yaoki.core.outcomes import Cancelled, Completed, Failed, Released
from yaoki.core.said import NewJob
from yaoki.store import Store
from yaoki.store.ops.jobs import Cancel, Discard, EnqueueMany, Retry
from yaoki.store.ops.settling import Report
from yaoki.store.ops.upkeep import Cancelling, Rescue


def pending(store: Store) -> Job:
    return make(store)


def waiting(store: Store) -> Job:
    make(store)
    return end(store, claim_one(store), failed_for_now(60))


def running(store: Store) -> Job:
    make(store)
    return claim_one(store)


def being_cancelled(store: Store) -> Job:
    return store.run(Cancel(running(store).id))


def completed(store: Store) -> Job:
    return end(store, running(store), Completed())


def failed(store: Store) -> Job:
    return end(store, running(store), Failed(BOOM))


def cancelled(store: Store) -> Job:
    return end(store, running(store), Cancelled("x"))


def never_ran(store: Store) -> Job:
    return store.run(Cancel(make(store).id))


# Cancel


@pytest.mark.parametrize("state", [pending, waiting])
def test_a_waiting_job_is_cancelled_at_once(store: Store, clock: Clock, state: Any) -> None:
    job = state(store)
    clock.advance(1)

    gone = store.run(Cancel(job.id))

    assert (gone.status, gone.finished_at, gone.cancel_requested_at) == (
        "cancelled",
        clock.time,
        clock.time,
    )
    assert (gone.revision, gone.is_final) == (job.revision + 1, True)
    clock.advance(600)
    assert claim(store) == []


def test_a_running_job_is_told_and_stays_running_until_it_ends(store: Store, clock: Clock) -> None:
    job, other = running(store), running(store)

    told = store.run(Cancel(job.id))

    assert (told.status, told.being_cancelled, told.is_final) == ("running", True, False)
    assert told.cancel_requested_at == clock.time
    assert store.run(Cancelling([held(job), held(other)])) == [held(job)]
    assert end(store, job, Completed()).status == "cancelled"
    assert store.run(Cancelling([held(job), held(other)])) == []
    assert store.run(Cancelling([])) == []


@pytest.mark.parametrize("state", [being_cancelled, cancelled, never_ran])
def test_cancelling_twice_changes_nothing(store: Store, clock: Clock, state: Any) -> None:
    job = state(store)
    before = row_of(store, job)
    clock.advance(1)

    again = store.run(Cancel(job.id))

    assert again.id == job.id
    assert row_of(store, job) == before


@pytest.mark.parametrize("state", [completed, failed])
def test_a_job_that_has_ended_cannot_be_cancelled(store: Store, state: Any) -> None:
    job = state(store)
    before = row_of(store, job)

    with pytest.raises(WrongStatus) as wrong:
        store.run(Cancel(job.id))

    assert (wrong.value.job_id, wrong.value.status) == (job.id, job.status)
    assert row_of(store, job) == before


def test_what_a_cancelled_attempt_made_is_kept_to_be_seen(store: Store) -> None:
    job = running(store)
    store.run(Cancel(job.id))

    after = end(store, job, Completed('{"half":true}'))

    assert (after.status, after.result, after.error) == ("cancelled", {"half": True}, None)


# Put back


@pytest.mark.parametrize("state", [failed, cancelled, never_ran])
def test_a_job_that_ended_badly_starts_from_the_beginning(
    store: Store, clock: Clock, state: Any
) -> None:
    job = state(store)
    clock.advance(5)

    back = store.run(Retry(job.id))

    assert (back.status, back.attempt, back.run_at) == ("pending", 0, clock.time)
    assert (back.finished_at, back.cancel_requested_at, back.worker_id) == (None, None, None)
    assert (back.releases, back.rescues, back.progress) == (0, 0, None)
    assert back.revision == job.revision + 1
    assert len(back.attempts) == len(job.attempts)
    again = claim_one(store)
    assert (again.id, again.attempt) == (job.id, 1)
    assert end(store, again, Completed()).status == "completed"


def test_a_dead_job_that_is_put_back_keeps_its_errors(store: Store) -> None:
    job = failed(store)

    back = store.run(Retry(job.id))

    assert [one.error for one in back.errors] == ["Boom: it failed"]


def test_a_waiting_job_runs_now_without_losing_count(store: Store, clock: Clock) -> None:
    job = waiting(store)

    now = store.run(Retry(job.id))

    assert (now.attempt, now.run_at, now.error) == (1, clock.time, "Boom: it failed")
    assert claim_one(store).attempt == 2


@pytest.mark.parametrize("state", [running, being_cancelled, completed])
def test_a_job_that_runs_or_is_done_cannot_be_put_back(store: Store, state: Any) -> None:
    job = state(store)
    before = row_of(store, job)

    with pytest.raises(WrongStatus) as wrong:
        store.run(Retry(job.id))

    assert wrong.value.status == job.status
    assert "\n" not in str(wrong.value)
    assert row_of(store, job) == before


def test_a_job_that_ran_dangerously_may_run_beside_others_again_after_it_is_put_back(
    store: Store, clock: Clock
) -> None:
    make(store, max_attempts=2)
    for _ in range(2):
        job = claim_one(store)
        clock.advance(60)
        store.run(Rescue())
        clock.advance(600)

    assert store.run(Retry(job.id)).rescues == 0


def test_every_failed_job_of_a_type_or_queue_is_put_back(app: Yaoki) -> None:
    made = {}
    for kind, queue in (("a", "x"), ("a", "y"), ("b", "x"), ("a", "x")):
        job = app.enqueue(kind, queue=queue, max_attempts=1)
        app.fail(app.claim("w1")[0], "broken")
        made.setdefault((kind, queue), []).append(job.id)
    waiting_one = app.enqueue("a", queue="x", delay=9)

    assert app.retry_failed(type="a", queue="x") == made["a", "x"]
    assert app.retry_failed(queue="y") == made["a", "y"]
    assert app.retry_failed() == made["b", "x"]
    assert app.retry_failed() == []
    assert app.get(waiting_one).revision == 1


def test_many_more_failed_jobs_than_one_batch_are_put_back_once_each(
    app: Yaoki, store: Store
) -> None:
    store.run(EnqueueMany([NewJob("a", "{}", max_attempts=1)] * 1_234))
    ask(store, "UPDATE yaoki.jobs SET status = 'failed', error = 'x', finished_at = 1")

    put_back = app.retry_failed()

    assert put_back == sorted(set(put_back))
    assert len(put_back) == 1_234
    assert len(app.claim("w1", limit=2_000)) == 1_234


# Discard


@pytest.mark.parametrize("state", [completed, failed, cancelled, never_ran])
def test_a_job_that_has_ended_is_deleted_with_its_history(store: Store, state: Any) -> None:
    job = state(store)
    survivor = failed(store)

    store.run(Discard(job.id))

    with pytest.raises(JobNotFound):
        read(store, job)
    records = ask(store, "SELECT job_id FROM yaoki.attempts")
    assert {job_id for (job_id,) in records} == {survivor.id}


@pytest.mark.parametrize("state", [pending, waiting, running, being_cancelled])
def test_an_open_job_is_not_discarded(store: Store, state: Any) -> None:
    job = state(store)
    before = row_of(store, job)

    with pytest.raises(WrongStatus, match="cancel it first"):
        store.run(Discard(job.id))

    assert row_of(store, job) == before


def test_the_id_of_a_discarded_job_is_never_given_again(store: Store) -> None:
    """Without AUTOINCREMENT SQLite gives it to the next job (facts F14, fault 70)."""
    last = 0
    for _ in range(3):
        job = completed(store)
        assert job.id > last
        last = job.id
        store.run(Discard(job.id))

    assert store.run(EnqueueMany([NewJob("mail", "{}")] * 2))[0].id > last


def test_ids_grow_although_the_table_was_emptied_and_opened_anew(app: Yaoki) -> None:
    job = app.enqueue("mail")
    app.cancel(job)
    app.discard(job)
    app.close()

    assert app.enqueue("mail").id > job.id


def test_ids_beyond_what_32_and_53_bits_hold_work_everywhere(app: Yaoki, store: Store) -> None:
    """2**31 and 2**53 are where others break (fault 68)."""
    for most in (2**31 - 2, 2**53):
        job = app.enqueue("mail")
        set_last_id(store, most)
        app.cancel(job)
        app.discard(job)
        jobs = [app.enqueue("mail"), *app.enqueue_many("mail", [{}, {}])]
        assert ids(jobs) == [most + 1, most + 2, most + 3]
        claimed = app.claim("w1", limit=3)
        assert ids(claimed) == ids(jobs)
        app.extend(claimed[0])
        app.fail(claimed[0], "x", retry=False)
        app.release(claimed[1])
        app.complete(claimed[2])
        page = app.jobs(limit=1)
        assert app.jobs(limit=1, cursor=page.cursor)[0].id == most + 2
        app.cancel(jobs[1])
        for job in jobs:
            app.discard(job)


# Jobs that are not there, and things that are no ids


@pytest.mark.parametrize("job_id", [1, 0, -1, 2**63 - 1, 2**63, 10**30])
@pytest.mark.parametrize("verb", ["get", "cancel", "retry", "discard"])
def test_an_id_of_no_job_is_not_found(app: Yaoki, verb: str, job_id: int) -> None:
    with pytest.raises(JobNotFound) as missing:
        getattr(app, verb)(job_id)

    assert missing.value.job_id == job_id
    assert "\n" not in str(missing.value)


@pytest.mark.parametrize("job_id", ["1", None, True, 1.0, b"1"])
@pytest.mark.parametrize("verb", ["get", "cancel", "retry", "discard"])
def test_what_is_no_id_is_refused(app: Yaoki, verb: str, job_id: Any) -> None:
    app.enqueue("mail")

    with pytest.raises(InvalidOption, match="id"):
        getattr(app, verb)(job_id)


def test_of_a_cancel_and_a_claim_one_is_first(store: Store) -> None:
    first, second = make(store), make(store)
    claimed = claim_one(store)

    assert store.run(Cancel(first.id)).being_cancelled
    assert store.run(Cancel(second.id)).status == "cancelled"
    assert claimed.id == first.id
    assert end(store, claimed, Released("x")).status == "cancelled"


def test_the_last_progress_of_a_job_is_gone_when_it_starts_anew(store: Store) -> None:
    job = running(store)
    store.run(Report(held(job), '{"done":1.0,"total":3.0}'))
    end(store, job, Failed(BOOM))

    assert store.run(Retry(job.id)).progress is None
