"""Renewed leases stay where they are, and entries that nobody may clear away are walked past."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.store.postgres.blocks import Session, session
from tests.support import databases
from yaoki.core.job import Job
from yaoki.core.outcomes import Completed, settle
from yaoki.core.said import NewJob
from yaoki.store.ops.claims import Claim, Places
from yaoki.store.ops.jobs import EnqueueMany
from yaoki.store.ops.settling import Exchange, Held, Settlement
from yaoki.store.ops.upkeep import KeepAlive, WorkerRow
from yaoki.store.postgres.statements import BEGIN
from yaoki.store.postgres.store import PostgresStore

WORKER = WorkerRow("w1", "host", 1, "0", None, "[]", 10, "working", 60_000_000)
CLAIM = Claim(worker_id="w1", limit=500, types=("mail",))

UPDATED = """
SELECT
    pg_stat_get_xact_tuples_updated('yaoki.{0}'::regclass),
    pg_stat_get_xact_tuples_hot_updated('yaoki.{0}'::regclass)
"""


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    """With a table that nobody vacuums meanwhile."""
    opened = PostgresStore(postgres_url)
    databases.ask(opened, "ALTER TABLE yaoki.jobs SET (autovacuum_enabled = false)")
    yield opened
    opened.close()


@pytest.mark.parametrize("payload", ["{}", '{"text":"%s"}' % ("x" * 500)], ids=["small", "wide"])
@pytest.mark.parametrize("at_once", [10, 500])
def test_a_renewed_lease_stays_where_it_is(
    at_once: int, payload: str, store: PostgresStore
) -> None:
    """Else each renewal of each running job leaves an entry in two indexes (fault 60)."""
    store.run(EnqueueMany([NewJob("mail", payload)] * 3_000))
    held = [Held(job.id, job.lease or 0) for job in claimed_by_and_by(store)]

    with session(store.url) as one:
        counts = [
            renewed(one, held[start : start + at_once])
            for _ in range(3)
            for start in range(0, 500 if at_once < 100 else len(held), at_once)
        ]

    rows, in_place = (sum(column) for column in zip(*counts, strict=True))
    assert rows >= 1_500
    assert in_place > 0.9 * rows


def test_a_worker_that_says_that_it_lives_rewrites_its_row_in_place(store: PostgresStore) -> None:
    with session(store.url) as one:
        store.run(KeepAlive(WORKER, []))
        one.line.execute(BEGIN)
        before = updated(one, "workers")
        for _ in range(20):
            one.run(KeepAlive(WORKER, []))
        after = updated(one, "workers")

    assert [new - old for old, new in zip(before, after, strict=True)] == [20, 20]


def test_a_snapshot_that_somebody_holds_makes_no_claim_dearer(store: PostgresStore) -> None:
    """What was claimed since stays in the index; a worker goes on behind it (fault 60)."""
    store.run(EnqueueMany([NewJob("mail", "{}")] * 10_100))
    ten = replace(CLAIM, limit=10)

    with session(store.url) as one, held_snapshot(store):
        at_first, _ = one.cost(ten)
        after: Places = {}
        done: list[Settlement] = []
        for _ in range(20):
            claimed = store.run(Exchange(done, replace(CLAIM, after=after))).claimed
            assert claimed is not None
            after = claimed.after
            done = [completed(job) for job in claimed.jobs]
            assert len(done) == 500
        from_the_head, _ = one.cost(ten)
        behind, found = one.cost(replace(ten, after=after))

    assert len(found.jobs) == 10
    assert from_the_head > 2 * at_first
    assert behind < 1.2 * at_first


def test_a_long_lane_of_what_was_claimed_is_walked_past_once_and_not_job_by_job(
    store: PostgresStore,
) -> None:
    """Without a place to go on from: a block a page of them, and not one for each."""
    store.run(EnqueueMany([NewJob("mail", "{}")] * 5_000))

    with session(store.url) as one, held_snapshot(store):
        while store.run(CLAIM).jobs:
            pass
        store.run(EnqueueMany([NewJob("mail", "{}")] * 10))
        from_the_head, found = one.cost(replace(CLAIM, limit=10))

    assert len(found.jobs) == 10
    assert from_the_head < 5_000


@contextmanager
def held_snapshot(store: PostgresStore) -> Iterator[None]:
    """Somebody reads, and never ends his transaction."""
    with databases.postgres_connection(store) as reader:
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM yaoki.jobs")
        yield


def claimed_by_and_by(store: PostgresStore) -> list[Job]:
    jobs: list[Job] = []
    while batch := store.run(CLAIM).jobs:
        jobs += batch
    return jobs


def completed(job: Job) -> Settlement:
    return Settlement(Held(job.id, job.lease or 0), settle(Completed("null")))


def renewed(one: Session, held: Sequence[Held]) -> tuple[int, int]:
    """How many rows a renewal updates, and how many of them in their place."""
    one.line.execute(BEGIN)
    before = updated(one, "jobs")
    assert one.run(KeepAlive(WORKER, held)).lost == frozenset()
    after = updated(one, "jobs")
    one.line.execute("COMMIT")
    return after[0] - before[0], after[1] - before[1]


def updated(one: Session, table: str) -> tuple[int, int]:
    """How many rows this session has updated lately, and how many of them in their place."""
    [found] = one.line.execute(UPDATED.format(table).encode()).fetchall()
    return found
