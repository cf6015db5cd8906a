"""Callers with a connection of every kind, made to look alike so that tests are written once.

A test is a coroutine. For connections that block nothing in it waits, so it needs no loop, which
Django would not stand.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from typing import Any, NamedTuple, TypeVar

import asyncpg
import psycopg
import psycopg2
import sqlalchemy
from django.db import transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.support.django_settings import postgres_connection
from yaoki import Yaoki, aonce, once

T = TypeVar("T")


class Caller:
    """One connection, and what its owner does with it."""

    def __init__(self, connection: Any, awaits: bool) -> None:
        self.connection, self.awaits = connection, awaits

    async def execute(self, statement: str) -> None:
        await self._done(self.connection.execute(statement))

    async def begin(self) -> None:
        """Where a transaction does not begin by itself."""

    async def commit(self) -> None:
        await self._done(self.connection.commit())

    async def rollback(self) -> None:
        await self._done(self.connection.rollback())

    async def call(self, app: Yaoki, verb: str, *args: Any, **options: Any) -> Any:
        """`app.enqueue(…)`, or `await app.aenqueue(…)`, in the caller's transaction."""
        with app.on(self.connection):
            return await self.plainly(app, verb, *args, **options)

    async def plainly(self, app: Yaoki, verb: str, *args: Any, **options: Any) -> Any:
        """The same, in whatever transaction it belongs to here."""
        if self.awaits:
            return await getattr(app, f"a{verb}")(*args, **options)
        return getattr(app, verb)(*args, **options)

    async def once(self, key: str, **how: Any) -> bool:
        if self.awaits:
            return await aonce(self.connection, key, **how)
        return once(self.connection, key, **how)

    async def _done(self, result: Any) -> Any:
        return await result if self.awaits else result


class ByCursor(Caller):
    """psycopg2 has cursors only."""

    async def execute(self, statement: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)


class BySQLAlchemy(Caller):
    async def execute(self, statement: str) -> None:
        await self._done(self.connection.execute(sqlalchemy.text(statement)))


class ByAsyncpg(Caller):
    """A transaction is an object of its own."""

    _transaction: Any = None

    async def begin(self) -> None:
        self._transaction = self.connection.transaction()
        await self._transaction.start()

    async def commit(self) -> None:
        await self._transaction.commit()

    async def rollback(self) -> None:
        await self._transaction.rollback()


class ByDjango(ByCursor):
    """A transaction is an atomic block."""

    _block: Any = None

    async def begin(self) -> None:
        self._block = transaction.atomic(using=self.connection.alias)
        self._block.__enter__()

    async def commit(self) -> None:
        self._block.__exit__(None, None, None)

    async def rollback(self) -> None:
        self.connection.set_rollback(True)
        self._block.__exit__(None, None, None)


class Kind(NamedTuple):
    """A kind of connection: how one is made to a database."""

    name: str
    awaits: bool
    connected: Callable[[str], Any]

    def run(self, test: Coroutine[Any, Any, T]) -> T:
        """Run a test on connections of this kind."""
        if self.awaits:
            return asyncio.run(test)
        try:
            test.send(None)
        except StopIteration as end:
            value: T = end.value
            return value
        raise AssertionError("a connection that blocks was awaited")


@asynccontextmanager
async def _psycopg(url: str) -> AsyncIterator[Caller]:
    with psycopg.connect(url) as connection:
        yield Caller(connection, False)


@asynccontextmanager
async def _psycopg_async(url: str) -> AsyncIterator[Caller]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield Caller(connection, True)


@asynccontextmanager
async def _psycopg2(url: str) -> AsyncIterator[Caller]:
    with closing(psycopg2.connect(url)) as connection:
        yield ByCursor(connection, False)


@asynccontextmanager
async def _asyncpg(url: str) -> AsyncIterator[Caller]:
    connection = await asyncpg.connect(url)
    try:
        yield ByAsyncpg(connection, True)
    finally:
        await connection.close()


@asynccontextmanager
async def _asyncpg_pool(url: str) -> AsyncIterator[Caller]:
    pool = asyncpg.create_pool(url, min_size=1, max_size=1)
    async with pool, pool.acquire() as connection:
        yield ByAsyncpg(connection, True)


def _sqlalchemy(kind: str, driver: str) -> Kind:
    @asynccontextmanager
    async def connected(url: str) -> AsyncIterator[Caller]:
        engine = sqlalchemy.create_engine(url.replace("postgresql", f"postgresql+{driver}", 1))
        made: Any = engine.connect() if kind == "Connection" else Session(engine)
        try:
            with made as connection:
                yield BySQLAlchemy(connection, False)
        finally:
            engine.dispose()

    return Kind(f"SQLAlchemy {kind} {driver}", False, connected)


def _sqlalchemy_async(kind: str, driver: str) -> Kind:
    @asynccontextmanager
    async def connected(url: str) -> AsyncIterator[Caller]:
        engine = create_async_engine(url.replace("postgresql", f"postgresql+{driver}", 1))
        made: Any = engine.connect() if kind == "AsyncConnection" else AsyncSession(engine)
        try:
            async with made as connection:
                yield BySQLAlchemy(connection, True)
        finally:
            await engine.dispose()

    return Kind(f"SQLAlchemy {kind} {driver}", True, connected)


@asynccontextmanager
async def _django(url: str) -> AsyncIterator[Caller]:
    with postgres_connection("queue", url) as connection:
        yield ByDjango(connection, False)


SYNC = ("psycopg", "psycopg2")
ASYNC = ("psycopg", "asyncpg")

KINDS = [
    Kind("psycopg", False, _psycopg),
    Kind("psycopg async", True, _psycopg_async),
    Kind("psycopg2", False, _psycopg2),
    Kind("asyncpg", True, _asyncpg),
    Kind("asyncpg pool", True, _asyncpg_pool),
    Kind("Django", False, _django),
    *(_sqlalchemy(kind, driver) for kind in ("Connection", "Session") for driver in SYNC),
    *(
        _sqlalchemy_async(kind, driver)
        for kind in ("AsyncConnection", "AsyncSession")
        for driver in ASYNC
    ),
]
