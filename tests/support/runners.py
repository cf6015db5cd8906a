"""The ways in which a store can be run; every conformance test runs in each of them."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.support.pgbouncer import program, through
from tests.support.postgres import fresh_database
from yaoki.store.base import Store
from yaoki.store.op import Op
from yaoki.store.postgres.store import PostgresStore
from yaoki.store.sqlite.store import SQLiteStore

T = TypeVar("T")

Clock = Callable[[], int]


class Awaiting:
    """An awaiting store made to look like a blocking one, so tests are written once.

    Its loop runs on a thread of its own, so threads of a test wait in it side by side.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running = threading.Event()
        self._over: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._serve, name="awaiting store", daemon=True)
        self._thread.start()
        self._running.wait(10)

    def run(self, op: Op[T]) -> T:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._store.arun(op), self._loop).result(60)

    def stop(self) -> None:
        assert self._loop is not None
        assert self._over is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(10)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _serve(self) -> None:
        with asyncio.Runner() as runner:
            self._loop, self._over = runner.get_loop(), asyncio.Event()
            self._loop.call_soon(self._running.set)
            runner.run(self._over.wait())


@contextmanager
def sqlite(folder: Path, clock: Clock) -> Iterator[Store]:
    store = SQLiteStore(f"sqlite:///{folder / 'jobs.db'}?durability=normal", clock=clock)
    yield store
    store.close()


@contextmanager
def sqlite_awaiting(folder: Path, clock: Clock) -> Iterator[Any]:
    with sqlite(folder, clock) as store:
        awaiting = Awaiting(store)
        yield awaiting
        awaiting.stop()


@contextmanager
def postgres(folder: Path, clock: Clock) -> Iterator[Store]:
    with fresh_database() as url:
        store = PostgresStore(url, clock=clock)
        yield store
        store.close()


@contextmanager
def postgres_awaiting(folder: Path, clock: Clock) -> Iterator[Any]:
    with postgres(folder, clock) as store:
        awaiting = Awaiting(store)
        yield awaiting
        awaiting.stop()


@contextmanager
def pgbouncer(folder: Path, clock: Clock) -> Iterator[Store]:
    with fresh_database() as url, through(url) as pooled:
        store = PostgresStore(pooled, clock=clock)
        yield store
        store.close()


@contextmanager
def pgbouncer_awaiting(folder: Path, clock: Clock) -> Iterator[Any]:
    with pgbouncer(folder, clock) as store:
        awaiting = Awaiting(store)
        yield awaiting
        awaiting.stop()


RUNNERS = [sqlite, sqlite_awaiting, postgres, postgres_awaiting]
if program() is not None:
    RUNNERS += [pgbouncer, pgbouncer_awaiting]
