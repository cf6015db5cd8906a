"""All writes of a process: one at a time, and those that wait are committed together."""

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from yaoki.core.errors import StoreBusy, StoreError
from yaoki.store.base import drive
from yaoki.store.op import Op
from yaoki.store.sqlite.checkpoint import Checkpoints
from yaoki.store.sqlite.connection import (
    Clock,
    begin,
    connect,
    executor,
    is_busy,
    roll_back,
    translated,
)
from yaoki.store.sqlite.place import Place

T = TypeVar("T")

TOGETHER = 1_000
"""The most operations in one commit."""


class _Pending:
    """A write that waits for its turn, and for the commit that holds it."""

    __slots__ = ("_done", "_lock", "error", "finished", "op", "value")

    def __init__(self, op: Op[Any], done: Callable[["_Pending"], None] | None = None) -> None:
        self.op = op
        self.value: Any = None
        self.error: BaseException | None = None
        self.finished = False
        self._done = done
        self._lock = threading.Lock()
        self._lock.acquire()

    def finish(self) -> None:
        self.finished = True
        self._lock.release()
        if self._done is not None:
            self._done(self)

    def result(self) -> Any:
        self._lock.acquire()
        if self.error is not None:
            raise self.error
        return self.value


class _Sign(Enum):
    """What else the writer's thread is told."""

    CHECKPOINT = "checkpoint"
    STOP = "stop"


class Writer:
    """The only connection of this process that writes.

    A caller who finds nobody else writing commits for itself, without another thread. Callers
    who would have to wait are queued for the writer's thread, which commits all that came
    meanwhile in one transaction; each caller returns after the commit that holds its work.
    """

    def __init__(self, path: Path, place: Place, clock: Clock, wake: Callable[[], None]) -> None:
        self._path, self._place, self._clock, self._wake = path, place, clock, wake
        self._turn = threading.Lock()
        self._queue: queue.SimpleQueue[_Pending | _Sign] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._checkpoints = Checkpoints(path, place)

    def run(self, op: Op[T]) -> T:
        """Run `op` in a transaction of its own, or together with others that wait."""
        if self._queue.empty() and self._turn.acquire(blocking=False):
            try:
                value: T = self._alone(op)
            finally:
                self._turn.release()
            self._checkpoint_soon()
            return value
        pending = _Pending(op)
        self._submit(pending)
        together: T = pending.result()
        return together

    def submit(self, op: Op[Any], done: Callable[[Any, BaseException | None], None]) -> None:
        """Run `op` soon; `done` is called from the writer's thread."""
        self._submit(_Pending(op, lambda pending: done(pending.value, pending.error)))

    def others_write(self) -> None:
        """Somebody writes on a connection that is not ours, and checkpoints nothing."""
        self._checkpoints.look()
        self._checkpoint_soon()

    @contextmanager
    def turn(self) -> Iterator[Callable[[], None]]:
        """Keep every other write of this process waiting; gives a way to let them go early."""
        self._turn.acquire()
        let_go = _Once(self._turn.release)
        try:
            yield let_go
        finally:
            let_go()

    def close(self, patience: float) -> None:
        """Write what waits, stop the thread, close the connection; in `patience` seconds."""
        end = time.monotonic() + patience
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            self._queue.put(_Sign.STOP)
            thread.join(patience)
            self._thread = None
        if self.suspend(max(end - time.monotonic(), 0.05)):
            self.resume()

    def suspend(self, patience: float) -> bool:
        """Close the connection and keep writers waiting; False when one is at it for too long."""
        if not self._turn.acquire(timeout=patience):
            return False
        self._checkpoints.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        return True

    def resume(self) -> None:
        """Let writers go on."""
        self._turn.release()

    def _alone(self, op: Op[T]) -> T:
        connection = self._open()
        deadline = time.monotonic() + self._place.busy_timeout
        while True:
            try:
                begin(connection, self._place.busy_timeout)
                value = drive(op, self._execute)
                connection.execute("COMMIT")
                break
            except sqlite3.Error as error:
                self._undo(connection)
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise translated(error, self._path) from error
            except BaseException:
                self._undo(connection)
                raise
        self._committed(op.wakes)
        return value

    def _together(self, batch: list[_Pending]) -> None:
        """Each in a savepoint: one that is refused does not undo its neighbours."""
        if len(batch) == 1:
            self._one(batch[0])
            return
        try:
            connection = self._open()
            begin(connection, self._place.busy_timeout)
            for pending in batch:
                self._in_savepoint(connection, pending)
            connection.execute("COMMIT")
        except StoreBusy as busy:
            _fail(batch, busy)
            return
        except (sqlite3.Error, StoreError):
            # One of them, or the database: each for itself tells which.
            if self._connection is not None:
                self._undo(self._connection)
            for pending in batch:
                pending.value = pending.error = None
                self._one(pending)
            return
        self._committed(any(pending.op.wakes for pending in batch))
        for pending in batch:
            pending.finish()

    def _in_savepoint(self, connection: sqlite3.Connection, pending: _Pending) -> None:
        connection.execute("SAVEPOINT one")
        try:
            pending.value = drive(pending.op, self._execute)
        except sqlite3.OperationalError:
            raise
        except Exception as error:
            connection.execute("ROLLBACK TO one")
            pending.error = error
            if isinstance(error, sqlite3.Error):
                pending.error = translated(error, self._path)
        connection.execute("RELEASE one")

    def _one(self, pending: _Pending) -> None:
        try:
            pending.value = self._alone(pending.op)
        except BaseException as error:
            pending.error = error
        pending.finish()

    def _loop(self) -> None:
        while True:
            first = self._queue.get()
            with self._turn:
                batch = [first, *self._waiting()]
                self._serve(batch)
            if _Sign.STOP in batch:
                return

    def _waiting(self) -> list[_Pending | _Sign]:
        batch: list[_Pending | _Sign] = []
        while len(batch) < TOGETHER and not self._queue.empty():
            batch.append(self._queue.get_nowait())
        return batch

    def _serve(self, batch: list[_Pending | _Sign]) -> None:
        work = [one for one in batch if isinstance(one, _Pending)]
        try:
            if work:
                self._together(work)
        except BaseException as error:
            # Whatever it is, nobody may wait for ever for it, nor for the lock.
            if self._connection is not None:
                self._undo(self._connection)
            _fail(work, error)
        if self._checkpoints.due:
            self._checkpoint()

    def _checkpoint_soon(self) -> None:
        if self._checkpoints.due:
            self._submit(_Sign.CHECKPOINT)

    def _checkpoint(self) -> None:
        try:
            connection = self._open()
        except StoreError:
            # The file is gone, or broken: that is told to whoever writes next.
            self._checkpoints.due = False
            return
        self._checkpoints.run(connection)

    def _submit(self, pending: _Pending | _Sign) -> None:
        self._queue.put(pending)
        if self._thread is None and not self._begin_thread():
            # No thread to be had: whoever has something to write does it, for all who wait.
            with self._turn:
                self._serve(self._waiting())

    def _begin_thread(self) -> bool:
        with self._starting:
            if self._thread is None:
                thread = threading.Thread(target=self._loop, name="yaoki-writer", daemon=True)
                try:
                    thread.start()
                except RuntimeError:
                    return False
                self._thread = thread
        return True

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path, self._place)
            self._execute = executor(self._connection, self._clock)
        return self._connection

    def _undo(self, connection: sqlite3.Connection) -> None:
        try:
            roll_back(connection)
        except sqlite3.Error:
            # A connection that cannot even roll back is given up; the next write opens another.
            self._connection = None
            connection.close()

    def _committed(self, wakes: bool) -> None:
        if wakes:
            self._wake()
        self._checkpoints.look()


def _fail(batch: list[_Pending], error: BaseException) -> None:
    for pending in batch:
        if not pending.finished:
            pending.error = error
            pending.finish()


class _Once:
    """A call that has an effect the first time only, from whichever thread."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act, self._first = act, threading.Lock()

    def __call__(self) -> None:
        if self._first.acquire(blocking=False):
            self._act()
