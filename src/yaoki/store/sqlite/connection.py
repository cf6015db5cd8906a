"""Connections to the file: how they are opened, how statements run, what errors mean."""

import random
import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec

from yaoki.core.errors import StoreBusy, StoreError, StoreUnavailable, UnsupportedStore
from yaoki.store import sql
from yaoki.store.op import Answer, Params, Statement
from yaoki.store.sqlite.place import Place
from yaoki.store.sqlite.wal import LONGEST_LOG

DIALECT = "sqlite"
TABLES = "yaoki_"

OLDEST = (3, 34, 0)

Clock = Callable[[], int]
Execute = Callable[[Statement], Answer]


def host_clock() -> int:
    """Microseconds since the epoch, by the host's clock."""
    return time.time_ns() // 1000


def connect(
    path: Path, place: Place, *, read_only: bool = False, make: bool = False
) -> sqlite3.Connection:
    """A connection in autocommit mode; it may be used by one thread at a time, any thread.

    Only with `make`, a file that is not there is made: who deletes the file of a running program
    shall not get an empty queue.
    """
    if sqlite3.sqlite_version_info < OLDEST:
        raise UnsupportedStore(
            f"this Python comes with SQLite {sqlite3.sqlite_version}; yaoki needs 3.34 or newer"
        )
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={'rwc' if make else 'rw'}",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
    except sqlite3.Error as error:
        raise translated(error, path) from error
    try:
        _prepare(connection, place, read_only)
    except sqlite3.Error as error:
        connection.close()
        raise translated(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, place: Place, read_only: bool) -> None:
    deadline = time.monotonic() + place.busy_timeout
    run = connection.execute
    mode = patiently(lambda: run("PRAGMA journal_mode").fetchone()[0], deadline)
    if mode != "wal":
        mode = patiently(lambda: run("PRAGMA journal_mode = WAL").fetchone()[0], deadline)
    if mode != "wal":
        raise UnsupportedStore(
            f"SQLite cannot use a write-ahead log here (it says {mode!r}); use a local disk, or "
            "PostgreSQL"
        )
    synchronous = "FULL" if place.durability == "full" else "NORMAL"
    run(f"PRAGMA synchronous = {synchronous}")
    # One place checkpoints, by size (docs/decisions/0008-sqlite-writers.md).
    run("PRAGMA wal_autocheckpoint = 0")
    run(f"PRAGMA journal_size_limit = {LONGEST_LOG}")
    run("PRAGMA temp_store = MEMORY")
    run("PRAGMA cache_size = -16000")
    run("PRAGMA mmap_size = 0")
    if read_only:
        run("PRAGMA busy_timeout = 5000")
        run("PRAGMA query_only = ON")


def executor(connection: sqlite3.Connection, clock: Clock) -> Execute:
    """Runs statements on a connection of ours."""
    return _executor(connection.execute, connection.executemany, clock)


def borrowed_executor(connection: sqlite3.Connection, clock: Clock) -> Execute:
    """Runs statements on a caller's connection, whatever rows it makes for its owner."""
    cursor = connection.cursor()
    cursor.row_factory = None
    return _executor(cursor.execute, cursor.executemany, clock)


def _executor(one: Callable[..., Any], many: Callable[..., Any], clock: Clock) -> Execute:
    def execute(statement: Statement) -> Answer:
        params, now = statement.params, clock()
        params["now"] = now
        each, once = _bound(statement.name, statement.text)
        cursor = None
        if statement.many is None:
            for text, values in each:
                cursor = one(text, values(params))
        else:
            for own in statement.many:
                own["now"] = now
            for text, values in each:
                cursor = many(text, [values(own) for own in statement.many])
        for text, values in once:
            cursor = one(text, values(params))
        assert cursor is not None, f"{statement.name}.sql is empty"
        rows = cursor.fetchall() if cursor.description is not None else []
        return Answer(rows, cursor.rowcount, cursor.lastrowid, now)

    return execute


Values = Callable[[Params], Sequence[Any]]
Bound = tuple[tuple[str, Values], ...]


@lru_cache(maxsize=512)
def _bound(name: str, composed: str | None) -> tuple[Bound, Bound]:
    """The statements of a script, each with a way to put its parameters in order.

    By place, because sqlite3 binds a dict by asking for each name anew.
    """
    if composed is not None:
        return (_by_place(sql.qualified(composed, TABLES)),), ()
    script = sql.script(DIALECT, name, TABLES)
    return tuple(map(_by_place, script.each)), tuple(map(_by_place, script.once))


def _by_place(text: str) -> tuple[str, Values]:
    names = _PARAMETER.findall(text)
    if not _LISTS.isdisjoint(names):
        return _PARAMETER.sub("?", text), lambda params: [_flat(params[name]) for name in names]
    if len(names) > 1:
        return _PARAMETER.sub("?", text), itemgetter(*names)
    return _PARAMETER.sub("?", text), lambda params: [params[name] for name in names]


def _flat(value: Any) -> Any:
    """SQLite knows no lists: they are bound as JSON, and read with json_each."""
    return _encode(value).decode() if isinstance(value, list) else value


_encode = msgspec.json.Encoder().encode

_LISTS = frozenset(("but_not", "ids", "keys", "payloads", "queues", "rows", "types"))

_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


def begin(connection: sqlite3.Connection, busy_timeout: float) -> None:
    """Take the write lock before anything is read: a later upgrade could not be waited for."""
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if not is_busy(error):
            raise
        deadline = time.monotonic() + busy_timeout
        patiently(lambda: connection.execute("BEGIN IMMEDIATE"), deadline)


def patiently(act: Callable[[], Any], deadline: float) -> Any:
    """Try again while the database is busy, in short random steps, until `deadline`."""
    pause = 0.000_5
    while True:
        try:
            return act()
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
            if time.monotonic() >= deadline:
                raise StoreBusy(
                    "another program held the SQLite write lock for longer than the busy "
                    "timeout; nothing was changed, try again"
                ) from error
        time.sleep(pause * random.uniform(0.5, 1.0))
        pause = min(pause * 1.3, 0.01)


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo what is open; SQLite has done so itself after some errors."""
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def is_busy(error: sqlite3.Error) -> bool:
    """Is it over when others have done what they are at? PROTOCOL is a crowd at the log's index."""
    return _code(error) & 0xFF in _BUSY


_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def translated(error: sqlite3.Error, path: Path | None) -> Exception:
    """What an error of the driver means to a user of yaoki."""
    code = _code(error) & 0xFF
    name = "the database" if path is None else str(path)
    if code in _BUSY:
        return StoreBusy(f"{name} is locked by another program; nothing was changed, try again")
    for codes, advice in _ADVICE:
        if code in codes:
            return StoreUnavailable(f"{name}: {error}; {advice}")
    return StoreError(f"{name}: {error}")


_ADVICE: Sequence[tuple[tuple[int, ...], str]] = (
    (
        (sqlite3.SQLITE_CANTOPEN,),
        "check that the folder exists, and that it and the file may be read and written",
    ),
    ((sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM), "check who may write the file and folder"),
    ((sqlite3.SQLITE_FULL,), "free some space"),
    ((sqlite3.SQLITE_IOERR,), "the disk failed or is full"),
    ((sqlite3.SQLITE_CORRUPT,), "the file is damaged; restore a backup"),
    (
        (sqlite3.SQLITE_NOTADB,),
        "that file is something else than a SQLite database, or its beginning is damaged: name "
        "another, or restore a backup",
    ),
)


def _code(error: sqlite3.Error) -> int:
    code: int = getattr(error, "sqlite_errorcode", None) or 0
    return code
