"""What random histories found, each as the shortest story that shows it."""

from typing import Any

import pytest

from tests.support.acts import claim, claim_one, end, failed_for_now, held, ids, make, read, row_of
from yaoki import LeaseLost
from yaoki.core.outcomes import RELEASES_FREE, Completed, Outcome, Released, Snoozed, settle
from yaoki.store import Store
from yaoki.store.ops.settling import Settle, Settlement

OUTCOMES: list[Outcome] = [
    Completed(),
    failed_for_now(),
    Snoozed(0, "not now"),
    Released("handed back"),
]
each_outcome = pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda one: type(one).__name__)


@each_outcome
@pytest.mark.parametrize("first", OUTCOMES, ids=lambda one: type(one).__name__)
def test_a_claim_that_is_over_cannot_be_ended_again(
    store: Store, first: Outcome, outcome: Outcome
) -> None:
    """It was taken for a success: the token after the first end is what the second looked for."""
    make(store)
    job = claim_one(store)
    end(store, job, first)
    before = row_of(store, job)

    with pytest.raises(LeaseLost):
        end(store, job, outcome)

    assert row_of(store, job) == before


@each_outcome
def test_a_claim_that_is_ended_twice_in_one_batch_is_ended_once(
    store: Store, outcome: Outcome
) -> None:
    make(store)
    job = claim_one(store)
    twice = [Settlement(held(job), settle(one)) for one in (failed_for_now(), outcome)]

    refused = store.run(Settle(twice))

    assert refused == {job.id}
    assert len(read(store, job).attempts) == 1


def test_a_hand_back_of_what_never_began_is_free_however_often_it_was_handed_back_before(
    store: Store,
) -> None:
    """After twenty that count as releases, one that does not used up an attempt."""
    make(store, max_attempts=2)
    for _ in range(RELEASES_FREE):
        end(store, claim_one(store), Released("handed back"))

    for _ in range(3):
        end(store, claim_one(store, slots=0), Released("handed back", started=False))

    job = read(store, 1)
    assert (job.status, job.attempt, job.releases) == ("pending", 0, RELEASES_FREE)


@pytest.mark.parametrize("twice", [{"types": ("mail",) * 2}, {"queues": ("default",) * 2}], ids=str)
@pytest.mark.parametrize("by_lanes", [False, True], ids=["from the head", "by lanes"])
def test_a_type_or_queue_that_is_named_twice_gives_each_job_once(
    store: Store, twice: dict[str, Any], by_lanes: bool
) -> None:
    """By lanes each was claimed twice in one claim, which used up two attempts."""
    make(store)
    make(store)

    jobs = claim(store, 4, by_lanes=by_lanes, **twice)

    assert ids(jobs) == [1, 2]
    assert [job.attempt for job in jobs] == [1, 1]
