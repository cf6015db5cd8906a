"""One worker's life in which every statement of every loop fails once, on each store."""

import itertools
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg
import pytest

from tests.support.databases import ask, assert_intact
from tests.support.dialects import on_postgres
from tests.support.eventually import eventually
from tests.support.faults import COMMIT, Faults, Point, When, faulty_store
from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker, Working, stays
from yaoki import (
    Job,
    JobContext,
    RetryPolicy,
    Snooze,
    StoreUnavailable,
    WrongStatus,
    Yaoki,
    fixed,
)

OFTEN = RetryPolicy(max_attempts=50, backoff=fixed(0))


def by_sqlite(code: int, text: str) -> Callable[[], Exception]:
    def make() -> Exception:
        error = sqlite3.OperationalError(text)
        error.sqlite_errorcode = code
        return error

    return make


ON_SQLITE: list[Callable[[], Exception]] = [
    by_sqlite(sqlite3.SQLITE_BUSY, "database is locked"),
    by_sqlite(sqlite3.SQLITE_IOERR_WRITE, "disk I/O error"),
    by_sqlite(sqlite3.SQLITE_FULL, "database or disk is full"),
    by_sqlite(sqlite3.SQLITE_ERROR, "SQL logic error"),
    lambda: RuntimeError("nobody expects this"),
]
ON_POSTGRES: list[Callable[[], Exception]] = [
    lambda: psycopg.OperationalError("server closed the connection unexpectedly"),
    lambda: psycopg.errors.AdminShutdown("terminating connection due to administrator command"),
    lambda: psycopg.errors.IdleInTransactionSessionTimeout("terminating connection"),
    lambda: psycopg.InterfaceError("the connection is closed"),
    lambda: RuntimeError("nobody expects this"),
]


@pytest.fixture(params=["before", "behind", "committed"])
def when(request: pytest.FixtureRequest) -> When:
    said: When = request.param
    return said


@pytest.fixture
def faults(any_url: str, when: When) -> Faults:
    kinds = itertools.cycle(ON_POSTGRES if on_postgres(any_url) else ON_SQLITE)
    if when == "committed":
        return Faults(lambda: StoreUnavailable("the answer was lost"), when)
    return Faults(lambda: next(kinds)(), when)


@pytest.fixture
def app(any_url: str, faults: Faults) -> Iterator[Yaoki]:
    """The worker's: every statement of its store fails once."""
    made = Yaoki(any_url)
    made.store = faulty_store(any_url, faults)
    yield made
    faults.end()
    made.close()


@pytest.fixture
def reliable(app: Yaoki) -> Iterator[Yaoki]:
    """The same queue, for those who enqueue and look."""
    made = Yaoki(app.url)
    yield made
    made.close()


SHORT_LEASE = """
    UPDATE yaoki.jobs SET lease_for = 200000, lease_expires_at = claimed_at + 200000
    WHERE worker_id = 'silent' AND lease % 2 = 1
"""


class Life:
    """Jobs of all sorts, so that a worker does all that it can."""

    def __init__(self, app: Yaoki, reliable: Yaoki) -> None:
        self.app, self.reliable = app, reliable
        self.runs: Counter[int] = Counter()
        self.jobs: list[Job] = []
        self._declare(app)

    def _declare(self, app: Yaoki) -> None:
        @app.job("quick", retry=OFTEN)
        def quick(ctx: JobContext) -> int:
            self.runs[ctx.job.id] += 1
            ctx.log("at once")
            return ctx.job.id

        @app.job("async", retry=OFTEN)
        async def coroutine(ctx: JobContext) -> int:
            self.runs[ctx.job.id] += 1
            await ctx.aprogress(1, 1)
            return ctx.job.id

        @app.job("fails once", retry=OFTEN)
        def fails(ctx: JobContext) -> int:
            self.runs[ctx.job.id] += 1
            if self.runs[ctx.job.id] == 1:
                raise ValueError("the first time")
            return ctx.job.id

        @app.job("snoozes once", retry=OFTEN)
        def snoozes(ctx: JobContext) -> int:
            self.runs[ctx.job.id] += 1
            if self.runs[ctx.job.id] == 1:
                raise Snooze(0.01)
            return ctx.job.id

        @app.job("progresses", retry=OFTEN)
        def progresses(ctx: JobContext) -> int:
            self.runs[ctx.job.id] += 1
            ctx.progress(1, 2)
            ctx.log("half of it")
            ctx.wait_stopping(0.3)
            ctx.progress(2, 2)
            return ctx.job.id

        @app.job("effect", retry=OFTEN)
        def effect(ctx: JobContext) -> None:
            self.runs[ctx.job.id] += 1
            with ctx.transaction() as tx:
                tx.execute(*add(app, f"{ctx.job.id:05}"))
                tx.result = ctx.job.id

        @app.job("is cancelled", retry=OFTEN)
        def cancelled(ctx: JobContext) -> None:
            self.runs[ctx.job.id] += 1
            ctx.wait_stopping(20)

    def add(self) -> None:
        """One of each sort, one of a worker that is dead, and cancel those that can be told."""
        kinds = ("quick", "async", "fails once", "snoozes once", "progresses", "effect")
        made = [self.reliable.enqueue(kind) for kind in kinds]
        self.reliable.enqueue("quick", priority=100)
        orphans = self.reliable.claim("silent", types=["quick"], limit=1)
        ask(self.reliable.store, SHORT_LEASE)
        told = [job for job in self.jobs if job.type == "is cancelled"]
        for job in told:
            if self.runs[job.id] == 1:
                self.runs[job.id] += 1
                self.reliable.cancel(job)
        if len(told) < 6:
            made.append(self.reliable.enqueue("is cancelled"))
        self.jobs += [*made, *orphans]

    def live_on(self, faults: Faults, working: Working, wanted: set[Point]) -> None:
        """Until there is no point left that has not failed."""
        calm, end = 0, time.monotonic() + 60
        while calm < 4 and time.monotonic() < end:
            self.add()
            # What it does every ten seconds, it does now.
            working.worker.by_name._adopt_at = 0.0
            working.worker.by_name.wake()
            stays(lambda: True, during=0.1)
            calm = 0 if faults.open or wanted - faults.failed else calm + 1

    def end(self) -> list[Job]:
        """All jobs, when they have ended."""
        for job in self.jobs:
            if job.type == "is cancelled" and not self.reliable.get(job).is_final:
                eventually(lambda job=job: self.runs[job.id], within=20)  # type: ignore[misc]
                with suppress(WrongStatus):
                    self.reliable.cancel(job)
        return [self.reliable.wait(job, timeout=30) for job in self.jobs]


EXPECTED = {
    "Exchange": {"tiers", "due", "claim", "complete", "settle", COMMIT},
    "Look": {"tiers"},
    "KeepAlive": {"beat", "leases_of", "renew", "held_by", COMMIT},
    "Leases": {"lease_page"},
    "CanWrite": {"can_write"},
    "Rescue": {"held_rows", "settle", COMMIT},
    "Cancelling": {"cancelling"},
    "DueTypes": {"pending_types"},
    "Report": {"progress"},
}
"""Some of what a worker does, so that its life is one; but whatever it asks, fails."""

IN_HANDLERS = {"StillHeld": {"leases_of"}, "SettleOne": {"complete"}}


def expected(when: When) -> set[Point]:
    if when == "committed":
        return {Point(operation, COMMIT) for operation in EXPECTED}
    return {
        Point(operation, statement)
        for operation, statements in (EXPECTED | IN_HANDLERS).items()
        for statement in statements - ({COMMIT} if when == "behind" else set())
    }


@pytest.mark.usefixtures("noted")
def test_a_worker_survives_the_failure_of_each_and_loses_nothing(
    app: Yaoki, reliable: Yaoki, faults: Faults, when: When, start_worker: StartWorker
) -> None:
    life = Life(app, reliable)
    working = start_worker(lease_for=3, concurrency=8)
    eventually(reliable.workers, within=10)
    faults.begin()
    life.live_on(faults, working, expected(when))
    still_open, failed = faults.open, faults.failed
    faults.end()
    ended = life.end()
    ending = working.drain()

    assert {job.status for job in ended if job.type != "is cancelled"} == {"completed"}
    assert {job.status for job in ended if job.type == "is cancelled"} == {"cancelled"}
    # Whose handlers ask nothing of the database ran once, and have their results.
    quick = [job for job in ended if job.type == "quick" and not job.rescues]
    assert {(job.attempt, life.runs[job.id]) for job in quick} == {(1, 1)}
    assert [job.id for job in quick if job.result != job.id] == []
    assert ending.exit_code == 0
    assert notes(reliable) == sorted(f"{job.id:05}" for job in ended if job.type == "effect")
    assert still_open == frozenset()
    assert expected(when) - failed == set()
    assert_intact(reliable.store)
