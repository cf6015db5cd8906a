"""The caller's own connection: sqlite3, SQLAlchemy or Django, to the same file."""

import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from yaoki.core.errors import StoreBusy, WrongConnection
from yaoki.store.base import drive
from yaoki.store.op import Op
from yaoki.store.sqlite.connection import Clock, borrowed_executor, is_busy, translated
from yaoki.store.sqlite.place import same_file
from yaoki.store.sqlite.wal import FAR_BEHIND, wal_reset_flaw

T = TypeVar("T")

_HOW = (
    "pass a sqlite3.Connection, a SQLAlchemy Connection or Session, or a Django connection "
    "to the queue's own file"
)


class Borrowed(NamedTuple):
    """A caller's connection: the driver's own, and how its owner commits."""

    raw: sqlite3.Connection
    block: Callable[[], AbstractContextManager[Any]]
    """A block of the owner's that commits at its end, or rolls back."""


def borrow(connection: Any) -> Borrowed:
    """The driver's connection under whatever the caller has; WrongConnection says why not."""
    family = type(connection).__module__.partition(".")[0]
    if isinstance(connection, sqlite3.Connection):
        return Borrowed(connection, lambda: _sqlite3_block(connection))
    if family == "sqlalchemy":
        return _from_sqlalchemy(connection)
    if family == "django":
        return _from_django(connection)
    if family in ("apsw", "pysqlite3", "sqlean", "libsql", "libsql_experimental", "sqlcipher3"):
        raise WrongConnection(
            f"{family} brings a SQLite library of its own, and two of them in one process damage "
            f"the file that both have open; {_HOW}"
        )
    if family in ("psycopg", "psycopg2", "asyncpg"):
        raise WrongConnection(
            "that connection is to PostgreSQL, and the jobs are in a SQLite file: one transaction "
            f"cannot span both; {_HOW}"
        )
    raise WrongConnection(f"a {family}.{type(connection).__qualname__} cannot be used; {_HOW}")


def check_same_database(raw: sqlite3.Connection, path: Path) -> None:
    """Refuse a connection to another database than the queue's."""
    file = database_of(raw)
    if not file:
        raise WrongConnection(
            f"that connection is to a database in memory, and the jobs are in {path}; {_HOW}"
        )
    if not same_file(file, path):
        raise WrongConnection(
            f"that connection is to {file}, and the jobs are in {path}: one transaction cannot "
            f"span both; {_HOW}"
        )


def check_usable(raw: sqlite3.Connection) -> None:
    """Refuse what would change the answers that yaoki reads."""
    if raw.text_factory is not str:
        raise WrongConnection(
            "that connection has a text_factory of its own, so text would come back changed; "
            "use one with the default"
        )


def leave_checkpoints_to_us(raw: sqlite3.Connection) -> None:
    """Where a checkpoint beside another writer may lose commits, keep the caller's from being one.

    Not for ever: should nobody else do it, his own come when the log is long.
    """
    if wal_reset_flaw() is None:
        return
    cursor = raw.cursor()
    cursor.row_factory = None
    [pages] = cursor.execute("PRAGMA wal_autocheckpoint").fetchone()
    if 0 < pages < FAR_BEHIND:
        cursor.execute(f"PRAGMA wal_autocheckpoint = {FAR_BEHIND}")


def database_of(raw: sqlite3.Connection) -> str:
    cursor = raw.cursor()
    cursor.row_factory = None
    for _, name, file in cursor.execute("PRAGMA database_list"):
        if name in ("main", b"main"):
            return file if isinstance(file, str) else bytes(file or b"").decode()
    return ""


def run_on(raw: sqlite3.Connection, op: Op[T], clock: Clock, path: Path | None) -> T:
    """Run `op` in the open transaction of `raw`: all of it, or nothing of it."""
    try:
        if not op.writes:
            return drive(op, borrowed_executor(raw, clock))
        if not raw.in_transaction and begins_by_itself(raw):
            # The driver begins before an INSERT, not before a SAVEPOINT: without this, releasing
            # the savepoint would commit behind the caller's back.
            raw.execute("BEGIN IMMEDIATE")
        raw.execute("SAVEPOINT yaoki")
        try:
            value = drive(op, borrowed_executor(raw, clock))
        except BaseException:
            if raw.in_transaction:
                raw.execute("ROLLBACK TO yaoki")
                raw.execute("RELEASE yaoki")
            raise
        raw.execute("RELEASE yaoki")
    except sqlite3.Error as error:
        if is_busy(error):
            raise StoreBusy(
                "your transaction could not get the write lock: another has it, or has written "
                "since yours first read; begin with BEGIN IMMEDIATE, and try the whole again"
            ) from error
        raise translated(error, path) from error
    return value


def begins_by_itself(raw: sqlite3.Connection) -> bool:
    """Does the driver open a transaction before the first change (its older default)?"""
    legacy = getattr(raw, "autocommit", -1) == -1
    return legacy and raw.isolation_level is not None


def joined_django(path: Path) -> Any:
    """Django's connection to the file, when one of its transactions is open in this thread."""
    django = sys.modules.get("django.db")
    if django is None:
        return None
    try:
        connections = django.connections.all(initialized_only=True)
    except Exception:  # settings that are not configured: Django is there, but not in use
        return None
    for connection in connections:
        is_open = connection.vendor == "sqlite" and connection.in_atomic_block
        if is_open and same_file(str(connection.settings_dict["NAME"]), path):
            return connection
    return None


def _from_sqlalchemy(connection: Any) -> Borrowed:
    owner = connection
    if hasattr(connection, "sync_session") or hasattr(connection, "sync_connection"):
        raise WrongConnection(
            "SQLAlchemy's asyncio connections keep SQLite in a thread of their own; use a "
            "Session or Connection that is not async, or enqueue after the commit"
        )
    if hasattr(connection, "get_bind"):
        connection = connection.connection()
    if not hasattr(connection, "get_transaction"):
        raise WrongConnection(
            f"a SQLAlchemy {type(owner).__qualname__} is no connection; pass a Connection or a "
            "Session"
        )
    if not connection.in_transaction():
        connection.begin()
    raw = connection.connection.driver_connection
    if not isinstance(raw, sqlite3.Connection):
        return borrow(raw)
    return Borrowed(raw, lambda: _commit_or_roll_back(owner))


def _from_django(connection: Any) -> Borrowed:
    if getattr(connection, "vendor", "") != "sqlite":
        raise WrongConnection(f"that Django connection is not to SQLite; {_HOW}")
    connection.ensure_connection()
    transaction = sys.modules["django.db.transaction"]
    return Borrowed(connection.connection, lambda: transaction.atomic(using=connection.alias))


@contextmanager
def _commit_or_roll_back(owner: Any) -> Iterator[None]:
    try:
        yield
    except BaseException:
        owner.rollback()
        raise
    owner.commit()


@contextmanager
def _sqlite3_block(raw: sqlite3.Connection) -> Iterator[None]:
    if not raw.in_transaction:
        raw.execute("BEGIN IMMEDIATE")
    with _commit_or_roll_back(raw):
        yield
