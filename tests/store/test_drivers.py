"""One description of an operation, two ways to run it."""

import asyncio
from collections.abc import Iterator

import pytest

from yaoki.core.errors import KeyConflict
from yaoki.core.said import NewJob
from yaoki.store import Store, open_store
from yaoki.store.ops.jobs import Enqueue, EnqueueMany, Get
from yaoki.store.ops.listing import ListJobs


@pytest.fixture
def both_ways(any_url: str) -> Iterator[Store]:
    """A store of each kind that is run blocking and awaiting by the same test."""
    store = open_store(any_url)
    yield store
    store.close()


def test_what_was_made_awaiting_is_read_blocking_and_the_other_way_round(both_ways: Store) -> None:
    awaited = asyncio.run(both_ways.arun(Enqueue(NewJob("a", "{}"))))
    blocked = both_ways.run(Enqueue(NewJob("a", "{}")))

    assert both_ways.run(Get(awaited.id)) == awaited
    assert asyncio.run(both_ways.arun(Get(blocked.id))) == blocked


def test_what_is_raised_in_the_middle_is_raised_blocking_and_awaiting(both_ways: Store) -> None:
    """And what the operation had written before that is undone."""
    known = both_ways.run(Enqueue(NewJob("a", "{}", idempotency_key="k")))
    new = [NewJob("b", "{}"), NewJob("b", "{}", idempotency_key="k")]

    with pytest.raises(KeyConflict):
        both_ways.run(EnqueueMany(new))
    with pytest.raises(KeyConflict):
        asyncio.run(both_ways.arun(EnqueueMany(new)))

    assert both_ways.run(ListJobs()) == [known]


def test_an_operation_can_be_run_again(store: Store) -> None:
    """It is a description, not a generator that is used up: so a whole transaction is retried."""
    enqueue = Enqueue(NewJob("a", "{}"))

    first, second = store.run(enqueue), store.run(enqueue)

    assert second.id > first.id
