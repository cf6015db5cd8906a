"""Writing the log back into the file, in the one way that no other writer can be hurt by."""

import logging
import sqlite3
import time
from pathlib import Path

from yaoki.core.errors import StoreBusy, StoreError
from yaoki.store.sqlite.connection import begin, connect, roll_back
from yaoki.store.sqlite.place import Place
from yaoki.store.sqlite.wal import CHECKPOINT_AT, frames_in

log = logging.getLogger("yaoki.store")

LOOK_EVERY = 0.02

LOCK_PATIENCE = 0.25
"""Seconds that a checkpoint waits for the write lock before it is put off."""

READERS_PATIENCE = 0.25
"""Seconds that it then keeps writers waiting for those who still read what is older."""

PUT_OFF = 1.0
"""Seconds until the next try, when somebody was in the way."""


class Checkpoints:
    """When the log is written back, and how.

    Older SQLites lose commits when a checkpoint runs beside a writer who starts the log anew
    (wal_reset_flaw), and RESTART does run beside one, as PASSIVE, when it cannot have the write
    lock. So a second connection excludes that while one checkpoints: it has the write lock, or
    reads (docs/decisions/0027-clocks-and-checkpoints.md).

    The log keeps its length: to write over what is there is a third faster than to append.
    """

    def __init__(self, path: Path, place: Place) -> None:
        self._path, self._place = path, place
        self._wal = path.with_name(path.name + "-wal")
        self._connection: sqlite3.Connection | None = None
        self.due = False
        self._look_at = self._next_at = 0.0
        self._stuck_at = -1

    def look(self) -> None:
        """After a commit: is one due?"""
        now = time.monotonic()
        if now >= self._look_at and now >= self._next_at:
            self._look_at = now + LOOK_EVERY
            self.due = frames_in(self._wal) > CHECKPOINT_AT

    def run(self, writer: sqlite3.Connection) -> None:
        """Write the log back and let it start anew; put off while others are in the way.

        `writer` is a connection that is in no transaction.
        """
        self.due = False
        done = False
        try:
            length = self._write_back(writer)
            done = length is not None and self._start_anew(writer, length)
        except StoreBusy:
            log.debug("no checkpoint: another program holds the write lock")
        except (sqlite3.Error, StoreError) as error:
            self.close()
            log.warning("checkpoint failed: %s", error)
        self._next_at = time.monotonic() + (0.0 if done else PUT_OFF)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write_back(self, writer: sqlite3.Connection) -> int | None:
        """Write all of it back while nobody else can write; its pages, or None if not all."""
        begin(writer, LOCK_PATIENCE)
        try:
            end = time.monotonic() + READERS_PATIENCE
            while True:
                [busy, length, written] = self._checkpoint("PASSIVE")
                if not busy and length == written:
                    return length
                if time.monotonic() >= end or written == self._stuck_at:
                    # Who reads for so long is not waited for again, only looked for.
                    self._stuck_at = written
                    return None
                time.sleep(0.002)
        finally:
            roll_back(writer)

    def _start_anew(self, writer: sqlite3.Connection, length: int) -> bool:
        """Wait until nobody reads from the log, so that the next commit starts it anew.

        Meanwhile `writer` reads: from the file, if nothing was written since, and then no
        checkpoint can copy anything; else from the log, and then nobody can start it anew.
        """
        writer.execute("BEGIN")
        try:
            writer.execute("SELECT 1 FROM sqlite_master").fetchone()
            if frames_in(self._wal) != length:
                return False
            [busy, _, _] = self._checkpoint("RESTART")
            return not busy
        finally:
            roll_back(writer)

    def _checkpoint(self, mode: str) -> tuple[int, int, int]:
        """What SQLite says: was somebody in the way, pages in the log, pages written back."""
        if self._connection is None:
            self._connection = connect(self._path, self._place)
            patience = round(READERS_PATIENCE * 1000)
            self._connection.execute(f"PRAGMA busy_timeout = {patience}")
        answer: tuple[int, int, int] = self._connection.execute(
            f"PRAGMA wal_checkpoint({mode})"
        ).fetchone()
        return answer
