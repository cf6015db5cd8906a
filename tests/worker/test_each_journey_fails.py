"""A worker's life in which each journey to the server is broken, on the wire.

With YAOKI_EVERY_WAY=1 each is broken in every way, which takes a minute.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.databases import ask, assert_intact
from tests.support.eventually import eventually
from tests.support.saboteur import Saboteur, sabotaged
from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker
from yaoki import Job, JobContext, RetryPolicy, Yaoki, fixed

EVERY_WAY = bool(os.environ.get("YAOKI_EVERY_WAY"))
OFTEN = RetryPolicy(max_attempts=50, backoff=fixed(0))


@pytest.fixture
def saboteur(postgres_url: str) -> Iterator[Saboteur]:
    with sabotaged(postgres_url, every_way=EVERY_WAY) as made:
        yield made


@pytest.fixture
def app(saboteur: Saboteur) -> Iterator[Yaoki]:
    """The worker's, whose journeys fail."""
    made = Yaoki(saboteur.url)
    yield made
    made.close()


@pytest.fixture
def outside(postgres_url: str) -> Iterator[Yaoki]:
    """Others, whose journeys do not."""
    made = Yaoki(postgres_url)
    yield made
    made.close()


class Life:
    """Jobs of all sorts, and what becomes of them."""

    def __init__(self, app: Yaoki, outside: Yaoki) -> None:
        self._outside = outside
        self.runs: Counter[int] = Counter()
        self.ended: list[Job] = []

        @app.job("quick", retry=OFTEN)
        def quick(ctx: JobContext) -> None:
            self.runs[ctx.job.id] += 1

        @app.job("fails once", retry=OFTEN)
        async def fails(ctx: JobContext) -> None:
            self.runs[ctx.job.id] += 1
            await asyncio.sleep(0.01)
            if ctx.attempt == 1:
                raise ValueError("the first time")

        @app.job("progresses", retry=OFTEN)
        def progresses(ctx: JobContext) -> None:
            self.runs[ctx.job.id] += 1
            ctx.progress(1, 2)
            ctx.wait_stopping(0.4)

        @app.job("effect", retry=OFTEN)
        def effect(ctx: JobContext) -> None:
            with ctx.transaction() as tx:
                tx.execute(*add(app, f"{ctx.job.id:05}"))

        @app.job("is cancelled", retry=OFTEN)
        def is_cancelled(ctx: JobContext) -> None:
            self.runs[ctx.job.id] += 1
            ctx.wait_stopping(30)

    def a_round(self) -> None:
        """Some of each, and one that is cancelled while it runs."""
        told = self._outside.enqueue("is cancelled")
        made = self._outside.enqueue_many("progresses", [{}])
        for kind in ("quick", "fails once", "effect"):
            made += self._outside.enqueue_many(kind, [{}] * 3)
        eventually(lambda: self.runs[told.id], within=30)
        self._outside.cancel(told)
        self.ended += [self._outside.wait(job, timeout=60) for job in [told, *made]]


END_LISTENERS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE '%LISTEN%' AND pid <> pg_backend_pid()
"""


@pytest.mark.usefixtures("noted")
@pytest.mark.timeout(240)
def test_a_worker_goes_on_whatever_becomes_of_a_journey(
    app: Yaoki,
    outside: Yaoki,
    saboteur: Saboteur,
    start_worker: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is lost, and nothing that had run is run again, though half of the answers were."""
    monkeypatch.setattr("yaoki.worker.by_name.EVERY", 0.3)
    monkeypatch.setattr("yaoki.worker.by_name.ADOPT_EVERY", 0.3)
    monkeypatch.setattr("yaoki.loop.LONGEST_PAUSE", 0.2)
    life = Life(app, outside)
    working = start_worker(lease_for=10, concurrency=8)
    eventually(outside.workers)
    outside.enqueue("orphan")
    [orphan] = outside.claim("silent", types=["orphan"], lease_for=1)
    saboteur.begin()
    broken = [0]
    while broken[-1] > broken[-3:][0] or len(broken) < 5:
        life.a_round()
        ask(outside.store, END_LISTENERS)
        broken.append(saboteur.met.total())
    eventually(lambda: outside.get(orphan).status == "pending", within=30)
    saboteur.end()
    ended = life.ended
    parts = [working.worker.keeper, working.worker.exchanger, working.worker.rescuer]
    parts += [working.worker.by_name]
    eventually(lambda: not any(part.failures for part in parts), within=20)

    assert broken[-1] > (150 if EVERY_WAY else 60)
    for words in ("LISTEN", "COMMIT", "pg_notify", "workers", "lease_expires_at", "progress"):
        assert words in saboteur.seen
    assert {job.status for job in ended if job.type != "is cancelled"} == {"completed"}
    assert {job.status for job in ended if job.type == "is cancelled"} == {"cancelled"}
    assert {(job.type, life.runs[job.id]) for job in ended} == {
        ("quick", 1),
        ("fails once", 2),
        ("progresses", 1),
        ("effect", 0),
        ("is cancelled", 1),
    }
    assert notes(outside) == sorted(f"{job.id:05}" for job in ended if job.type == "effect")
    assert_intact(outside.store)
