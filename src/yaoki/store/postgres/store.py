"""The PostgreSQL store: opens itself when first used, and is safe from any thread and loop."""

import asyncio
import atexit
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, ClassVar, TypeVar

import psycopg

from yaoki.core.errors import StoreBusy, StoreUnavailable
from yaoki.store.base import Bell, Run, drive, drive_async
from yaoki.store.examined import Examined
from yaoki.store.op import Answer, Interfered, Op, Statement
from yaoki.store.ops.claims import Look
from yaoki.store.ops.settling import Exchange, Settle
from yaoki.store.ops.upkeep import Cancelling, CanWrite, KeepAlive, Leases, MarkStarted, Rescue
from yaoki.store.patience import patience
from yaoki.store.postgres import callers, place
from yaoki.store.postgres.bell import NOTIFY_SLEEPERS, NotifyBell, PollBell, channel_of
from yaoki.store.postgres.connection import AsyncLine, Line, hang_up, leave_to_the_parent
from yaoki.store.postgres.examine import examine
from yaoki.store.postgres.failures import runs_again, translated
from yaoki.store.postgres.opened import Opened, open_database
from yaoki.store.postgres.pool import WAIT_FOR_ONE, AsyncLent, Lent
from yaoki.store.postgres.statements import (
    BEGIN,
    BEGIN_READING,
    NOT_DURABLE,
    Clock,
    Dialect,
    changes,
)
from yaoki.store.postgres.transaction import PostgresTransaction

log = logging.getLogger("yaoki.store")

T = TypeVar("T")

TRIES = 20
"""How often an operation is run when other transactions keep coming in its way."""


class PostgresStore:
    """Jobs in one schema of a PostgreSQL database.

    Every operation is a transaction of its own on a connection from a pool; those that are one
    statement need no BEGIN and no COMMIT. A forked child opens connections of its own.
    """

    one_writer: ClassVar[bool] = False

    def __init__(self, url: str, *, clock: Clock | None = None) -> None:
        self.url = url
        self._place = place.parse(url)
        self._dialect = Dialect(self._place.schema, clock)
        channel = channel_of(self._place.schema)
        self._notify = Statement("notify_sleepers", {"channel": channel}, text=NOTIFY_SLEEPERS)
        manner = callers.Manner(
            self._dialect, None if self._place.wake == "poll" else channel, self._ring_all
        )
        self._home = callers.Home(manner, self._place.shown, self.run, self.arun)
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._open: Opened | None = None
        self._bells: list[NotifyBell | PollBell] = []
        self._applied: list[str] = []
        _alive.add(self)

    def run(self, op: Op[T]) -> T:
        opened = self._opened()
        for attempt in range(TRIES):
            try:
                upkeep = patience().upkeep or isinstance(op, _UPKEEP)
                pool = opened.upkeep if upkeep else opened.pool
                with pool.lend() as lent:
                    value = self._drive(op, lent)
            except Exception as error:
                problem = self._problem(error, op)
                if problem is error:
                    raise
                if problem is not None:
                    raise problem from error
            else:
                if op.wakes:
                    self._ring_all()
                return value
            time.sleep(_pause(attempt))
        raise _too_often()

    async def arun(self, op: Op[T]) -> T:
        loop = asyncio.get_running_loop()
        if self._open is None:
            await loop.run_in_executor(None, self._opened)
        if not op.writes:
            return await self._arun(op, self._opened())
        # Who is cancelled while waiting does not undo the write.
        writing = asyncio.ensure_future(self._arun(op, self._opened()))
        writing.add_done_callback(_noted)
        return await asyncio.shield(writing)

    def on(self, connection: Any) -> AbstractContextManager[Run]:
        return callers.on(self._home, connection)

    def block(self, connection: Any) -> AbstractContextManager[tuple[Run, Callable[[], None]]]:
        return callers.block(self._home, connection)

    def ablock(
        self, connection: Any
    ) -> AbstractAsyncContextManager[tuple[Run, Callable[[], None]]]:
        return callers.ablock(self._home, connection)

    def joined(self) -> Any:
        return callers.joined(self._home)

    def transaction(self) -> PostgresTransaction:
        notify = self._notify if self._place.wake == "notify" else None
        return PostgresTransaction(self._opened(), notify, self._ring_all)

    def bell(self) -> Bell:
        opened = self._opened()
        bell: NotifyBell | PollBell
        if opened.listens:
            bell = NotifyBell(
                lambda: self._opened().listener(), self._place.schema, lambda: self._unhang(bell)
            )
        else:
            bell = PollBell(lambda: self._unhang(bell))
        with self._lock:
            self._bells.append(bell)
        return bell

    def watch(self) -> Bell:
        # Ends are not notified: it would be once a job, for the few that somebody waits for.
        bell = PollBell(lambda: self._unhang(bell))
        with self._lock:
            self._bells.append(bell)
        return bell

    def migrate(self) -> list[str]:
        self._opened()
        applied, self._applied = self._applied, []
        return applied

    def examine(self) -> Examined:
        return examine(self._place, self._dialect)

    def close(self) -> None:
        """Close every connection that nobody uses now; the others are closed after use."""
        with self._lock:
            opened, self._open = self._open, None
        if opened is not None:
            opened.close()

    def _opened(self) -> Opened:
        opened = self._open
        if opened is not None:
            return opened
        if not self._opening.acquire(timeout=WAIT_FOR_ONE):
            raise StoreUnavailable(
                f"{self._place.shown}: other threads of this process have been trying to reach it "
                f"for {WAIT_FOR_ONE:g} s"
            )
        try:
            opened = self._open
            if opened is None:
                opened, self._applied = open_database(self._place, self._dialect, self._doubt_bells)
                self._open = opened
            return opened
        finally:
            self._opening.release()

    def _drive(self, op: Op[T], lent: Lent) -> T:
        line, wire = lent
        begin, then = self._begin(op), self._look_behind(op)

        def execute(statement: Statement) -> Answer:
            if not op.atomic:
                behind = then if changes(statement) else None
                return line.wait(wire.ask_alone(statement, begin, behind))
            if statement.silent:
                return wire.later(statement)
            return line.wait(wire.ask(statement))

        wire.begin(begin)
        try:
            value = drive(op, execute)
            if op.atomic:
                line.wait(wire.commit(then))
        except BaseException:
            wire.drop()
            _roll_back(line)
            raise
        return value

    async def _adrive(self, op: Op[T], lent: AsyncLent) -> T:
        line, wire = lent
        begin, then = self._begin(op), self._look_behind(op)

        async def execute(statement: Statement) -> Answer:
            if not op.atomic:
                behind = then if changes(statement) else None
                return await line.wait(wire.ask_alone(statement, begin, behind))
            if statement.silent:
                return wire.later(statement)
            return await line.wait(wire.ask(statement))

        wire.begin(begin)
        try:
            value = await drive_async(op, execute)
            if op.atomic:
                await line.wait(wire.commit(then))
        except BaseException:
            wire.drop()
            await _aroll_back(line)
            raise
        return value

    async def _arun(self, op: Op[T], opened: Opened) -> T:
        for attempt in range(TRIES):
            try:
                async with opened.async_pool().lend() as lent:
                    value = await self._adrive(op, lent)
            except Exception as error:
                problem = self._problem(error, op)
                if problem is error:
                    raise
                if problem is not None:
                    raise problem from error
            else:
                if op.wakes:
                    self._ring_all()
                return value
            await asyncio.sleep(_pause(attempt))
        raise _too_often()

    def _begin(self, op: Op[Any]) -> Sequence[str]:
        """How the transaction of an operation, or of each of its statements, begins."""
        if not op.writes:
            return (BEGIN_READING,) if op.atomic else ()
        if self._place.durability == "normal":
            return (BEGIN, NOT_DURABLE)
        return (BEGIN,) if op.atomic else ()

    def _look_behind(self, op: Op[Any]) -> Statement | None:
        """What wakes whoever sleeps elsewhere, once the operation is committed."""
        return self._notify if op.wakes and self._place.wake == "notify" else None

    def _problem(self, error: Exception, op: Op[Any]) -> Exception | None:
        """What to raise for an error; None when the operation is to be run again."""
        if isinstance(error, Interfered) or runs_again(error):
            return None
        if isinstance(error, psycopg.Error | OSError):
            return translated(error, self._place.shown, writes=op.writes)
        return error

    def _ring_all(self) -> None:
        for bell in self._bells:
            bell.ring()

    def _doubt_bells(self) -> None:
        for bell in self._bells:
            bell.doubt()

    def _unhang(self, bell: NotifyBell | PollBell) -> None:
        with self._lock:
            if bell in self._bells:
                self._bells.remove(bell)

    def _after_fork_in_child(self) -> None:
        self._lock, self._opening = threading.Lock(), threading.Lock()
        for bell in self._bells:
            bell.forget()
        self._bells = []
        if self._open is not None:
            self._open = Opened(self._place, self._dialect, self._open.server, self._doubt_bells)


_UPKEEP = (Cancelling, CanWrite, Exchange, KeepAlive, Leases, Look, MarkStarted, Rescue, Settle)
"""What workers live on, besides all that their own threads ask. Nobody can use up its connections:
not even enqueues that wait for a transaction to end, because it has made a job of their key."""


def _roll_back(line: Line) -> None:
    """Undo what is open; a line that cannot even do that is not used again."""
    try:
        if not line.closed and line.pgconn.transaction_status != 0:
            line.execute("ROLLBACK")
    except (psycopg.Error, OSError):
        hang_up(line)


async def _aroll_back(line: AsyncLine) -> None:
    try:
        if not line.closed and line.pgconn.transaction_status != 0:
            await line.execute("ROLLBACK")
    except (psycopg.Error, OSError):
        hang_up(line)


def _noted(writing: "asyncio.Future[Any]") -> None:
    """Its error is nobody's when the one who waited for it has gone."""
    if not writing.cancelled():
        writing.exception()


def _pause(attempt: int) -> float:
    """Seconds before another try, longer each time and never the same for two."""
    return random.uniform(0, min(0.002 * 2**attempt, 0.25))


def _too_often() -> StoreBusy:
    return StoreBusy(
        f"other transactions came in the way {TRIES} times; nothing was changed, try again"
    )


_alive: "weakref.WeakSet[PostgresStore]" = weakref.WeakSet()


def _each(act: Callable[[PostgresStore], None]) -> Callable[[], None]:
    def for_each() -> None:
        for store in list(_alive):
            act(store)

    return for_each


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=leave_to_the_parent)
    os.register_at_fork(after_in_child=_each(PostgresStore._after_fork_in_child))
atexit.register(_each(PostgresStore.close))
