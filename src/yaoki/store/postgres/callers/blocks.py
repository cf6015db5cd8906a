"""Operations inside a caller's transaction, one by one and in blocks that commit."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from yaoki.core.errors import NotHere, TransactionLost, WrongConnection
from yaoki.store.base import Run
from yaoki.store.op import Op
from yaoki.store.postgres.callers.django_caller import DjangoCaller, in_atomic_blocks
from yaoki.store.postgres.callers.home import Home
from yaoki.store.postgres.callers.kinds import AsyncCaller, recognised
from yaoki.store.postgres.callers.talk import (
    AsyncDriver,
    Borrowed,
    Driver,
    aconverse,
    converse,
    problem,
)
from yaoki.store.postgres.callers.whole import whole
from yaoki.store.scope import Awaited

T = TypeVar("T")

LOST = (
    "this connection was cut off, and its transaction rolled back, because the attempt was stopped "
    "or took too long; do the slow work before the block, and only the writing inside"
)


@contextmanager
def on(home: Home, connection: Any) -> Iterator[Run]:
    """A way to run operations in the transaction of `connection`, which its owner commits."""
    caller = recognised(connection)
    if not isinstance(caller, AsyncCaller):
        # Borrowed anew for each: after a commit, SQLAlchemy may go on with another connection.
        yield lambda op: _run(op, home, caller.borrow())
        return
    if not _in_a_task():
        raise NotHere("that connection has to be awaited; use app.on(connection) in a coroutine")

    async def run(op: Op[T]) -> T:
        return await _arun(op, home, await caller.borrow())

    yield Awaited(run)


@contextmanager
def block(home: Home, connection: Any) -> Iterator[tuple[Run, Callable[[], None]]]:
    """The same in a block that commits at its end, and a call that breaks it from outside."""
    caller = recognised(connection)
    if isinstance(caller, AsyncCaller):
        raise NotHere(
            "that connection has to be awaited; write: async with ctx.atransaction(connection)"
        )
    with _Ending(home) as ending, caller.block():
        ending.driver = driver = caller.borrow()

        def run(op: Op[T]) -> T:
            ending.check()
            value = _run(op, home, driver)
            ending.ran(op)
            return value

        yield run, ending.interrupt
        ending.commits()


@asynccontextmanager
async def ablock(home: Home, connection: Any) -> AsyncIterator[tuple[Run, Callable[[], None]]]:
    """The same for connections that have to be awaited; for the others it blocks."""
    caller = recognised(connection)
    if not isinstance(caller, AsyncCaller):
        with block(home, connection) as both:
            yield both
        return
    with _Ending(home) as ending:
        async with caller.block():
            ending.driver = driver = await caller.borrow()

            async def run(op: Op[T]) -> T:
                ending.check()
                value = await _arun(op, home, driver)
                ending.ran(op)
                return value

            yield Awaited(run), ending.interrupt
            ending.commits()


def joined(home: Home) -> Any:
    """Django's connection to the queue's database, while a transaction is open on it here."""
    for connection in in_atomic_blocks():
        driver = DjangoCaller(connection).borrow()
        leads_here = home.known(driver)
        if leads_here is None:
            leads_here = _leads_here(home, driver)
        if leads_here:
            return connection
    return None


def _leads_here(home: Home, driver: Driver) -> bool:
    try:
        home.check(driver)
    except WrongConnection:
        return False
    except Exception as error:
        raise problem(error, driver, home.shown) or error from error
    return True


def _run(op: Op[T], home: Home, driver: Driver) -> T:
    try:
        home.check(driver)
        return converse(whole(op, home.manner, driver), driver)
    except Exception as error:
        found = problem(error, driver, home.shown)
        if found is None:
            raise
        raise found from error


async def _arun(op: Op[T], home: Home, driver: AsyncDriver) -> T:
    try:
        await home.acheck(driver)
        return await aconverse(whole(op, home.manner, driver), driver)
    except Exception as error:
        found = problem(error, driver, home.shown)
        if found is None:
            raise
        raise found from error


class _Ending:
    """Who is first to end a block: its owner, who commits, or somebody from outside."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self.driver: Borrowed | None = None
        self._lock = threading.Lock()
        self._lost = self._over = self._commits = self._wakes = False

    def __enter__(self) -> "_Ending":
        return self

    def check(self) -> None:
        if self._lost:
            raise TransactionLost(LOST)

    def ran(self, op: Op[Any]) -> None:
        self._wakes = self._wakes or op.wakes

    def commits(self) -> None:
        """From here on, it is too late to interrupt."""
        with self._lock:
            self.check()
            self._over = self._commits = True

    def interrupt(self) -> None:
        # Under the lock, so that the connection is not somebody else's by now.
        with self._lock:
            if not self._over and not self._lost and self.driver is not None:
                self._lost = True
                self.driver.cut()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._lock:
            self._over = True
        if error is None:
            if self._wakes:
                self._home.manner.ring()
            return
        if self._lost and isinstance(error, Exception):
            raise TransactionLost(LOST) from error
        if self._commits and self.driver is not None:
            found = problem(error, self.driver, self._home.shown)
            if found is not None:
                raise found from error


def _in_a_task() -> bool:
    try:
        return asyncio.current_task() is not None
    except RuntimeError:
        return False
