"""Raw sqlite3 on a table of yaoki's: the same rows written, by the fewest statements there are."""

import json
import os
import sqlite3
import time
from collections.abc import Sequence

from bench.databases.sqlite import path_of
from bench.limits.raw import WORKER_ID, Row
from yaoki.core.said import DEFAULT_LEASE, DEFAULT_TIMEOUT

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


class RawSQLite:
    """A Raw on a file. See that class."""

    def __init__(self, url: str, durability: str = "full") -> None:
        self._connection = sqlite3.connect(
            path_of(url), isolation_level=None, check_same_thread=False
        )
        self._run = self._connection.execute
        self._run(f"PRAGMA synchronous = {durability}")
        self._run("PRAGMA cache_size = -16000")
        self._run("PRAGMA wal_autocheckpoint = 2000")
        self._running: tuple[str, int] | None = None

    def insert(self, row: Row) -> int:
        return self._run(_INSERT, row).lastrowid or 0

    def insert_many(self, rows: Sequence[Row]) -> None:
        self._run("BEGIN IMMEDIATE")
        self._connection.executemany(_INSERT, rows)
        self._run("COMMIT")

    def exchange(self, limit: int) -> list[int]:
        self._run("BEGIN IMMEDIATE")
        now = time.time_ns() // 1000
        if self._running is not None:
            self._run(_FINISH, {"now": now, "ids": self._running[0], "lease": self._running[1]})
        due = self._run(_DUE, (now, limit)).fetchall()
        ids, lease = json.dumps([row[0] for row in due]), now | 1
        if due:
            self._run(_CLAIM, {"lease": lease, "worker_id": WORKER_ID, "now": now, "ids": ids})
        self._run("COMMIT")
        self._running = (ids, lease) if due else None
        return [row[0] for row in due]

    def insert_and_wake(self, row: Row, pipe: int) -> None:
        self.insert(row)
        os.write(pipe, b"\0")

    def listen(self) -> None:
        """The pipe is open already."""

    def wait(self, pipe: int) -> bool:
        return bool(os.read(pipe, 1))

    def left(self) -> bool:
        [[left]] = self.rows(
            "SELECT EXISTS (SELECT 1 FROM {jobs} WHERE lease % 2 = 1)"
            " OR EXISTS (SELECT 1 FROM {jobs} WHERE status = 'pending')"
        )
        return bool(left)

    def completed(self) -> int:
        [[completed]] = self.rows("SELECT count(*) FROM {jobs} WHERE status = 'completed'")
        return int(str(completed))

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        return self._run(statement.replace("{jobs}", "yaoki_jobs")).fetchall()

    def close(self) -> None:
        self._connection.close()
