"""A claim costs the same, whatever else is in the table; counted in blocks that are looked at."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from tests.store.postgres.blocks import Session, session
from tests.store.postgres.plans import SWITCHES
from tests.support import databases, postgres
from tests.support.acts import BOOM, held
from tests.support.crowds import (
    ASIDE,
    AT_THE_HEAD,
    BESIDE,
    CLAIM,
    DONE,
    NOW,
    OF_MAIL,
    WANTED,
    Crowd,
    assert_the_wanted_ones,
)
from yaoki.core.job import Job
from yaoki.core.outcomes import Completed, Outcome, Retried, settle
from yaoki.core.said import NewJob
from yaoki.store.op import Op
from yaoki.store.ops.claims import Claim, Look
from yaoki.store.ops.jobs import Cancel, Enqueue, EnqueueMany, Get, RetryFailed
from yaoki.store.ops.listing import ListJobs
from yaoki.store.ops.settling import Exchange, Extend, Report, Settle, Settlement
from yaoki.store.ops.upkeep import Cancelling, KeepAlive, Leases, MarkStarted, Rescue, WorkerRow
from yaoki.store.postgres.store import PostgresStore

MANY = 20_000
"""Enough of a crowd to tell ten times as many blocks from as many."""

BOUND = 200
"""Blocks that a claim of ten looks at besides, whatever the table's size."""


WORKER = WorkerRow("w1", "host", 1, "0", None, "[]", 10, "working", 60_000_000)


class Crowded(NamedTuple):
    """Three tables: without the crowd, with a bit of it, and with all of it."""

    claim: Claim
    alone: Session
    some: Session
    full: Session


@pytest.fixture(scope="module")
def alone() -> Iterator[Session]:
    with table(Crowd({}), 0) as one:
        yield one


@pytest.fixture(scope="module", params=ASIDE)
def aside(request: pytest.FixtureRequest, alone: Session) -> Iterator[Crowded]:
    with crowded(ASIDE[request.param], alone) as tables:
        yield tables


@pytest.fixture(scope="module", params=AT_THE_HEAD)
def behind(request: pytest.FixtureRequest, alone: Session) -> Iterator[Crowded]:
    with crowded(AT_THE_HEAD[request.param], alone) as tables:
        yield tables


@pytest.fixture(scope="module", params=BESIDE)
def beside(request: pytest.FixtureRequest, alone: Session) -> Iterator[Crowded]:
    with crowded(BESIDE[request.param], alone) as tables:
        yield tables


@pytest.fixture(scope="module")
def million() -> Iterator[Session]:
    """A million rows of every kind that is no claim's business, and ten that are wanted."""
    with table(Crowd(DONE | {"type": "mail", "queue": "mail"}), 700_000) as one:
        store = PostgresStore(one.url)
        later = {"type": "mail", "queue": "mail", "run_at": NOW + 10**9}
        databases.insert_rows(store, 100_000, NOW, priority=100, **later)
        databases.insert_rows(store, 100_000, NOW, **later)
        databases.insert_rows(store, 100_000, NOW, type="unknown", priority=-1)
        yield one


def test_a_claim_costs_the_same_with_and_without(aside: Crowded) -> None:
    cheap, _ = aside.alone.cost(aside.claim)

    dear, claimed = aside.full.cost(aside.claim)

    assert_the_wanted_ones(claimed)
    assert not claimed.by_lanes
    assert dear <= look(aside.full) + 1.5 * cheap


def test_a_first_claim_costs_a_window_behind(behind: Crowded) -> None:
    """However many there are; what it finds out tells the worker to go by lanes from then on."""
    cheap, _ = behind.some.cost(behind.claim)

    dear, claimed = behind.full.cost(behind.claim)

    assert_the_wanted_ones(claimed)
    assert claimed.by_lanes
    assert dear <= look(behind.full) + 1.5 * cheap


def test_the_claims_after_it_cost_the_same_as_without(behind: Crowded) -> None:
    assert_by_lanes_costs_the_same(behind)


def test_a_claim_by_lanes_costs_the_same_in_a_long_lane(beside: Crowded) -> None:
    assert_by_lanes_costs_the_same(beside)


def test_a_claim_of_ten_out_of_a_million_rows_looks_at_a_few_blocks(million: Session) -> None:
    """As many as were in the table made it slower, elsewhere (faults 61 and 63)."""
    from_the_head, claimed = million.cost(OF_MAIL)
    by_lanes, claimed_by_lanes = million.cost(replace(CLAIM, by_lanes=True))

    assert_the_wanted_ones(claimed)
    assert_the_wanted_ones(claimed_by_lanes)
    assert from_the_head < look(million) + BOUND
    assert by_lanes < look(million) + 1.2 * BOUND


AFTER_A_CLAIM: dict[str, Callable[[list[Job]], Op[Any]]] = {
    "completing": lambda jobs: Settle([ended(job, Completed("null")) for job in jobs]),
    "failing": lambda jobs: Settle([ended(job, Retried(BOOM, 0)) for job in jobs]),
    "an exchange": lambda jobs: Exchange([ended(job, Completed("null")) for job in jobs]),
    "renewing": lambda jobs: KeepAlive(WORKER, [held(job) for job in jobs]),
    "saying what has begun": lambda jobs: MarkStarted([(held(job), 0) for job in jobs]),
    "reporting": lambda jobs: Report(held(jobs[0]), "{}"),
    "extending": lambda jobs: Extend(held(jobs[0])),
    "looking for silent ones": lambda jobs: Leases(),
    "looking for cancelled ones": lambda jobs: Cancelling([held(job) for job in jobs]),
    "rescuing": lambda jobs: Rescue(),
    "cancelling": lambda jobs: Cancel(jobs[0].id),
    "reading": lambda jobs: Get(jobs[0].id),
    "enqueuing": lambda jobs: Enqueue(NewJob("mail", "{}", idempotency_key="new")),
    "enqueuing a batch": lambda jobs: EnqueueMany(
        [NewJob("mail", "{}", idempotency_key=f"new {n}") for n in range(10)]
    ),
    "putting all back": lambda jobs: RetryFailed(),
    "the first page": lambda jobs: ListJobs(limit=10),
}
"""What is done about jobs that were just claimed, and beside them."""


@pytest.mark.parametrize("name", AFTER_A_CLAIM)
def test_nothing_else_costs_more_in_a_table_of_a_million_rows(
    name: str, alone: Session, million: Session
) -> None:
    """Neither the worker's own statements nor an operator's on one job (faults 62 and 63)."""
    by_lanes = replace(CLAIM, by_lanes=True)
    cheap, _ = alone.cost_after(by_lanes, lambda claimed: AFTER_A_CLAIM[name](claimed.jobs))

    dear, _ = million.cost_after(by_lanes, lambda claimed: AFTER_A_CLAIM[name](claimed.jobs))

    # What the tests before it have undone is still in the index of held leases.
    assert dear <= 2 * cheap + 200


@pytest.mark.parametrize("limit", [1, 3, 9, 11, 2_000])
def test_a_claim_never_takes_more_than_its_limit(limit: int) -> None:
    own = Crowd({"type": "mail"}, count=1_500)

    with table(own, own.count) as one:
        _, from_the_head = one.cost(replace(CLAIM, limit=limit))
        _, by_lanes = one.cost(replace(CLAIM, limit=limit, by_lanes=True))

    assert len(from_the_head.jobs) == len(by_lanes.jobs) == min(limit, 1_500 + WANTED)
    assert [job.id for job in from_the_head.jobs] == [job.id for job in by_lanes.jobs]


@pytest.mark.parametrize("by_lanes", [False, True], ids=["from the head", "by lanes"])
@pytest.mark.parametrize("switch", ["nothing", *SWITCHES, "indexscan", "sort"])
def test_it_takes_the_first_five_whatever_is_switched_off(
    switch: str, by_lanes: bool, postgres_url: str
) -> None:
    """Some planners ran the choice once a row, and took all two hundred (fault 59)."""
    store = PostgresStore(postgres_url)
    made = [job.id for job in store.run(EnqueueMany([NewJob("mail", "{}")] * 200))]
    off = "" if switch == "nothing" else f"?options=-c%20enable_{switch}%3Doff"
    picky = PostgresStore(f"{postgres_url}{off}")
    claim = Claim(worker_id="w1", limit=5, types=("mail",), by_lanes=by_lanes)

    for start in range(0, 40, 5):
        # Often enough that the server plans for any values as well.
        assert [job.id for job in picky.run(claim).jobs] == made[start : start + 5]

    assert running(store) == made[:40]
    picky.close()
    store.close()


@pytest.mark.parametrize("by_lanes", [False, True], ids=["from the head", "by lanes"])
@pytest.mark.parametrize("switch", ["nothing", "hashjoin", "mergejoin", "nestloop"])
def test_two_at_once_take_five_each_and_no_job_twice(
    switch: str, by_lanes: bool, postgres_url: str
) -> None:
    store = PostgresStore(postgres_url)
    made = [job.id for job in store.run(EnqueueMany([NewJob("mail", "{}")] * 200))]
    off = "" if switch == "nothing" else f"?options=-c%20enable_{switch}%3Doff"
    claimers = [PostgresStore(f"{postgres_url}{off}") for _ in range(2)]
    together = threading.Barrier(2)

    def claims(number: int) -> list[list[int]]:
        claim = Claim(worker_id=f"w{number}", limit=5, types=("mail",), by_lanes=by_lanes)
        batches = []
        for _ in range(10):
            together.wait(20)
            batches.append([job.id for job in claimers[number].run(claim).jobs])
        return batches

    with ThreadPoolExecutor(2) as pool:
        batches = [batch for each in pool.map(claims, range(2)) for batch in each]

    assert {len(batch) for batch in batches} == {5}
    assert all(batch == sorted(batch) for batch in batches)
    assert sorted(job_id for batch in batches for job_id in batch) == running(store)
    assert running(store) == made[:100]
    for each in (store, *claimers):
        each.close()


def ended(job: Job, outcome: Outcome) -> Settlement:
    return Settlement(held(job), settle(outcome))


def running(store: PostgresStore) -> list[int]:
    found = databases.ask(store, "SELECT id FROM yaoki.jobs WHERE status = 'running' ORDER BY id")
    return [job_id for (job_id,) in found]


@contextmanager
def crowded(crowd: Crowd, alone: Session) -> Iterator[Crowded]:
    with ExitStack() as tables:
        some = tables.enter_context(table(crowd, crowd.some))
        full = tables.enter_context(table(crowd, MANY))
        yield Crowded(crowd.claim, alone, some, full)


@contextmanager
def table(crowd: Crowd, count: int) -> Iterator[Session]:
    """A table with so much of a crowd, and behind it just the jobs that are wanted."""
    with postgres.fresh_database() as url:
        store = PostgresStore(url)
        if count:
            databases.insert_rows(store, count, NOW, **crowd.columns)
            databases.execute_all(store, crowd.then)
            databases.execute_all(store, ["VACUUM yaoki.jobs"] if crowd.then else [])
        databases.insert_rows(store, WANTED, NOW, type="mail", queue="mail", run_at=NOW + 1)
        with session(url, lambda: NOW + 100) as one:
            yield one


def assert_by_lanes_costs_the_same(tables: Crowded) -> None:
    by_lanes = replace(tables.claim, by_lanes=True)
    cheap, _ = tables.alone.cost(by_lanes)

    dear, claimed = tables.full.cost(by_lanes)

    assert_the_wanted_ones(claimed)
    assert dear <= look(tables.full) + 2 * cheap


def look(table: Session) -> int:
    """What a look at each priority that has jobs costs, at most 201 of them: part of a claim."""
    blocks, _ = table.cost(Look())
    return blocks
