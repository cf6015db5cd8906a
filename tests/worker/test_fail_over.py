"""The primary is killed and its standby promoted: workers go on there, and nothing is lost."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from servers.postgres import Server
from tests.store.postgres.support_trouble import binaries, start_server
from tests.support import postgres
from tests.support.eventually import eventually
from tests.support.standbys import Standby
from tests.worker.support_workers import StartWorker
from yaoki import JobContext, RetryPolicy, StoreError, Yaoki, fixed

OFTEN = RetryPolicy(max_attempts=50, backoff=fixed(0))


@pytest.fixture
def primary() -> Iterator[Server]:
    made = start_server()
    yield made
    made.delete()


@pytest.fixture
def standby(primary: Server) -> Iterator[Standby]:
    made = Standby(primary, binaries(), **postgres.FAST)
    yield made
    made.delete()


@pytest.fixture
def app(primary: Server, standby: Standby) -> Iterator[Yaoki]:
    """The workers'; its URL names both."""
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    made = Yaoki(f"postgresql://postgres@{hosts}/postgres?target_session_attrs=read-write")
    yield made
    made.close()


@pytest.fixture
def outside(app: Yaoki) -> Iterator[Yaoki]:
    """Another program on the same queue."""
    made = Yaoki(app.url)
    yield made
    made.close()


class Ledger:
    """What was promised and what was done, kept outside of the database."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.completed: set[int] = set()
        self.runs: list[tuple[int, int]] = []
        """The job and the token of each attempt, in order."""
        self.enough = threading.Event()

    def enqueue(self, app: Yaoki) -> None:
        """Job after job, each said again by its key until it is acknowledged."""
        number = 0
        while not self.enough.is_set():
            kind = ("plain", "async", "effect")[number % 3]
            with suppress(StoreError):
                self.acknowledged.add(app.enqueue(kind, idempotency_key=f"k{number}").id)
                number += 1
            self.enough.wait(0.01)

    def watch(self, app: Yaoki) -> None:
        """See what is recorded as completed."""
        while not self.enough.wait(0.05):
            with suppress(StoreError):
                self.completed |= {job.id for job in app.jobs(status="completed", limit=1000)}


@pytest.mark.slow
@pytest.mark.crash
def test_nothing_acknowledged_is_lost_and_nothing_recorded_runs_twice(
    primary: Server, standby: Standby, app: Yaoki, outside: Yaoki, start_worker: StartWorker
) -> None:
    ledger = Ledger()

    @app.job("plain", retry=OFTEN)
    def plain(ctx: JobContext) -> None:
        ledger.runs.append((ctx.job.id, ctx.job.lease or 0))

    @app.job("async", retry=OFTEN)
    async def coroutine(ctx: JobContext) -> None:
        ledger.runs.append((ctx.job.id, ctx.job.lease or 0))
        await asyncio.sleep(0.01)

    @app.job("effect", retry=OFTEN)
    def effect(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES (%s)", [ctx.job.id])

    app.migrate()
    with psycopg.connect(primary.url) as there:
        there.execute("CREATE TABLE effects (id bigint NOT NULL)")
    workers = [start_worker(concurrency=4, lease_for=6) for _ in range(2)]
    threads = [
        threading.Thread(target=act, args=[outside], daemon=True)
        for act in (ledger.enqueue, ledger.watch)
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: len(ledger.completed) > 50, within=20)
    primary.stop("KILL")
    loops = [worker.worker.exchanger for worker in workers]
    eventually(lambda: all(loop.failures > 2 for loop in loops), within=20)
    before, newest = len(ledger.runs), max(ledger.acknowledged)
    standby.promote()
    promoted = time.monotonic()
    eventually(lambda: len(ledger.runs) > before + 20, within=20)
    back = time.monotonic()
    eventually(lambda: len(ledger.acknowledged) > 200, within=30)
    ledger.enough.set()
    for thread in threads:
        thread.join(20)
    eventually(lambda: not (waiting(outside, "pending") or waiting(outside, "running")), within=20)
    quick = [pickup(outside) for _ in range(9)]

    jobs = {job.id: job for job in outside.jobs(limit=1000)}
    assert ledger.acknowledged <= jobs.keys()
    assert ledger.completed <= jobs.keys()
    assert {job.status for job in jobs.values()} == {"completed"}
    assert {job.rescues for job in jobs.values()} == {0}
    ran = [job_id for job_id, _ in ledger.runs]
    assert len(ran) == len(set(ran)), "nothing that had run was run again"
    with psycopg.connect(standby.url) as there:
        effects = there.execute("SELECT id, count(*) FROM effects GROUP BY id").fetchall()
    assert {times for _, times in effects} == {1}
    assert {job_id for job_id, _ in effects} == {
        job.id for job in jobs.values() if job.type == "effect"
    }
    tokens = [token for job_id, token in ledger.runs if job_id > newest]
    assert min(tokens) > max(token for _, token in ledger.runs[:before]), "none comes again"
    assert sorted(quick)[4] < 0.2, "LISTEN works on the new primary"
    assert back - promoted < 5 + 1


def waiting(outside: Yaoki, status: str) -> int:
    return len(list(outside.jobs(status=status)))


def pickup(outside: Yaoki) -> float:
    """Seconds until a job was claimed, by the database's clock."""
    job = outside.wait(outside.enqueue("plain"), timeout=20)
    assert job.claimed_at is not None
    return (job.claimed_at - job.created_at).total_seconds()
