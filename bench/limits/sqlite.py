"""Raw sqlite3 on a table of yaoki's: the same rows written, by the fewest statements there are.

tests/bench/test_limits.py compares the rows with those that yaoki writes.
"""

import json
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from bench.jobs import payload_text
from yaoki.core.said import DEFAULT_LEASE, DEFAULT_TIMEOUT

Row = tuple[object, ...]

BATCHES = (100, 500)
"""Jobs per transaction of a drain; which is better depends on the disk, so both are tried."""

_INSERT = """
INSERT INTO yaoki_jobs (
    type, queue, priority, payload, run_at, max_attempts, timeout, said,
    idempotency_key, tags, created_at, updated_at
)
VALUES (?, 'default', 0, ?, ?, 4, ?, 0, NULL, NULL, ?, ?)
"""

_DUE = """
SELECT id, lease, type, payload FROM yaoki_jobs
WHERE status = 'pending' AND priority = 0 AND run_at <= ?
ORDER BY run_at, id LIMIT ?
"""

_CLAIM = f"""
UPDATE yaoki_jobs SET
    status = 'running', lease = :lease, attempt = attempt + 1, max_attempts = 4,
    timeout = {DEFAULT_TIMEOUT}, backoff = NULL, worker_id = :worker_id, claimed_at = :now,
    started_at = :now, lease_for = {DEFAULT_LEASE}, lease_expires_at = :now + {DEFAULT_LEASE},
    revision = revision + 1, updated_at = :now
WHERE id IN (SELECT value FROM json_each(:ids))
"""

_FINISH = """
UPDATE yaoki_jobs SET
    status = 'completed', lease = lease + 1, lease_expires_at = NULL, error = NULL,
    result = 'null', finished_at = :now, updated_at = :now, revision = revision + 1
WHERE id IN (SELECT value FROM json_each(:ids)) AND lease = :lease
"""

_WORKER_ID = "limit.example.com:12345:0123abcd"


class RawSQLite:
    """A connection with SQLite's own ways and nothing else. One transaction for each call."""

    def __init__(self, path: Path, durability: str = "full") -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._run = self._connection.execute
        self._run(f"PRAGMA synchronous = {durability}")
        self._run("PRAGMA cache_size = -16000")
        self._run("PRAGMA wal_autocheckpoint = 2000")
        self._running: tuple[str, int] | None = None

    def close(self) -> None:
        self._connection.close()

    def insert(self, row: Row) -> None:
        """Enqueue one."""
        self._run(_INSERT, row)

    def insert_many(self, rows: Sequence[Row]) -> None:
        """Enqueue many."""
        self._run("BEGIN IMMEDIATE")
        self._connection.executemany(_INSERT, rows)
        self._run("COMMIT")

    def exchange(self, limit: int) -> list[int]:
        """Finish what was claimed before, and claim the next; their ids."""
        self._run("BEGIN IMMEDIATE")
        now = time.time_ns() // 1000
        if self._running is not None:
            self._run(_FINISH, {"now": now, "ids": self._running[0], "lease": self._running[1]})
        due = self._run(_DUE, (now, limit)).fetchall()
        ids, lease = json.dumps([row[0] for row in due]), now | 1
        if due:
            self._run(_CLAIM, {"lease": lease, "worker_id": _WORKER_ID, "now": now, "ids": ids})
        self._run("COMMIT")
        self._running = (ids, lease) if due else None
        return [row[0] for row in due]

    def left(self) -> bool:
        """Is any job pending or running?"""
        [left] = self._run(
            "SELECT EXISTS (SELECT 1 FROM yaoki_jobs WHERE lease % 2 = 1)"
            " OR EXISTS (SELECT 1 FROM yaoki_jobs WHERE status = 'pending')"
        ).fetchone()
        return bool(left)

    def completed(self) -> int:
        query = "SELECT count(*) FROM yaoki_jobs WHERE status = 'completed'"
        completed: int = self._run(query).fetchone()[0]
        return completed


def rows(count: int, first: int = 0) -> list[Row]:
    """Jobs to be inserted, numbered from `first`."""
    now = time.time_ns() // 1000
    return [
        ("noop", payload_text(number), now, DEFAULT_TIMEOUT, now, now)
        for number in range(first, first + count)
    ]


def drain_rate(path: Path, batch: int) -> float:
    """Jobs a second until everything in the file is completed."""
    raw = RawSQLite(path)
    done = 0
    began = time.perf_counter()
    while claimed := raw.exchange(batch):
        done += len(claimed)
    took = time.perf_counter() - began
    assert raw.completed() == done
    raw.close()
    return done / took
