"""A transaction that a handler and yaoki share."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from yaoki.core.errors import TransactionLost
from yaoki.store.base import drive
from yaoki.store.op import Op
from yaoki.store.sqlite.connection import Clock, begin, connect, executor, roll_back, translated
from yaoki.store.sqlite.place import Place
from yaoki.store.sqlite.writer import Writer

T = TypeVar("T")

LOST = (
    "this transaction held the write lock for too long and was rolled back; do the slow work "
    "before the block, and only the writing inside"
)


class SQLiteTransaction:
    """The write lock of the file, held by one handler; other writes of the process wait."""

    def __init__(
        self, path: Path, place: Place, clock: Clock, writer: Writer, wake: Callable[[], None]
    ) -> None:
        self._path, self._wake = path, wake
        self._held = ExitStack()
        self._let_go = self._held.enter_context(writer.turn())
        self._ending = threading.Lock()
        self._lost = False
        self._wakes = False
        try:
            self.connection = connect(path, place)
            self._held.callback(self.connection.close)
            begin(self.connection, place.busy_timeout)
        except BaseException:
            self._held.close()
            raise
        self._execute = executor(self.connection, clock)

    def check(self) -> None:
        if self._lost:
            raise TransactionLost(LOST)

    def run(self, op: Op[T]) -> T:
        self.check()
        try:
            value = drive(op, self._execute)
        except sqlite3.Error as error:
            self.check()
            raise translated(error, self._path) from error
        self._wakes = self._wakes or op.wakes
        return value

    def commit(self) -> None:
        with self._ending:
            self.check()
            try:
                self.connection.execute("COMMIT")
            except sqlite3.Error as error:
                raise translated(error, self._path) from error
            self._held.close()
        if self._wakes:
            self._wake()

    def rollback(self) -> None:
        with self._ending:
            if not self._lost:
                roll_back(self.connection)
            self._held.close()

    def interrupt(self) -> None:
        self._lost = True
        # Errors here say that it is closed already, by whoever was faster.
        with suppress(sqlite3.Error):
            self.connection.interrupt()
        with self._ending, suppress(sqlite3.Error):
            roll_back(self.connection)
            self.connection.close()
        self._let_go()
