"""The open file: the writer, the readers, and what a fork does to them."""

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from yaoki.store.base import drive
from yaoki.store.op import Op
from yaoki.store.sqlite.bell import DataVersionBell
from yaoki.store.sqlite.connection import Clock, Execute, connect, executor, roll_back, translated
from yaoki.store.sqlite.place import Place, identity
from yaoki.store.sqlite.writer import Writer

T = TypeVar("T")

READERS_KEPT = 8

LOOK_EVERY = 0.1
"""Seconds between two looks whether the file is still the one that has its name."""

FORK_PATIENCE = 5.0
"""Seconds that a fork waits for reads and writes that are under way."""


class Opened:
    """Every connection that this process has to the file.

    A connection carried over a fork would break the locks of both processes
    (sqlite.org/howtocorrupt.html, 2.6), so all are closed before a fork, and opened when next
    needed, by parent and child alike.
    """

    def __init__(
        self, path: Path, private: bool, place: Place, clock: Clock, wake: Callable[[], None]
    ) -> None:
        self.path, self.private = path, private
        self._place, self._clock, self._wake = place, clock, wake
        self._owner = os.getpid()
        self._identity, self._look_at = identity(path), 0.0
        self._gate = threading.Lock()
        self._idle: list[tuple[sqlite3.Connection, Execute]] = []
        self._out = 0
        self._counting = threading.Lock()
        self.writer = Writer(path, place, clock, wake)
        self.threads = ThreadPoolExecutor(4, thread_name_prefix="yaoki-read")

    @property
    def is_in_place(self) -> bool:
        """Is it still the file of that name? What is written to another one is lost."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            return identity(self.path) == self._identity
        return True

    def read(self, op: Op[T]) -> T:
        """Run a reading operation: all its statements see the same moment."""
        connection, execute = self._borrow()
        try:
            connection.execute("BEGIN")
            value = drive(op, execute)
            connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._drop(connection)
            raise translated(error, self.path) from error
        except BaseException:
            roll_back(connection)
            self._give_back(connection, execute)
            raise
        self._give_back(connection, execute)
        return value

    def reader(self) -> sqlite3.Connection:
        """A reading connection for somebody who keeps it."""
        with self._gate:
            return connect(self.path, self._place, read_only=True)

    def close(self, patience: float) -> None:
        """Write what waits and close everything; the file of `:memory:` is gone then."""
        self.writer.close(patience)
        self.threads.shutdown(wait=False)
        with self._gate:
            self._close_idle()
        if self.private and os.getpid() == self._owner:
            shutil.rmtree(self.path.parent, ignore_errors=True)

    def before_fork(self, bells: Iterable[DataVersionBell]) -> bool:
        """Close every connection and keep it so; False when somebody is at it for too long."""
        if not self.writer.suspend(FORK_PATIENCE):
            return False
        self._gate.acquire()
        for bell in bells:
            bell.forget()
        deadline = time.monotonic() + FORK_PATIENCE
        while self._out and time.monotonic() < deadline:
            time.sleep(0.001)
        self._close_idle()
        if self._out:
            self.after_fork()
            return False
        return True

    def after_fork(self) -> None:
        """In the parent: go on."""
        self._gate.release()
        self.writer.resume()

    def inherited(self) -> "Opened":
        """In the child: the same file, with nothing open."""
        child = Opened(self.path, self.private, self._place, self._clock, self._wake)
        child._owner = self._owner
        return child

    def _borrow(self) -> tuple[sqlite3.Connection, Execute]:
        with self._gate:
            if self._idle:
                pair = self._idle.pop()
            else:
                connection = connect(self.path, self._place, read_only=True)
                pair = connection, executor(connection, self._clock)
            self._count(1)
            return pair

    def _give_back(self, connection: sqlite3.Connection, execute: Execute) -> None:
        # Not under the gate: whoever is about to fork holds it, and waits for this.
        if len(self._idle) < READERS_KEPT:
            self._idle.append((connection, execute))
        else:
            connection.close()
        self._count(-1)

    def _drop(self, connection: sqlite3.Connection) -> None:
        connection.close()
        self._count(-1)

    def _count(self, change: int) -> None:
        with self._counting:
            self._out += change

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop()[0].close()
