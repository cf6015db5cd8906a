"""A look at the file itself: can it be read and written, and is it in danger?"""

import shutil
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from yaoki.core.errors import StoreBusy, YaokiError
from yaoki.store.examined import Examined
from yaoki.store.sqlite import place as places
from yaoki.store.sqlite.connection import DIALECT, patiently, roll_back, translated
from yaoki.store.sqlite.migrate import version
from yaoki.store.sqlite.place import Place
from yaoki.store.sqlite.wal import wal_reset_flaw

LOCK_PATIENCE = 2.0
"""Seconds that the write lock may be held by others while we look."""

BIG_LOG = 256 * 1024 * 1024
LITTLE_SPACE = 200 * 1024 * 1024
NO_SPACE = 20 * 1024 * 1024

_MEGABYTE = 1024 * 1024


def examine(place: Place, path: Path) -> Examined:
    """What can be told about the file; changes nothing, and waits two seconds at the most."""
    found = Examined()
    try:
        places.check(path)
    except YaokiError as error:
        found.fail("database", str(error))
        return found
    if not path.exists():
        found.fail("database", f"there is no file {path}", "make it: yaoki migrate")
        return found
    try:
        with closing(_opened(path)) as connection:
            _look(found, connection, place, path)
    except sqlite3.Error as error:
        found.usable = False
        found.fail("database", str(translated(error, path)))
    except YaokiError as error:
        found.usable = False
        found.fail("database", str(error))
    return found


def _opened(path: Path) -> sqlite3.Connection:
    """Never makes a file, and leaves the journal mode as it is."""
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=LOCK_PATIENCE, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def _look(found: Examined, connection: sqlite3.Connection, place: Place, path: Path) -> None:
    applied = version(connection)
    what = f"SQLite {sqlite3.sqlite_version}, {path}, durability={place.durability}"
    if place.path is None:
        found.warn("database", f"{what}: private to this process", "name a file in the URL")
    else:
        found.ok("database", what)
    found.note_tables(applied, DIALECT)
    _look_at_the_lock(found, connection, path)
    _look_at_the_flaw(found)
    if applied:
        _look_at_the_log(found, connection, path)
    _look_at_the_disk(found, path)


def _look_at_the_lock(found: Examined, connection: sqlite3.Connection, path: Path) -> None:
    """Take the write lock, and let it go again: nothing is written."""
    try:
        deadline = time.monotonic() + LOCK_PATIENCE
        connection.execute("PRAGMA busy_timeout = 0")
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"), deadline)
        roll_back(connection)
    except StoreBusy:
        found.fail(
            "write-lock",
            f"somebody has held the write lock for {LOCK_PATIENCE:g} s, so no job can be enqueued, "
            "claimed or recorded",
            "find the program that keeps a transaction open, and let it end",
        )
    except sqlite3.Error as error:
        found.fail(
            "write-lock",
            f"the file cannot be written to: {error}",
            "check who may write the file and its folder, and the disk",
        )
    else:
        found.ok("write-lock", "can be written to")


def _look_at_the_log(found: Examined, connection: sqlite3.Connection, path: Path) -> None:
    [mode] = connection.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        found.warn(
            "wal",
            f"the journal mode is {mode}, not WAL",
            "let one worker start: it sets the mode",
        )
        return
    size = 0
    with suppress(OSError):
        size = path.with_name(path.name + "-wal").stat().st_size
    if size > BIG_LOG:
        found.warn(
            "wal",
            f"the write-ahead log has {size // _MEGABYTE} MB",
            "a reader that keeps a transaction open keeps it from being emptied: let it end",
        )
    else:
        found.ok("wal", f"the write-ahead log has {size / _MEGABYTE:.1f} MB")


def _look_at_the_flaw(found: Examined) -> None:
    flaw = wal_reset_flaw()
    if flaw is None:
        found.ok("wal-flaw", "this SQLite resets its write-ahead log safely")
    else:
        found.warn("wal-flaw", flaw)


def _look_at_the_disk(found: Examined, path: Path) -> None:
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError:
        return
    said = f"{free // _MEGABYTE:,} MB are free on the disk"
    if free < NO_SPACE:
        found.fail("disk", said, "free some space: SQLite cannot write to a full disk")
    elif free < LITTLE_SPACE:
        found.warn("disk", said, "free some space: SQLite cannot write to a full disk")
    else:
        found.ok("disk", said)
