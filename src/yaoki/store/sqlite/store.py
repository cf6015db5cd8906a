"""The SQLite store: opens itself when first used, and is safe from any thread."""

import asyncio
import atexit
import logging
import os
import sqlite3
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from yaoki.core.errors import StoreBusy, StoreUnavailable, TransactionLost
from yaoki.store.examined import Examined
from yaoki.store.op import Op
from yaoki.store.sqlite import callers, place
from yaoki.store.sqlite.bell import DataVersionBell
from yaoki.store.sqlite.connection import Clock, connect, host_clock, translated
from yaoki.store.sqlite.examine import examine
from yaoki.store.sqlite.migrate import migrate
from yaoki.store.sqlite.opened import Opened
from yaoki.store.sqlite.transaction import LOST, SQLiteTransaction
from yaoki.store.sqlite.writer import Writer

log = logging.getLogger("yaoki.store")

T = TypeVar("T")


class SQLiteStore:
    """Jobs in one SQLite file.

    Writes go through one connection, in groups; reads through connections of their own. All
    connections are closed before a fork and opened anew after it, by parent and child alike.
    """

    one_writer: ClassVar[bool] = True

    def __init__(self, url: str, *, clock: Clock = host_clock) -> None:
        self.url = url
        self._place = place.parse(url)
        self._clock = clock
        self._lock = threading.Lock()
        self._open: Opened | None = None
        self._bells: list[DataVersionBell] = []
        self._applied: list[str] = []
        self._broken_by_fork = self._closed_for_fork = False
        self._vanished = False
        _alive.add(self)

    def run(self, op: Op[T]) -> T:
        opened = self._opened()
        if op.writes:
            return opened.writer.run(op)
        return opened.read(op)

    async def arun(self, op: Op[T]) -> T:
        loop = asyncio.get_running_loop()
        if self._open is None:
            await loop.run_in_executor(None, self._opened)
        opened = self._opened()
        if op.writes:
            return await _awaited(op, opened.writer)
        return await loop.run_in_executor(opened.threads, opened.read, op)

    @contextmanager
    def on(self, connection: Any) -> Iterator[Callable[[Op[Any]], Any]]:
        opened = self._opened_beside_a_caller()
        self._borrowed(connection, opened.path)
        # Borrowed anew for each: after a commit, SQLAlchemy may go on with another connection.
        yield lambda op: self._run_on(self._borrowed(connection, opened.path).raw, op, opened)

    @contextmanager
    def block(
        self, connection: Any
    ) -> Iterator[tuple[Callable[[Op[Any]], Any], Callable[[], None]]]:
        opened = self._opened_beside_a_caller()
        borrowed = self._borrowed(connection, opened.path)
        lost = threading.Event()

        def run(op: Op[T]) -> T:
            if lost.is_set():
                raise TransactionLost(LOST)
            return self._run_on(borrowed.raw, op, opened)

        def interrupt() -> None:
            lost.set()
            borrowed.raw.interrupt()

        with borrowed.block():
            yield run, interrupt
            if lost.is_set():
                raise TransactionLost(LOST)

    @asynccontextmanager
    async def ablock(
        self, connection: Any
    ) -> AsyncIterator[tuple[Callable[[Op[Any]], Any], Callable[[], None]]]:
        with self.block(connection) as both:
            yield both

    def joined(self) -> Any:
        path = self._place.path if self._open is None else self._open.path
        return None if path is None else callers.joined_django(path)

    def transaction(self) -> SQLiteTransaction:
        opened = self._opened()
        return SQLiteTransaction(
            opened.path, self._place, self._clock, opened.writer, self._ring_all
        )

    def bell(self) -> DataVersionBell:
        path = self._opened().path
        bell = DataVersionBell(
            path.with_name(path.name + "-wal"),
            lambda: self._opened().reader(),
            lambda: self._unhang(bell),
        )
        with self._lock:
            self._bells.append(bell)
        return bell

    def watch(self) -> DataVersionBell:
        return self.bell()

    def migrate(self) -> list[str]:
        self._opened()
        applied, self._applied = self._applied, []
        return applied

    def examine(self) -> Examined:
        path = self._place.path
        return examine(self._place, self.path if path is None else path.resolve())

    def close(self, patience: float = 1.5) -> None:
        """Write what waits, for `patience` seconds at most, and close every connection."""
        with self._lock:
            opened, self._open = self._open, None
            self._vanished = False
        if opened is not None:
            opened.close(patience)

    @property
    def path(self) -> Path:
        """The file, once it is open."""
        return self._opened().path

    def _opened(self) -> Opened:
        if self._broken_by_fork:
            raise StoreUnavailable(
                "this process was forked in the middle of a transaction, and cannot use its "
                "parent's store; make a new Yaoki in it, or fork elsewhere"
            )
        opened = self._open
        if opened is not None and opened.is_in_place:
            return opened
        with self._lock:
            if self._open is not None and self._open is opened:
                self._give_up(opened)
            if self._open is None:
                self._open = self._make()
            return self._open

    def _give_up(self, opened: Opened) -> None:
        """Another file has the name, or none: whoever goes on with this one, works for nothing."""
        self._open, self._vanished = None, True
        for bell in self._bells:
            bell.forget()
        opened.close(0.0)
        if opened.path.exists():
            raise StoreUnavailable(
                f"{opened.path} was replaced by another file while it was in use; the new one is "
                "used from now on, and what was done since the exchange is lost. Next time, stop "
                "all programs that use it first"
            )

    def _opened_beside_a_caller(self) -> Opened:
        """Without waiting: the lock on which a migration would wait may be the caller's own."""
        if self._open is not None or self._broken_by_fork:
            return self._opened()
        with self._lock:
            if self._open is None:
                try:
                    self._open = self._make(busy_timeout=0.2)
                except StoreBusy as error:
                    raise StoreBusy(
                        "yaoki's tables are not there yet, and cannot be made inside your "
                        "transaction: call app.migrate(), or run yaoki migrate, before it begins"
                    ) from error
            return self._open

    @staticmethod
    def _borrowed(connection: Any, path: Path) -> callers.Borrowed:
        borrowed = callers.borrow(connection)
        callers.check_same_database(borrowed.raw, path)
        callers.check_usable(borrowed.raw)
        callers.leave_checkpoints_to_us(borrowed.raw)
        return borrowed

    def _run_on(self, raw: sqlite3.Connection, op: Op[T], opened: Opened) -> T:
        value = callers.run_on(raw, op, self._clock, opened.path)
        if op.writes:
            opened.writer.others_write()
        return value

    def _make(self, busy_timeout: float | None = None) -> Opened:
        private = self._place.path is None
        # Resolved, because SQLite keeps the log beside the file that a link leads to.
        path = place.temporary() if self._place.path is None else self._place.path.resolve()
        place.check(path)
        if self._vanished and not path.exists():
            raise StoreUnavailable(
                f"{path} was deleted while it was in use; put a backup in its place, or restart "
                "this program to begin with an empty queue"
            )
        patience = self._place.busy_timeout if busy_timeout is None else busy_timeout
        connection = connect(path, replace(self._place, busy_timeout=patience), make=True)
        try:
            self._applied = migrate(connection, patience)
        except sqlite3.Error as error:
            raise translated(error, path) from error
        finally:
            connection.close()
        for name in self._applied:
            log.info("schema migration %s applied to %s", name, path)
        return Opened(path, private, self._place, self._clock, self._ring_all)

    def _ring_all(self) -> None:
        for bell in self._bells:
            bell.ring()

    def _unhang(self, bell: DataVersionBell) -> None:
        with self._lock:
            if bell in self._bells:
                self._bells.remove(bell)

    def _before_fork(self) -> None:
        self._lock.acquire()
        self._closed_for_fork = self._open is None or self._open.before_fork(self._bells)

    def _after_fork_in_parent(self) -> None:
        if self._open is not None and self._closed_for_fork:
            self._open.after_fork()
        self._lock.release()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self._bells = []
        self._broken_by_fork = not self._closed_for_fork
        if self._open is not None:
            self._open = self._open.inherited()


async def _awaited(op: Op[T], writer: Writer) -> T:
    """Wait for the writer's thread; a caller who gives up waiting does not stop the write."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def told(value: T, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def done(value: T, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(told, value, error)
        except RuntimeError:
            log.debug("a write ended after the loop of its caller")

    writer.submit(op, done)
    return await future


_alive: "weakref.WeakSet[SQLiteStore]" = weakref.WeakSet()


def _each(act: Callable[[SQLiteStore], None]) -> Callable[[], None]:
    def for_each() -> None:
        for store in list(_alive):
            act(store)

    return for_each


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_each(SQLiteStore._before_fork),
        after_in_parent=_each(SQLiteStore._after_fork_in_parent),
        after_in_child=_each(SQLiteStore._after_fork_in_child),
    )
atexit.register(_each(lambda store: store.close(patience=0.5)))
