"""The SQLite file itself, behind yaoki's back."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from yaoki.store import Store


def file_of(store: Store) -> Path:
    """The file of a SQLite store."""
    return Path(store.url.removeprefix("sqlite:///").partition("?")[0])


@contextmanager
def opened(path: Path | str) -> Iterator[sqlite3.Connection]:
    """A connection of the test's own, in autocommit mode."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=20)
    try:
        yield connection
    finally:
        connection.close()


def ask(path: Path | str, statement: str, params: Any = ()) -> list[tuple[Any, ...]]:
    """The rows of one statement."""
    with opened(path) as connection:
        return connection.execute(statement, params).fetchall()


def assert_intact(path: Path | str) -> None:
    """The file is as SQLite wants it, and every row as yaoki promises it."""
    with opened(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for promise, broken in BROKEN_PROMISES.items():
            assert connection.execute(broken).fetchall() == [], promise


BROKEN_PROMISES = {
    "a token is odd exactly while the job runs": """
        SELECT id FROM yaoki_jobs WHERE (status = 'running') <> (lease % 2 = 1)
    """,
    "a running job has everything that a rescue needs": """
        SELECT id FROM yaoki_jobs WHERE status = 'running'
            AND (lease_expires_at IS NULL OR lease_for IS NULL OR claimed_at IS NULL
                 OR worker_id IS NULL OR attempt < 1 OR finished_at IS NOT NULL)
    """,
    "a pending job has nobody's name on it": """
        SELECT id FROM yaoki_jobs WHERE status = 'pending'
            AND (worker_id IS NOT NULL OR claimed_at IS NOT NULL OR started_at IS NOT NULL
                 OR lease_expires_at IS NOT NULL OR finished_at IS NOT NULL
                 OR cancel_requested_at IS NOT NULL)
    """,
    "a job that has ended says when, and a completed one has no error": """
        SELECT id FROM yaoki_jobs WHERE status IN ('completed', 'failed', 'cancelled')
            AND (finished_at IS NULL OR lease_expires_at IS NOT NULL
                 OR (status = 'completed' AND (error IS NOT NULL OR result IS NULL)))
    """,
    "a failed job says why": """
        SELECT id FROM yaoki_jobs WHERE status = 'failed' AND error IS NULL
    """,
    "nothing is waiting that has no attempts left": """
        SELECT id FROM yaoki_jobs WHERE status = 'pending' AND attempt >= max_attempts
    """,
    "an attempt's record belongs to a job": """
        SELECT job_id FROM yaoki_attempts WHERE job_id NOT IN (SELECT id FROM yaoki_jobs)
    """,
}


COPIED = """
INSERT INTO yaoki_jobs (
    type, queue, priority, status, payload, run_at, max_attempts, timeout, lease, lease_expires_at,
    finished_at, error, result, created_at, updated_at
)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < :count)
SELECT
    :type, :queue, :priority, :status, '{}', :run_at, 4, NULL, :lease, NULL,
    :finished_at, :error, :result, :now, :now
FROM number
"""


def insert_rows(path: Path | str, count: int, now: int, **columns: Any) -> None:
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
    with opened(path) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(COPIED, row | {"count": count, "now": now})


def execute_all(path: Path | str, statements: Iterable[str]) -> None:
    with opened(path) as connection:
        for statement in statements:
            connection.execute(statement)
