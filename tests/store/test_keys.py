"""One event, one job: idempotency keys."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.support.acts import (
    BOOM,
    claim_one,
    end,
    failed_for_now,
    ids,
    make,
    read,
    row_of,
)
from tests.support.clocks import Clock
from yaoki import DuplicateJob, InvalidOption, Job, KeyConflict, Yaoki
from yaoki.core.outcomes import Cancelled, Completed, Failed
from yaoki.core.said import NewJob
from yaoki.store import Store
from yaoki.store.ops.jobs import Cancel, Discard, Enqueue, EnqueueMany

KEY = "order-1001-points"


def again(store: Store, kind: str = "mail", **options: Any) -> Job:
    return store.run(Enqueue(NewJob(kind, '{"other":1}', idempotency_key=KEY), **options))


def pending(store: Store) -> Job:
    return make(store, idempotency_key=KEY)


def delayed(store: Store) -> Job:
    return make(store, idempotency_key=KEY, delay=10**9)


def waiting_for_its_retry(store: Store) -> Job:
    pending(store)
    return end(store, claim_one(store), failed_for_now(60))


def running(store: Store) -> Job:
    pending(store)
    return claim_one(store)


def completed(store: Store) -> Job:
    return end(store, running(store), Completed())


def failed(store: Store) -> Job:
    return end(store, running(store), Failed(BOOM))


def cancelled(store: Store) -> Job:
    return store.run(Cancel(pending(store).id))


def cancelled_by_its_handler(store: Store) -> Job:
    return end(store, running(store), Cancelled("x"))


STATES = [
    pending,
    delayed,
    waiting_for_its_retry,
    running,
    completed,
    failed,
    cancelled,
    cancelled_by_its_handler,
]
in_every_state = pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)


@in_every_state
def test_a_known_key_gives_back_its_job_whatever_its_state_and_payload(
    store: Store, state: Any
) -> None:
    first = state(store)
    before = row_of(store, first)

    second = again(store)

    assert (second.id, second.created) == (first.id, False)
    assert row_of(store, first) == before
    assert second.payload == {}
    assert second.lease is None


@in_every_state
def test_a_known_key_of_another_type_is_a_conflict_that_names_the_job(
    store: Store, state: Any
) -> None:
    """A template such as {id} in two job types must not swallow jobs silently."""
    first = state(store)
    before = row_of(store, first)

    with pytest.raises(KeyConflict) as conflict:
        again(store, "invoice")
    with pytest.raises(KeyConflict):
        store.run(EnqueueMany([NewJob("invoice", "{}", idempotency_key=KEY)]))

    assert (conflict.value.existing_id, conflict.value.existing_type) == (first.id, "mail")
    assert str(first.id) in str(conflict.value)
    assert row_of(store, first) == before


@in_every_state
def test_a_caller_who_wants_to_know_is_told_of_the_existing_job(store: Store, state: Any) -> None:
    first = state(store)
    before = row_of(store, first)

    with pytest.raises(DuplicateJob) as duplicate:
        again(store, on_existing="raise")

    assert (duplicate.value.existing_id, duplicate.value.status) == (first.id, first.status)
    assert row_of(store, first) == before


@in_every_state
def test_retry_puts_a_failed_or_cancelled_job_back_and_leaves_others(
    store: Store, state: Any
) -> None:
    first = state(store)
    before = row_of(store, first)

    second = again(store, on_existing="retry")

    assert (second.id, second.created) == (first.id, False)
    if first.status in ("failed", "cancelled"):
        assert (second.status, second.attempt) == ("pending", 0)
        assert claim_one(store).id == first.id
    else:
        assert row_of(store, first) == before


def test_a_new_key_makes_a_job_in_each_mode(store: Store) -> None:
    for mode in ("return", "retry", "raise"):
        job = store.run(Enqueue(NewJob("mail", "{}", idempotency_key=mode), on_existing=mode))  # type: ignore[arg-type]
        assert (job.created, job.idempotency_key) == (True, mode)


def test_jobs_without_a_key_never_meet(store: Store) -> None:
    assert len({make(store).id for _ in range(5)}) == 5


@pytest.mark.parametrize("state", [completed, failed, cancelled])
def test_a_key_is_free_again_when_its_job_is_discarded(store: Store, state: Any) -> None:
    first = state(store)
    store.run(Discard(first.id))

    second = again(store)

    assert second.created
    assert second.id > first.id


def test_keys_are_compared_exactly(store: Store) -> None:
    """Case, composed and decomposed letters, numbers and look-alikes are all different."""
    keys = ["a", "A", "a-1", "1", "01", "1.0", "é", "e\u0301", "お", "a%", "a_", "'", "k" * 500]

    jobs = [make(store, idempotency_key=key) for key in keys]

    assert len(set(ids(jobs))) == len(keys)
    assert [make(store, idempotency_key=key).id for key in keys] == ids(jobs)


def test_a_key_is_unique_across_queues(store: Store) -> None:
    first = make(store, idempotency_key=KEY, queue="a")

    assert make(store, idempotency_key=KEY, queue="b").id == first.id


# In a batch


def test_a_key_that_comes_twice_in_a_batch_makes_one_job(store: Store) -> None:
    new = [NewJob("mail", f'{{"n":{n}}}', idempotency_key=key) for n, key in enumerate("abacb")]

    jobs = store.run(EnqueueMany(new))

    a, b, a2, c, b2 = jobs
    assert (a.id, b.id) == (a2.id, b2.id)
    assert len({a.id, b.id, c.id}) == 3
    assert [job.created for job in jobs] == [True, True, False, True, False]
    assert [job.payload for job in jobs] == [{"n": 0}, {"n": 1}, {"n": 0}, {"n": 3}, {"n": 1}]


def test_a_batch_gives_known_jobs_back_in_their_places(store: Store) -> None:
    known = make(store, idempotency_key="b")
    keys = ["a", "b", None, "c"]

    jobs = store.run(EnqueueMany([NewJob("mail", "{}", idempotency_key=key) for key in keys]))

    assert jobs[1].id == known.id
    assert [job.created for job in jobs] == [True, False, True, True]
    assert [job.idempotency_key for job in jobs] == keys
    assert [read(store, job)._row for job in jobs] == [job._row for job in jobs]


def test_a_conflict_in_a_batch_makes_none_of_it(store: Store, app: Yaoki) -> None:
    make(store, "invoice", idempotency_key="b")
    new = [NewJob("mail", "{}", idempotency_key=key) for key in "abc"]

    with pytest.raises(KeyConflict):
        store.run(EnqueueMany(new))

    assert len(app.jobs()) == 1


def test_one_key_for_two_types_in_a_batch_is_a_conflict(store: Store, app: Yaoki) -> None:
    new = [NewJob(kind, "{}", idempotency_key="a") for kind in ("mail", "invoice")]

    with pytest.raises(KeyConflict):
        store.run(EnqueueMany(new))

    assert app.jobs() == []


def test_a_batch_that_is_to_raise_makes_nothing_when_a_key_is_known(
    store: Store, app: Yaoki
) -> None:
    make(store, idempotency_key="b")
    new = [NewJob("mail", "{}", idempotency_key=key) for key in "abc"]

    with pytest.raises(DuplicateJob):
        store.run(EnqueueMany(new, on_existing="raise"))

    assert len(app.jobs()) == 1


def test_a_batch_can_put_failed_jobs_back(store: Store) -> None:
    dead = failed(store)

    [job, other] = store.run(
        EnqueueMany(
            [NewJob("mail", "{}", idempotency_key=key) for key in (KEY, "new")],
            on_existing="retry",
        )
    )

    assert (job.id, job.status, job.created, other.created) == (dead.id, "pending", False, True)


def test_five_thousand_keys_of_which_half_are_known(store: Store) -> None:
    new = [NewJob("mail", "{}", idempotency_key=f"k{n}") for n in range(5_000)]
    first = store.run(EnqueueMany(new[::2]))

    jobs = store.run(EnqueueMany(new))

    assert [job.idempotency_key for job in jobs] == [one.idempotency_key for one in new]
    assert ids(jobs[::2]) == ids(first)
    assert sum(job.created for job in jobs) == 2_500


# At the same instant


def test_of_fifty_callers_with_one_key_one_makes_the_job_and_all_get_it(app: Yaoki) -> None:
    """Nobody is answered with nothing, or with "somebody else must be at it" (faults 71, 78)."""
    with ThreadPoolExecutor(50) as pool:
        jobs = list(
            pool.map(lambda n: app.enqueue("mail", {"n": n}, idempotency_key=KEY), range(50))
        )

    assert len({job.id for job in jobs}) == 1
    assert sum(job.created for job in jobs) == 1
    assert len(app.jobs()) == 1


def test_of_many_batches_with_the_same_keys_each_key_makes_one_job(app: Yaoki) -> None:
    @app.job("mail", idempotency_key="{n}")
    def mail(n: int) -> None: ...

    def batch(start: int) -> list[Job]:
        return mail.enqueue_many([{"n": (start + n) % 20} for n in range(20)])

    with ThreadPoolExecutor(10) as pool:
        batches = list(pool.map(batch, range(10)))

    made = [job for jobs in batches for job in jobs if job.created]
    assert sorted(str(job.idempotency_key) for job in made) == sorted(str(n) for n in range(20))
    assert {job.id for jobs in batches for job in jobs} == {job.id for job in made}


# By template


def test_a_template_over_the_payload_makes_the_key(app: Yaoki) -> None:
    @app.job("confirm", idempotency_key="{reservation_id}-confirm-mail")
    def confirm(reservation_id: int) -> None: ...

    first, second = confirm.enqueue(reservation_id=7), confirm.enqueue(7)

    assert first.idempotency_key == "7-confirm-mail"
    assert (second.id, second.created) == (first.id, False)
    assert confirm.enqueue(8).created


def test_a_function_can_make_the_key_or_leave_it(app: Yaoki) -> None:
    @app.job("confirm", idempotency_key=lambda payload: payload.get("token"))
    def confirm(token: str | None = None) -> None: ...

    assert confirm.enqueue("t").idempotency_key == "t"
    assert confirm.enqueue().id != confirm.enqueue().id


def test_a_key_said_by_the_caller_stands_above_the_template(app: Yaoki) -> None:
    @app.job("confirm", idempotency_key="{n}")
    def confirm(n: int) -> None: ...

    assert confirm.using(idempotency_key="mine").enqueue(1).idempotency_key == "mine"
    assert confirm.using(idempotency_key=None).enqueue(1).idempotency_key is None


def test_a_template_that_makes_no_key_is_refused(app: Yaoki) -> None:
    @app.job("confirm", idempotency_key="{name}")
    def confirm(name: str) -> None: ...

    for name in ("", "a\0", "x" * 501):
        with pytest.raises((InvalidOption, ValueError)):
            confirm.enqueue(name)

    assert app.jobs() == []


def test_a_key_survives_the_retry_of_its_job(store: Store, clock: Clock) -> None:
    """A job that waits for its retry still owns its key, and gets it without trouble (fault 72)."""
    first = waiting_for_its_retry(store)
    assert again(store).id == first.id

    clock.advance(60)

    assert claim_one(store).id == first.id
