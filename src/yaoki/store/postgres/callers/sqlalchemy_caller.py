"""SQLAlchemy's connections and sessions. What it does not know of, it would not commit."""

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, ClassVar, Literal, TypeVar

from yaoki.core.errors import NotInTransaction, WrongConnection
from yaoki.store.postgres.callers import kinds
from yaoki.store.postgres.callers.talk import (
    ROLL_BACK_FIRST,
    AsyncDriver,
    Commands,
    Driver,
    Reply,
    State,
)
from yaoki.store.postgres.statements import Call

T = TypeVar("T")

TOUCH = "SELECT 1"
"""Through SQLAlchemy, because its asyncpg begins a transaction with the first statement it sees."""


def from_sqlalchemy(owner: Any) -> "kinds.Caller | kinds.AsyncCaller":
    if hasattr(owner, "registry") and callable(owner):
        owner = owner()  # of a scoped_session, the session of this thread or task
    if hasattr(owner, "sync_session") or hasattr(owner, "sync_connection"):
        return AsyncSQLAlchemy(owner)
    if hasattr(owner, "get_bind") or hasattr(owner, "get_transaction"):
        return SQLAlchemy(owner)
    raise WrongConnection(
        f"a SQLAlchemy {type(owner).__qualname__} is no connection; pass a Connection, Session, "
        "AsyncConnection or AsyncSession"
    )


class SQLAlchemy:
    """A Connection or a Session."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    def borrow(self) -> Driver:
        owner = self._owner
        with _to_be_rolled_back():
            connection = owner.connection() if hasattr(owner, "get_bind") else owner
            if not connection.in_transaction():
                connection.begin()
        fairy = connection.connection
        driver = kinds.driver_of(fairy.driver_connection)
        if driver.awaits is False:
            return driver
        if driver.state is State.IDLE:
            connection.exec_driver_sql(TOUCH)
        return Bridged(driver, fairy.dbapi_connection.run_async)

    @contextmanager
    def block(self) -> Iterator[None]:
        try:
            yield
            self._owner.commit()
        except BaseException:
            with suppress(Exception):  # a broken connection rolls back too
                self._owner.rollback()
            raise


class AsyncSQLAlchemy(kinds.AsyncCaller):
    """An AsyncConnection or an AsyncSession."""

    def __init__(self, owner: Any) -> None:
        self._owner = owner

    async def borrow(self) -> AsyncDriver:
        owner = self._owner
        with _to_be_rolled_back():
            connection = await owner.connection() if hasattr(owner, "get_bind") else owner
            if not connection.in_transaction():
                await connection.begin()
        raw = (await connection.get_raw_connection()).driver_connection
        driver = kinds.driver_of(raw)
        if driver.awaits is False:
            raise WrongConnection(f"that connection does not lead to PostgreSQL; {kinds.HOW}")
        if driver.state is State.IDLE and not driver.begins_by_itself:
            await connection.exec_driver_sql(TOUCH)
        return driver

    @asynccontextmanager
    async def block(self) -> AsyncIterator[None]:
        try:
            yield
            await self._owner.commit()
        except BaseException:
            with suppress(Exception):
                await self._owner.rollback()
            raise


class Bridged:
    """An awaiting driver below blocking SQLAlchemy: what `run_sync` gives to its function."""

    awaits: ClassVar[Literal[False]] = False

    def __init__(
        self,
        driver: AsyncDriver,
        run_async: Callable[[Callable[[Any], Awaitable[Any]]], Any],
    ) -> None:
        self._driver, self._run_async = driver, run_async
        self.raw = driver.raw

    @property
    def state(self) -> State:
        return self._driver.state

    @property
    def begins_by_itself(self) -> bool:
        return self._driver.begins_by_itself

    @property
    def encoding(self) -> str:
        return self._driver.encoding

    def is_own(self, error: BaseException) -> bool:
        return self._driver.is_own(error)

    def say(self, commands: Commands) -> None:
        self._run_async(lambda raw: self._driver.say(commands))

    def ask(self, call: Call) -> Reply:
        reply: Reply = self._run_async(lambda raw: self._driver.ask(call))
        return reply

    def begin(self) -> None:
        """SQLAlchemy has done it."""

    def commit(self) -> None:
        """SQLAlchemy will."""

    def roll_back(self) -> None:
        """SQLAlchemy will."""

    def cut(self) -> None:
        self._driver.cut()


@contextmanager
def _to_be_rolled_back() -> Iterator[None]:
    """Of a session whose flush has failed, or a connection that was lost."""
    try:
        yield
    except sys.modules["sqlalchemy.exc"].PendingRollbackError as error:
        raise NotInTransaction(ROLL_BACK_FIRST) from error
