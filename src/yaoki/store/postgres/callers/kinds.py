"""The kinds of connections that a caller may have: what is under them, and how they commit."""

import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from typing import Any, Protocol

from yaoki.core.errors import WrongConnection
from yaoki.store.postgres.callers.talk import AsyncDriver, Driver

HOW = (
    "pass a connection of psycopg, asyncpg or psycopg2, a SQLAlchemy Connection, Session, "
    "AsyncConnection or AsyncSession, or a Django connection, to the queue's own database"
)


class Caller(Protocol):
    """Somebody's connection. It is borrowed anew for each operation: its owner may change it."""

    def borrow(self) -> Driver: ...

    def block(self) -> AbstractContextManager[None]:
        """A block of the owner's that commits at its end, or rolls back."""


class AsyncCaller(ABC):
    """One whose every call has to be awaited."""

    @abstractmethod
    async def borrow(self) -> AsyncDriver: ...

    @abstractmethod
    def block(self) -> AbstractAsyncContextManager[None]: ...


class Plain:
    """A connection of a blocking driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def borrow(self) -> Driver:
        return self._driver

    @contextmanager
    def block(self) -> Iterator[None]:
        self._driver.begin()
        try:
            yield
            self._driver.commit()
        except BaseException:
            with suppress(Exception):  # a broken connection rolls back too
                self._driver.roll_back()
            raise


class AsyncPlain(AsyncCaller):
    """A connection of an awaiting driver."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver

    async def borrow(self) -> AsyncDriver:
        return self._driver

    @asynccontextmanager
    async def block(self) -> AsyncIterator[None]:
        await self._driver.begin()
        try:
            yield
            await self._driver.commit()
        except BaseException:
            with suppress(Exception):
                await self._driver.roll_back()
            raise


def recognised(connection: Any) -> Caller | AsyncCaller:
    """What kind it is of; WrongConnection says why it cannot be used."""
    families = [kind.__module__.partition(".")[0] for kind in type(connection).__mro__]
    for family in families:
        if family == "sqlalchemy":
            from yaoki.store.postgres.callers.sqlalchemy_caller import from_sqlalchemy

            return from_sqlalchemy(connection)
        if family == "django":
            from yaoki.store.postgres.callers.django_caller import from_django

            return from_django(connection)
    driver = driver_of(connection)
    return AsyncPlain(driver) if driver.awaits is True else Plain(driver)


def driver_of(raw: Any) -> Driver | AsyncDriver:
    """A driver's own connection, as we use it."""
    if isinstance(raw, _known("psycopg", "Connection")):
        from yaoki.store.postgres.callers.psycopg_driver import PsycopgDriver

        return PsycopgDriver(raw)
    if isinstance(raw, _known("psycopg", "AsyncConnection")):
        from yaoki.store.postgres.callers.psycopg_driver import AsyncPsycopgDriver

        return AsyncPsycopgDriver(raw)
    if isinstance(raw, _known("psycopg2.extensions", "connection")):
        from yaoki.store.postgres.callers.psycopg2_driver import Psycopg2Driver

        return Psycopg2Driver(raw)
    if isinstance(raw, _known("asyncpg", "Connection")):
        from yaoki.store.postgres.callers.asyncpg_driver import AsyncpgDriver

        return AsyncpgDriver(raw)
    if isinstance(raw, (_known("sqlite3", "Connection"), _known("aiosqlite", "Connection"))):
        raise WrongConnection(
            "that connection is to a SQLite file, and the jobs are in PostgreSQL: one transaction "
            f"cannot span both; {HOW}"
        )
    raise _refused(raw)


def _known(module: str, name: str) -> Any:
    """A class of a module that may not be there; nothing is an instance of ()."""
    return getattr(sys.modules.get(module), name, ())


def _refused(thing: Any) -> WrongConnection:
    kind = type(thing)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if "Pool" in kind.__qualname__:
        return WrongConnection(f"a {name} is no connection, but has some; {HOW}")
    return WrongConnection(f"a {name} cannot be used; {HOW}")
