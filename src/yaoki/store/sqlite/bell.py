"""Noticing that another connection, of this process or of any other, has committed."""

import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

from yaoki.core.errors import YaokiError
from yaoki.store.sqlite.watch import FileWatch, watch

EVERY = 0.001_5
"""Seconds between two looks at `PRAGMA data_version` where files cannot be watched."""

EVERY_WATCHED = 0.1
"""Seconds between two looks where the log is watched; a look stands behind every watch."""

SOON = 0.000_2
"""Seconds until the first look after a write to the log, which comes before the commit is seen."""

ALERT = 0.1
"""Seconds after such a write in which looks are frequent: that long a commit may take."""

AFTERWARDS = 0.005
"""The same after a commit was seen, for another that was being written meanwhile."""

AFTER_TROUBLE = 0.25


class DataVersionBell:
    """Rings when this process says so, or when the file's data version has moved.

    On Linux it sleeps until the write-ahead log is written to; elsewhere it asks, often.
    """

    trouble: str | None = None

    def __init__(
        self,
        log: Path,
        connect: Callable[[], sqlite3.Connection],
        closed: Callable[[], None],
        *,
        watched: bool = True,
    ) -> None:
        self._log, self._connect, self._closed, self._watched = log, connect, closed, watched
        self._rung = threading.Event()
        self._looking = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._watch: FileWatch | None = None
        self._seen = -1
        self._blind_until = 0.0
        self._alert_until = 0.0
        self._pause = SOON

    def ring(self) -> None:
        self._rung.set()
        watching = self._watch
        if watching is not None:
            watching.wake()

    def wait(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while True:
            if self._rung.is_set() or self._moved():
                self._rung.clear()
                return True
            left = end - time.monotonic()
            if left <= 0:
                return False
            self._sleep(left)

    def hush(self) -> None:
        """Nobody is put to any trouble by ringing it."""

    def close(self) -> None:
        self.forget()
        self._closed()

    def forget(self) -> None:
        """Drop the connection; the next look opens another."""
        with self._looking:
            self._drop()

    def _sleep(self, left: float) -> None:
        watching = self._watch
        if watching is None:
            self._rung.wait(min(left, EVERY))
        elif time.monotonic() < self._alert_until:
            self._rung.wait(min(left, self._pause))
            self._pause = min(self._pause * 1.5, EVERY)
        elif watching.wait(min(left, EVERY_WATCHED)):
            self._be_alert(ALERT)

    def _moved(self) -> bool:
        """True when somebody has committed since the last look, or when it cannot be told."""
        if time.monotonic() < self._blind_until:
            return False
        if self._connection is None and not self._reconnect():
            return True
        with self._looking:
            if self._connection is None:
                return False
            try:
                [version] = self._connection.execute("PRAGMA data_version").fetchone()
            except sqlite3.Error:
                self._drop()
                return self._blind()
            if self._watch is not None and self._watch.written():
                self._be_alert(ALERT)
        moved: bool = version != self._seen
        if moved:
            self._seen = version
            self._be_alert(AFTERWARDS)
        return moved

    def _be_alert(self, seconds: float) -> None:
        self._alert_until = time.monotonic() + seconds
        self._pause = SOON

    def _reconnect(self) -> bool:
        # Not while looking: before a fork nothing new is opened, and looking must end.
        try:
            connection = self._connect()
        except (YaokiError, sqlite3.Error):
            self._blind()
            return False
        with self._looking:
            self._drop()
            self._connection, self._seen = connection, -1
            # The log is the same file for as long as a connection is open.
            self._watch = watch(self._log) if self._watched else None
        return True

    def _drop(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _blind(self) -> bool:
        """Cannot tell for a moment: a look at the table itself stands behind every bell."""
        self._blind_until = time.monotonic() + AFTER_TROUBLE
        return True
