"""The job types that run while everything around them breaks."""

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from chaos.ledger import Again, Ledger
from yaoki import GiveUp, JobContext, RetryPolicy, Snooze, Yaoki, fixed

MANY = RetryPolicy(max_attempts=100, backoff=fixed(0.1))
"""For what must complete: no number of kills uses these up."""

ONE = RetryPolicy(max_attempts=1)
"""For what is never to run twice: it fails when its worker is killed."""

FEW = RetryPolicy(max_attempts=3, backoff=fixed(0.1))
"""For what must die."""


@dataclass(frozen=True)
class Kind:
    """How many of a thousand jobs are of this type, and how each of them must end."""

    share: float
    ends: str = "completed"
    """It may also fail if it has one attempt, and something happened in that."""
    seconds: tuple[float, float] | None = None
    """The shortest and the longest that it takes, where that is drawn."""
    times: int | None = None
    """How often it fails first, or how many children it has, at the most, where that is drawn."""


KINDS = {
    "quick": Kind(400),
    "quick-async": Kind(150),
    "slow": Kind(90, seconds=(0.05, 0.6)),
    "slow-async": Kind(90, seconds=(0.05, 0.6)),
    "long": Kind(4, seconds=(2.5, 4.0)),
    "long-async": Kind(4, seconds=(2.5, 4.0)),
    "reports": Kind(30, seconds=(0.05, 1.0)),
    "flaky": Kind(50, times=3),
    "flaky-async": Kind(30, times=3),
    "snoozes": Kind(20, times=3),
    "overruns": Kind(3),
    "overruns-async": Kind(6),
    "effect": Kind(70, seconds=(0.0, 0.05)),
    "effect-async": Kind(30, seconds=(0.0, 0.05)),
    "parent": Kind(20, times=4),
    "parent-async": Kind(10, times=4),
    "parent-together": Kind(10, times=4),
    "isolated": Kind(50, seconds=(0.0, 0.3)),
    "isolated-async": Kind(20, seconds=(0.0, 0.3)),
    "isolated-effect": Kind(20, seconds=(0.0, 0.05)),
    "isolated-overruns": Kind(3),
    "isolated-dies": Kind(5),
    "once": Kind(30, seconds=(0.0, 0.4)),
    "hopeless": Kind(8, "failed"),
    "gives-up": Kind(4, "failed"),
    "poison": Kind(0.6, "failed"),
}
"""By the names of their types."""


LOGS = frozenset({"slow", "long", "isolated"})
"""Those whose attempts write a line with ctx.log before they end."""


def children_of(name: str, times: int) -> list[str]:
    """The names of the jobs that a parent enqueues."""
    return [f"{name}.{number}" for number in range(times)]


class Book:
    """The ledger of the process, if its handlers are to run."""

    def __init__(self, folder: Path | None) -> None:
        self._ledger = None if folder is None else Ledger(folder)

    @property
    def ledger(self) -> Ledger:
        assert self._ledger is not None, "handlers run in workers"
        return self._ledger

    def attempt(self, ctx: JobContext, name: str) -> AbstractContextManager[None]:
        return self.ledger.attempt(ctx, name)


def build(url: str, folder: Path | None = None, *, isolates: bool = True) -> Yaoki:
    """The app; with the folder of a ledger its handlers can run."""
    app, book = Yaoki(url), Book(folder)
    _ordinary(app, book)
    _failing(app, book)
    _with_effects(app, book)
    _parents(app, book)
    _dying(app, book)
    if isolates:
        _isolated(app, book)
    return app


def _token(ctx: JobContext) -> dict[str, object]:
    """As a result it shows which attempt was recorded."""
    return {"lease": ctx.job.lease}


def _working(book: Book) -> tuple[Callable[..., object], Callable[..., object]]:
    """A plain handler and an async one that take a while."""

    def work(ctx: JobContext, name: str, seconds: float) -> dict[str, object]:
        with book.attempt(ctx, name):
            ctx.log(f"attempt {ctx.attempt} works for {seconds} s")
            time.sleep(seconds)
            return _token(ctx)

    async def work_async(ctx: JobContext, name: str, seconds: float) -> dict[str, object]:
        with book.attempt(ctx, name):
            await asyncio.sleep(seconds)
            return _token(ctx)

    return work, work_async


def _ordinary(app: Yaoki, book: Book) -> None:
    @app.job("quick", retry=MANY)
    def quick(ctx: JobContext, name: str) -> dict[str, object]:
        with book.attempt(ctx, name):
            return _token(ctx)

    @app.job("quick-async", retry=MANY)
    async def quick_async(ctx: JobContext, name: str) -> dict[str, object]:
        with book.attempt(ctx, name):
            return _token(ctx)

    work, work_async = _working(book)
    for kind in ("slow", "long"):
        app.job(kind, retry=MANY, queue=kind)(work)
        app.job(f"{kind}-async", retry=MANY, queue=kind)(work_async)

    @app.job("reports", retry=MANY)
    def reports(ctx: JobContext, name: str, seconds: float) -> dict[str, object]:
        with book.attempt(ctx, name):
            for done in range(4):
                ctx.progress(done, 4)
                time.sleep(seconds / 4)
            return _token(ctx)

    @app.job("once", retry=ONE)
    def once(ctx: JobContext, name: str, seconds: float) -> dict[str, object]:
        with book.attempt(ctx, name):
            time.sleep(seconds)
            return _token(ctx)


def _failing(app: Yaoki, book: Book) -> None:
    """They fail as often as they are told, and complete then."""

    @app.job("flaky", retry=MANY)
    def flaky(ctx: JobContext, name: str, times: int) -> dict[str, object]:
        with book.attempt(ctx, name):
            if ctx.attempt <= times:
                raise Again(f"attempt {ctx.attempt} of a job that fails {times} times")
            return _token(ctx)

    @app.job("flaky-async", retry=MANY)
    async def flaky_async(ctx: JobContext, name: str, times: int) -> dict[str, object]:
        with book.attempt(ctx, name):
            await asyncio.sleep(0.01)
            if ctx.attempt <= times:
                raise Again(f"attempt {ctx.attempt} of a job that fails {times} times")
            return _token(ctx)

    @app.job("snoozes", retry=MANY)
    def snoozes(ctx: JobContext, name: str, times: int) -> dict[str, object]:
        with book.attempt(ctx, name):
            if ctx.job.snoozes < times:
                book.ledger.meant(ctx)
                raise Snooze(0.2, "not yet")
            return _token(ctx)

    @app.job("overruns", retry=MANY, timeout=0.5)
    def overruns(ctx: JobContext, name: str) -> dict[str, object]:
        with book.attempt(ctx, name):
            if ctx.attempt == 1:
                book.ledger.meant(ctx)
                time.sleep(2)
            return _token(ctx)

    @app.job("overruns-async", retry=MANY, timeout=0.5)
    async def overruns_async(ctx: JobContext, name: str) -> dict[str, object]:
        with book.attempt(ctx, name):
            if ctx.attempt == 1:
                book.ledger.meant(ctx)
                await asyncio.sleep(30)
            return _token(ctx)


def _with_effects(app: Yaoki, book: Book) -> None:
    @app.job("effect", retry=MANY)
    def effect(ctx: JobContext, name: str, seconds: float) -> None:
        with book.attempt(ctx, name):
            with ctx.transaction() as tx:
                tx.execute(_insert(app.url), [ctx.job.id, name])
                time.sleep(seconds)
                tx.result = _token(ctx)
            time.sleep(seconds)

    @app.job("effect-async", retry=MANY)
    async def effect_async(ctx: JobContext, name: str, seconds: float) -> None:
        with book.attempt(ctx, name):
            async with ctx.atransaction() as tx:
                tx.execute(_insert(app.url), [ctx.job.id, name])
                tx.result = _token(ctx)
            await asyncio.sleep(seconds)


def _insert(url: str) -> str:
    place = "?" if url.startswith("sqlite") else "%s"
    return f"INSERT INTO chaos_effects VALUES ({place}, {place})"


def _parents(app: Yaoki, book: Book) -> None:
    @app.job("parent", retry=MANY)
    def parent(ctx: JobContext, name: str, times: int) -> dict[str, object]:
        with book.attempt(ctx, name):
            for child in children_of(name, times):
                app.enqueue("quick", {"name": child}, idempotency_key=f"child {child}")
            return _token(ctx)

    @app.job("parent-async", retry=MANY)
    async def parent_async(ctx: JobContext, name: str, times: int) -> dict[str, object]:
        with book.attempt(ctx, name):
            for child in children_of(name, times):
                await app.aenqueue("quick", {"name": child}, idempotency_key=f"child {child}")
            return _token(ctx)

    @app.job("parent-together", retry=MANY)
    def parent_together(ctx: JobContext, name: str, times: int) -> None:
        with book.attempt(ctx, name), ctx.transaction() as tx:
            for child in children_of(name, times):
                app.enqueue("quick", {"name": child})
            tx.result = _token(ctx)


def _dying(app: Yaoki, book: Book) -> None:
    """They end `failed`, and say why."""

    @app.job("hopeless", retry=FEW)
    def hopeless(ctx: JobContext, name: str) -> None:
        with book.attempt(ctx, name):
            raise Again("it always fails")

    @app.job("gives-up", retry=MANY)
    def gives_up(ctx: JobContext, name: str) -> None:
        with book.attempt(ctx, name):
            book.ledger.meant(ctx)
            raise GiveUp("there is no use")

    @app.job("poison", retry=FEW)
    def poison(ctx: JobContext, name: str) -> None:
        with book.attempt(ctx, name):
            book.ledger.dies(ctx)
            os.kill(os.getpid(), signal.SIGKILL)


def _isolated(app: Yaoki, book: Book) -> None:
    work, work_async = _working(book)
    app.job("isolated", retry=MANY, isolation="process")(work)
    app.job("isolated-async", retry=MANY, isolation="process")(work_async)

    @app.job("isolated-effect", retry=MANY, isolation="process")
    def isolated_effect(ctx: JobContext, name: str, seconds: float) -> None:
        with book.attempt(ctx, name), ctx.transaction() as tx:
            tx.execute(_insert(app.url), [ctx.job.id, name])
            time.sleep(seconds)
            tx.result = _token(ctx)

    @app.job("isolated-overruns", retry=MANY, isolation="process", timeout=0.5)
    def isolated_overruns(ctx: JobContext, name: str) -> dict[str, object]:
        with book.attempt(ctx, name):
            if ctx.attempt == 1:
                book.ledger.meant(ctx)
                while True:
                    pass
            return _token(ctx)

    @app.job("isolated-dies", retry=MANY, isolation="process")
    def isolated_dies(ctx: JobContext, name: str) -> dict[str, object]:
        with book.attempt(ctx, name):
            if ctx.attempt == 1:
                book.ledger.meant(ctx)
                os.abort()
            return _token(ctx)
