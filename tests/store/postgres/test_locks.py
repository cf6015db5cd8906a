"""Who waits for whose lock: hardly anybody, and never two for each other."""

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress

import psycopg
import pytest

from tests.support import postgres
from tests.support.acts import BOOM, claim, claim_one, end, held, ids, make, publish, read
from tests.support.databases import ask, assert_intact
from tests.support.eventually import eventually
from yaoki import JobNotFound, LeaseLost, StoreBusy, WrongStatus
from yaoki.core.definition import Definition
from yaoki.core.job import AT, Job
from yaoki.core.outcomes import Completed, Failed, Outcome, Released, Retried, Snoozed, settle
from yaoki.core.said import NewJob
from yaoki.store.ops.claims import Claim
from yaoki.store.ops.jobs import Cancel, Discard, EnqueueMany, Retry, RetryFailed
from yaoki.store.ops.listing import ListJobs
from yaoki.store.ops.settling import Exchange, Settle, Settlement
from yaoki.store.ops.upkeep import KeepAlive, Leases, MarkStarted, Rescue, WorkerRow
from yaoki.store.ops.workers import Publish
from yaoki.store.postgres.store import PostgresStore

WORKER = WorkerRow("w1", "host", 1, "0", None, "[]", 10, "working", 60_000_000)
AT_ONCE = "options=-c%20lock_timeout%3D300"
"""Whoever waits for a lock longer than 0.3 s fails: those who never wait do not notice."""

SOON = "options=-c%20deadlock_timeout%3D50"
"""A server looks for deadlocks only where somebody has waited for so many milliseconds."""


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(f"{postgres_url}?wake=poll&{AT_ONCE}")
    yield opened
    opened.close()


@contextmanager
def in_somebodys_transaction(store: PostgresStore, *jobs: Job) -> Iterator[psycopg.Connection]:
    """Somebody cancels them, together with work of his own, and is not done yet."""
    with closing(psycopg.connect(postgres.for_libpq(store.url))) as connection:
        with store.on(connection) as run:
            for job in jobs:
                run(Cancel(job.id))
        yield connection


def settlement(job: Job, outcome: Outcome | None = None) -> Settlement:
    return Settlement(held(job), settle(outcome or Completed("null")))


# What a row does that somebody's open transaction has locked


def test_a_claim_passes_it_over_and_takes_the_next(store: PostgresStore) -> None:
    first, second, third = (make(store) for _ in range(3))

    with in_somebodys_transaction(store, first) as somebody:
        assert ids(claim(store, 2)) == [second.id, third.id]
        assert claim(store) == []
        somebody.rollback()

    assert ids(claim(store)) == [first.id]


def test_a_claim_by_lanes_passes_it_over_and_takes_the_next(store: PostgresStore) -> None:
    jobs = [make(store) for _ in range(5)]

    with in_somebodys_transaction(store, *jobs[:3]):
        assert ids(claim(store, 2, types=("mail",), by_lanes=True)) == [jobs[3].id, jobs[4].id]


def test_a_claim_does_not_take_what_was_cancelled_in_the_end(store: PostgresStore) -> None:
    job = make(store)

    with in_somebodys_transaction(store, job) as somebody:
        assert claim(store) == []
        somebody.commit()

    assert claim(store) == []
    assert read(store, job).status == "cancelled"


def test_leases_of_other_jobs_are_renewed_and_its_own_is_not_given_up(
    store: PostgresStore,
) -> None:
    make(store)
    make(store)
    locked, free = claim(store, 2)
    before = read(store, free).lease_expires_at

    with in_somebodys_transaction(store, locked):
        kept = store.run(KeepAlive(WORKER, [held(locked), held(free)]))

    assert kept.lost == frozenset()
    after = read(store, free).lease_expires_at
    assert before is not None
    assert after is not None
    assert after > before


def test_an_exchange_records_the_others_and_that_one_later(store: PostgresStore) -> None:
    for _ in range(3):
        make(store)
    locked, failed, done = claim(store, 3)
    extra = make(store)
    settlements = [settlement(locked), settlement(failed, Retried(BOOM, 0)), settlement(done)]

    with in_somebodys_transaction(store, locked) as somebody:
        first = store.run(Exchange(settlements, Claim(worker_id="w1", limit=5)))
        somebody.rollback()
    second = store.run(Exchange(settlements[:1]))

    assert (first.refused, first.locked) == (frozenset(), {locked.id})
    assert first.claimed is not None
    assert sorted(ids(first.claimed.jobs)) == [failed.id, extra.id]
    assert (second.refused, second.locked) == (frozenset(), frozenset())
    assert read(store, locked).status == "completed"


def test_an_exchange_records_it_as_cancelled_if_it_was(store: PostgresStore) -> None:
    make(store)
    job = claim_one(store)

    with in_somebodys_transaction(store, job) as somebody:
        assert store.run(Exchange([settlement(job)])).locked == {job.id}
        somebody.commit()
    store.run(Exchange([settlement(job)]))

    assert read(store, job).status == "cancelled"


def test_a_lost_lease_is_refused_also_while_the_row_is_locked(store: PostgresStore) -> None:
    make(store)
    late = claim_one(store)
    end(store, late, Released("shutdown"))
    again = claim_one(store)

    with in_somebodys_transaction(store, again):
        exchanged = store.run(Exchange([settlement(late)]))

    assert (exchanged.refused, exchanged.locked) == ({late.id}, frozenset())


@pytest.mark.parametrize("seen", [True, False], ids=["after a second sight", "at once"])
def test_a_rescue_passes_it_over(seen: bool, store: PostgresStore) -> None:
    """Whoever has it locked lives."""
    make(store)
    make(store)
    locked, free = claim(store, 2, lease_for=1)
    leases = eventually(lambda: [one for one in store.run(Leases()).suspects if one.expired])

    with in_somebodys_transaction(store, locked):
        rescued = store.run(Rescue(leases if seen else None))

    assert [one.id for one in rescued] == [free.id]
    assert read(store, locked).status == "running"


def test_a_note_that_others_have_begun_does_not_wait_for_it(store: PostgresStore) -> None:
    make(store)
    make(store)
    locked, free = claim(store, 2, slots=0)

    with in_somebodys_transaction(store, locked):
        store.run(MarkStarted([(held(locked), 0), (held(free), 0)]))

    started = [read(store, job)._row[AT["started_at"]] for job in (locked, free)]
    assert [at is None for at in started] == [True, False]


def test_whoever_must_wait_for_it_is_told_after_his_lock_timeout(store: PostgresStore) -> None:
    make(store)
    job = claim_one(store)

    with in_somebodys_transaction(store, job), pytest.raises(StoreBusy, match="locked"):
        store.run(Settle([settlement(job)]))

    assert end(store, job, Completed()).status == "completed"


# Everybody at once

SECONDS = 4.0
KINDS = ("mail", "image", "report")
KEYS = [f"key {number}" for number in range(60)]
OUTCOMES: list[Outcome] = [
    Completed("null"),
    Completed("null"),
    Retried(BOOM, 0),
    Failed(BOOM),
    Released("shutdown"),
    Snoozed(0, "later"),
]


class Crowd:
    """Owners, rescuers, operators and producers, all on the same hundred jobs."""

    def __init__(self, store: PostgresStore) -> None:
        self.store, self.kept = store, list[Job]()
        self.acts = [self.own] * 4 + [self.renew, self.rescue, self.operate, self.operate]
        self.acts += [self.produce, self.produce, self.publish, self.publish]

    def own(self, chance: random.Random) -> None:
        lease_for = chance.choice([1, 60_000_000])
        mine = claim(self.store, chance.randint(1, 12), lease_for=lease_for)
        self.kept[:] = [*self.kept[-30:], *mine]
        settlements = [settlement(job, chance.choice(OUTCOMES)) for job in mine]
        chance.shuffle(settlements)
        more = Claim(worker_id="w2", limit=5, by_lanes=chance.random() < 0.3)
        record = chance.choice([Settle(settlements), Exchange(settlements, more)])
        self.store.run(record)

    def renew(self, chance: random.Random) -> None:
        kept = list(self.kept)
        some = [held(job) for job in chance.sample(kept, min(len(kept), 15))]
        self.store.run(KeepAlive(WORKER, some))
        self.store.run(MarkStarted([(one, 0) for one in some]))

    def rescue(self, chance: random.Random) -> None:
        seen = self.store.run(Leases()).suspects
        self.store.run(Rescue(seen if chance.random() < 0.5 else None))

    def operate(self, chance: random.Random) -> None:
        there = ids(self.store.run(ListJobs(limit=100)))
        for job_id in chance.sample(there, min(len(there), 5)):
            with suppress(WrongStatus, JobNotFound):
                self.store.run(chance.choice([Cancel, Retry, Discard])(job_id))
        self.store.run(RetryFailed(limit=50))

    def produce(self, chance: random.Random) -> None:
        jobs = [NewJob("mail", "{}", idempotency_key=key) for key in chance.sample(KEYS, 20)]
        jobs += [NewJob(chance.choice(KINDS), "{}") for _ in range(3)]
        chance.shuffle(jobs)
        on_existing = chance.choice(["return", "retry"])
        self.store.run(EnqueueMany(jobs, on_existing=on_existing))

    def publish(self, chance: random.Random) -> None:
        definitions = [Definition(kind, queue=chance.choice(["default", kind])) for kind in KINDS]
        chance.shuffle(definitions)
        self.store.run(Publish(definitions, "w1"))
        # As if nobody had said anything of it yet: the next one adopts its jobs.
        forget = "DELETE FROM yaoki.definitions WHERE type = :type"
        ask(self.store, forget, {"type": chance.choice(KINDS)})


def test_who_starts_does_not_wait_for_one_who_was_frozen_while_he_did(
    store: PostgresStore,
) -> None:
    """Found by a chaos run: while one program was stopped in a Publish, no other could begin."""
    publish(store, "mail", queue="slow")
    with closing(psycopg.connect(postgres.for_libpq(store.url))) as frozen:
        frozen.execute("UPDATE yaoki.definitions SET published_by = 'frozen'")

        publish(store, "mail", queue="slow")


def test_nobody_waits_for_somebody_who_waits_for_him(postgres_url: str) -> None:
    """Prunings, promotions and batches in different orders deadlocked (faults 64 and 66)."""
    store = PostgresStore(f"{postgres_url}?pool=20&{SOON}")
    crowd, end_at = Crowd(store), time.monotonic() + SECONDS

    def act(number: int) -> int:
        chance, times = random.Random(number), 0
        while time.monotonic() < end_at:
            with suppress(LeaseLost):
                crowd.acts[number](chance)
            times += 1
        return times

    with ThreadPoolExecutor(len(crowd.acts)) as pool:
        times = list(pool.map(act, range(len(crowd.acts))))
    store.close()

    assert min(times) > 10
    assert deadlocks(store) == 0
    assert_intact(store)


def deadlocks(store: PostgresStore) -> int:
    """Since the database was made; counted when everybody has left it."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    eventually(lambda: ask(store, others) == [(1,)])
    counted = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    [(found,)] = ask(store, counted)
    return int(found)
