"""Connections that are kept for the next one who needs some."""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple, TypeVar

import psycopg

from yaoki.core.errors import StoreBusy
from yaoki.store.postgres.connection import (
    AsyncLine,
    Line,
    hang_up,
    is_fresh,
    was_not_answered,
)
from yaoki.store.postgres.wire import Wire

WAIT_FOR_ONE = 30.0
"""Seconds that a caller waits while all connections are in use."""


_OF_THE_SESSION = (
    psycopg.errors.ReadOnlySqlTransaction,
    psycopg.errors.QueryCanceled,
    psycopg.errors.LockNotAvailable,
)
"""Another session may do better: on another server after a fail-over, or by other time limits."""


def leaves_doubt(error: BaseException) -> bool:
    """Does it say of all connections that they may lead nowhere, and not of one alone?

    Where one was not answered the others may not be either, and nothing tells them from good ones:
    a network that swallows everything, a primary that is gone without a word. And where one leads
    to a server that only reads since a fail-over, so do the others.
    """
    return was_not_answered(error) or isinstance(error, psycopg.errors.ReadOnlySqlTransaction)


class Lent(NamedTuple):
    """A connection, and the way of statements on it."""

    line: Line
    wire: Wire


class AsyncLent(NamedTuple):
    """The same, awaiting."""

    line: AsyncLine
    wire: Wire


class Pool:
    """Connections for threads; the one that was used last is lent first.

    At most `size` at once; unless it `waits`, as many as are wanted, of which `size` are kept.
    `doubt` is called for an error that leaves it.
    """

    def __init__(
        self,
        size: int,
        make: Callable[[], Lent],
        doubt: Callable[[], None] = lambda: None,
        *,
        waits: bool = True,
    ) -> None:
        self.size, self._make, self._doubt = size, make, doubt
        self._free = _Places(size if waits else sys.maxsize)
        self._idle: list[Lent] = []
        self._closed = False

    @contextmanager
    def lend(self) -> Iterator[Lent]:
        """A connection in autocommit mode with nothing open; StoreBusy when none becomes free."""
        if not self._free.take(WAIT_FOR_ONE):
            raise all_in_use(self.size)
        try:
            lent = _fresh_one(self._idle) or self._make()
            try:
                yield lent
            except psycopg.Error as error:
                if isinstance(error, _OF_THE_SESSION):
                    hang_up(lent.line)
                if leaves_doubt(error):
                    self._doubt()
                raise
            finally:
                _take_back(lent, self._idle, self.size)
                if self._closed:
                    _close_all(self._idle)
        finally:
            self._free.give_back()

    def forget(self) -> None:
        """Close what is idle."""
        _close_all(self._idle)

    def close(self) -> None:
        """Close what is idle now, and the others when they come back."""
        self._closed = True
        self.forget()


class AsyncPool:
    """The same for the tasks of one event loop."""

    def __init__(
        self,
        size: int,
        make: Callable[[], Awaitable[AsyncLent]],
        doubt: Callable[[], None] = lambda: None,
    ) -> None:
        self.size, self._make, self._doubt = size, make, doubt
        self._free = asyncio.Semaphore(size)
        self._idle: list[AsyncLent] = []
        self._closed = False

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncLent]:
        try:
            async with asyncio.timeout(WAIT_FOR_ONE):
                await self._free.acquire()
        except TimeoutError:
            raise all_in_use(self.size) from None
        try:
            lent = _fresh_one(self._idle) or await self._make()
            try:
                yield lent
            except psycopg.Error as error:
                if isinstance(error, _OF_THE_SESSION):
                    hang_up(lent.line)
                if leaves_doubt(error):
                    self._doubt()
                raise
            finally:
                _take_back(lent, self._idle, self.size)
                if self._closed:
                    _close_all(self._idle)
        finally:
            self._free.release()

    def forget(self) -> None:
        _close_all(self._idle)

    def close(self) -> None:
        self._closed = True
        self.forget()


class _Places:
    """A semaphore whose places go to who has waited longest; threading's go to who is quickest."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._line: deque[threading.Lock] = deque()

    def take(self, timeout: float) -> bool:
        with self._lock:
            if self._count > 0:
                self._count -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._line.append(turn)
        try:
            if turn.acquire(timeout=timeout):
                return True
        except BaseException:
            if not self._left_the_line(turn):
                self.give_back()
            raise
        return not self._left_the_line(turn)

    def give_back(self) -> None:
        with self._lock:
            if self._line:
                self._line.popleft().release()
            else:
                self._count += 1

    def _left_the_line(self, turn: threading.Lock) -> bool:
        """False: a place was given to it in the last moment."""
        with self._lock:
            if turn not in self._line:
                return False
            self._line.remove(turn)
            return True


P = TypeVar("P", Lent, AsyncLent)


def _fresh_one(idle: list[P]) -> P | None:
    while (lent := _popped(idle)) is not None:
        if is_fresh(lent.line):
            return lent
        hang_up(lent.line)
    return None


def _popped(idle: list[P]) -> P | None:
    """The last one, unless others were faster."""
    try:
        return idle.pop()
    except IndexError:
        return None


def _take_back(lent: P, idle: list[P], most: int) -> None:
    if _is_idle(lent.line) and len(idle) < most:
        idle.append(lent)
    else:
        hang_up(lent.line)


def _is_idle(line: Line | AsyncLine) -> bool:
    """Nothing is open on it, and it was not interrupted in the middle of a message."""
    wire = line.pgconn
    return not line.closed and wire.transaction_status == 0 and wire.pipeline_status == 0


def _close_all(idle: list[P]) -> None:
    while (lent := _popped(idle)) is not None:
        hang_up(lent.line)


def all_in_use(size: int) -> StoreBusy:
    """What those are told who waited in vain."""
    return StoreBusy(
        f"all {size} connections of this process were in use for {WAIT_FOR_ONE:g} s; nothing was "
        "changed, try again, or raise pool= in the database URL"
    )
