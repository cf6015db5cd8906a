"""The database itself, behind yaoki's back: that of a store of either kind, or a SQLite file.

Statements say `yaoki.jobs` and `:name`, as those in the .sql files do. Those for SQLite alone may
also say `yaoki_jobs` and `?`.
"""

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psycopg

from tests.support import postgres
from yaoki.store import Store
from yaoki.store.sql import qualified

Where = Store | Path | str
"""A store, or the path of a SQLite file."""

Rows = list[tuple[Any, ...]]
Ask = Callable[..., Rows]


def is_postgres(where: Where) -> bool:
    return not isinstance(where, Path | str) and where.url.startswith("postgres")


def file_of(where: Where) -> Path:
    """The file of a SQLite store."""
    if isinstance(where, Path | str):
        return Path(where)
    return Path(where.url.removeprefix("sqlite:///").partition("?")[0])


@contextmanager
def opened(path: Path | str) -> Iterator[sqlite3.Connection]:
    """A connection to a SQLite file, of the test's own, in autocommit mode."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=20)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def connected(where: Where) -> Iterator[Ask]:
    """`ask(statement, params)` on one connection, of the test's own, in autocommit mode."""
    if is_postgres(where):
        with postgres_connection(where) as connection:
            yield lambda statement, params=(): _ask_postgres(connection, statement, params)
    else:
        with opened(file_of(where)) as file:
            yield lambda statement, params=(): file.execute(
                qualified(statement, "yaoki_"), params
            ).fetchall()


@contextmanager
def postgres_connection(store: Store) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection to a PostgreSQL store's database, which finds our tables by `yaoki.`."""
    [schema] = parse_qs(urlsplit(store.url).query).get("schema", ["yaoki"])
    assert schema == "yaoki", "the statements of tests name it"
    # With values in the text of the statement, so that PostgreSQL need not guess their types.
    with psycopg.connect(
        postgres.for_libpq(store.url), autocommit=True, cursor_factory=psycopg.ClientCursor
    ) as connection:
        yield connection


def _ask_postgres(
    connection: psycopg.Connection[tuple[Any, ...]], statement: str, params: dict[str, Any]
) -> Rows:
    text = _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))
    cursor = connection.execute(text, params or {})
    return cursor.fetchall() if cursor.description else []


_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")


def ask(where: Where, statement: str, params: Any = ()) -> Rows:
    """The rows of one statement, if it has any."""
    with connected(where) as run:
        return run(statement, params)


def assert_intact(where: Where) -> None:
    """The database is whole, and every row as yaoki promises it."""
    with connected(where) as run:
        if not is_postgres(where):
            assert run("PRAGMA integrity_check") == [("ok",)]
        for promise, broken in BROKEN_PROMISES.items():
            assert run(broken) == [], promise


BROKEN_PROMISES = {
    "a token is odd exactly while the job runs": """
        SELECT id FROM yaoki.jobs WHERE (status = 'running') <> (lease % 2 = 1)
    """,
    "a running job has everything that a rescue needs": """
        SELECT id FROM yaoki.jobs WHERE status = 'running'
            AND (lease_expires_at IS NULL OR lease_for IS NULL OR claimed_at IS NULL
                 OR worker_id IS NULL OR attempt < 1 OR finished_at IS NOT NULL)
    """,
    "a pending job has nobody's name on it": """
        SELECT id FROM yaoki.jobs WHERE status = 'pending'
            AND (worker_id IS NOT NULL OR claimed_at IS NOT NULL OR started_at IS NOT NULL
                 OR lease_expires_at IS NOT NULL OR finished_at IS NOT NULL
                 OR cancel_requested_at IS NOT NULL)
    """,
    "a job that has ended says when, and a completed one has no error": """
        SELECT id FROM yaoki.jobs WHERE status IN ('completed', 'failed', 'cancelled')
            AND (finished_at IS NULL OR lease_expires_at IS NOT NULL
                 OR (status = 'completed' AND (error IS NOT NULL OR result IS NULL)))
    """,
    "a failed job says why": """
        SELECT id FROM yaoki.jobs WHERE status = 'failed' AND error IS NULL
    """,
    "nothing is waiting that has no attempts left": """
        SELECT id FROM yaoki.jobs WHERE status = 'pending' AND attempt >= max_attempts
    """,
    "an attempt's record belongs to a job": """
        SELECT job_id FROM yaoki.attempts WHERE job_id NOT IN (SELECT id FROM yaoki.jobs)
    """,
}


COPIED = """
INSERT INTO yaoki.jobs (
    type, queue, priority, status, payload, run_at, max_attempts, timeout, lease, lease_expires_at,
    finished_at, error, result, created_at, updated_at
)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count)
SELECT
    :type, :queue, :priority, :status, '{}', :run_at, 4, NULL, :lease, NULL,
    :finished_at, :error, :result, :now, :now
FROM number
"""


def insert_rows(where: Where, count: int, now: int, **columns: Any) -> None:
    """So many rows at once: pending and due, unless `columns` say otherwise."""
    row = {
        "type": "other",
        "queue": "default",
        "priority": 0,
        "status": "pending",
        "run_at": now,
        "lease": 0,
        "finished_at": None,
        "error": None,
        "result": None,
    } | columns
    with connected(where) as run:
        if not is_postgres(where):
            run("PRAGMA synchronous = OFF")
        run(COPIED, row | {"count": count, "now": now})


def execute_all(where: Where, statements: Iterable[str]) -> None:
    with connected(where) as run:
        for statement in statements:
            run(statement)


def set_last_id(store: Store, last: int) -> None:
    """As if so many jobs had been made already."""
    if is_postgres(store):
        counter = "pg_get_serial_sequence('yaoki.jobs', 'id')"
        ask(store, f"SELECT setval({counter}, :last)", {"last": last})
    else:
        ask(store, "UPDATE sqlite_sequence SET seq = ? WHERE name = 'yaoki_jobs'", [last])


@contextmanager
def locked(store: Store) -> Iterator[None]:
    """Nobody else can write to the jobs until the block ends."""
    if is_postgres(store):
        with postgres_connection(store) as connection, connection.transaction():
            connection.execute("LOCK TABLE yaoki.jobs IN ACCESS EXCLUSIVE MODE")
            yield
    else:
        with opened(file_of(store)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield


def backup(store: Store) -> Callable[[], None]:
    """Copy the whole database; what comes back restores it. Either way the store is closed."""
    store.close()
    if is_postgres(store):
        databases = postgres.databases()
        copy = databases.copy(store.url)

        def restore() -> None:
            store.close()
            databases.copy(copy, to=store.url)
            databases.leave(copy)
    else:
        file = file_of(store)
        shutil.copy(file, file.with_suffix(".backup"))

        def restore() -> None:
            store.close()
            shutil.copy(file.with_suffix(".backup"), file)

    return restore
