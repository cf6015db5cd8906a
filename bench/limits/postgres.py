"""Raw libpq, as psycopg wraps it, on a table of yaoki's: the same rows, the fewest round trips.

Every statement is prepared, every value is binary, and what belongs to one transaction is sent at
once: up to its Sync, a pipeline is one transaction.
"""

import select
import struct
import time
from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.pq import ExecStatus
from psycopg.pq.abc import PGresult

from bench.databases.postgres import conninfo_of
from bench.limits.raw import WORKER_ID, Row
from yaoki.core.said import DEFAULT_LEASE

_INSERT = """
INSERT INTO yaoki.jobs (
    type, queue, priority, payload, run_at, max_attempts, timeout, said,
    idempotency_key, tags, created_at, updated_at
)
VALUES (
    $1::text, 'default', 0, $2::text, $3::bigint, 4, $4::bigint, 0, NULL, NULL, $5::bigint,
    $6::bigint
)
RETURNING id
"""

_COPY = """
COPY yaoki.jobs (
    type, payload, run_at, timeout, created_at, updated_at, queue, priority, max_attempts
)
FROM STDIN
"""

_FINISH = """
UPDATE yaoki.jobs SET
    status = 'completed', lease = lease + 1, lease_expires_at = NULL, error = NULL,
    result = 'null', finished_at = $1::bigint, updated_at = $1::bigint, revision = revision + 1
WHERE id = ANY($2::bigint[]) AND lease = $3::bigint
"""

_CLAIM = f"""
UPDATE yaoki.jobs SET
    status = 'running', lease = $1::bigint | 1, attempt = attempt + 1, max_attempts = 4,
    backoff = NULL, worker_id = '{WORKER_ID}', claimed_at = $1::bigint, started_at = $1::bigint,
    lease_for = {DEFAULT_LEASE}, lease_expires_at = $1::bigint + {DEFAULT_LEASE},
    revision = revision + 1, updated_at = $1::bigint
WHERE id = ANY(ARRAY(
    SELECT id FROM yaoki.jobs
    WHERE status = 'pending' AND priority = 0 AND run_at <= $1::bigint
    ORDER BY run_at, id
    LIMIT $2::bigint
    FOR UPDATE SKIP LOCKED
))
RETURNING id, type, payload, attempt
"""

_PREPARED = {
    b"insert": _INSERT,
    b"insert_and_notify": f"WITH made AS ({_INSERT}) SELECT pg_notify('of_limit', '') FROM made",
    b"finish": _FINISH,
    b"claim": _CLAIM,
}

_bigint = struct.Struct("!q").pack

Message = tuple[bytes, Sequence[bytes]]
"""The name of a prepared statement, and its values."""


class RawPostgres:
    """A Raw on one session. See that class."""

    def __init__(self, url: str, durability: str = "full") -> None:
        self._connection = psycopg.connect(conninfo_of(url), autocommit=True)
        if durability == "normal":
            self._connection.execute("SET synchronous_commit = off")
        self._pg = self._connection.pgconn
        for name, text in _PREPARED.items():
            _good(self._pg.prepare(name, text.encode()))
        self._running: tuple[list[int], int] = ([], 0)

    def insert(self, row: Row) -> int:
        return _ids(self._run(b"insert", _values(row)))[0]

    def insert_many(self, rows: Sequence[Row]) -> None:
        with self._connection.cursor().copy(_COPY) as copy:
            for row in rows:
                copy.write_row((*row, "default", 0, 4))

    def exchange(self, limit: int) -> list[int]:
        now = time.time_ns() // 1000
        messages: list[Message] = []
        ids, lease = self._running
        if ids:
            messages.append((b"finish", (_bigint(now), _bigints(ids), _bigint(lease))))
        if limit:
            messages.append((b"claim", (_bigint(now), _bigint(limit))))
        results = self._together(messages)
        claimed = _ids(results[-1]) if limit else []
        self._running = claimed, now | 1
        return claimed

    def insert_and_wake(self, row: Row, pipe: int) -> None:
        self._run(b"insert_and_notify", _values(row))

    def listen(self) -> None:
        self._connection.execute("LISTEN of_limit")

    def wait(self, pipe: int) -> bool:
        while not self._pg.notifies():
            readable, _, _ = select.select([pipe, self._pg.socket], [], [])
            if pipe in readable:
                return False
            self._pg.consume_input()
        return True

    def left(self) -> bool:
        [[left]] = self.rows(
            "SELECT EXISTS (SELECT FROM {jobs} WHERE lease % 2 = 1)"
            " OR EXISTS (SELECT FROM {jobs} WHERE status = 'pending')"
        )
        return bool(left)

    def completed(self) -> int:
        [[completed]] = self.rows("SELECT count(*) FROM {jobs} WHERE status = 'completed'")
        return int(str(completed))

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.replace("{jobs}", "yaoki.jobs").encode())
        return [] if cursor.description is None else cursor.fetchall()

    def close(self) -> None:
        self._connection.close()

    def _run(self, name: bytes, values: Sequence[bytes]) -> PGresult:
        return _good(self._pg.exec_prepared(name, values, [1] * len(values), 1))

    def _together(self, messages: Sequence[Message]) -> list[PGresult]:
        """One transaction, one round trip."""
        pg, results = self._pg, []
        pg.enter_pipeline_mode()
        for name, values in messages:
            pg.send_query_prepared(name, values, [1] * len(values), 1)
        pg.pipeline_sync()
        for _ in messages:
            results.append(_good(pg.get_result()))
            assert pg.get_result() is None
        _good(pg.get_result())
        pg.exit_pipeline_mode()
        return results


def _values(row: Row) -> Sequence[bytes]:
    kind, payload, run_at, timeout, created_at, updated_at = row
    return (
        kind.encode(),
        payload.encode(),
        _bigint(run_at),
        _bigint(timeout),
        _bigint(created_at),
        _bigint(updated_at),
    )


def _bigints(values: Sequence[int]) -> bytes:
    """An array as PostgreSQL sends it: dimensions, nulls, type, length, first index, elements."""
    flat = [8] * (2 * len(values))
    flat[1::2] = values
    return struct.pack(f"!5i{'iq' * len(values)}", 1, 0, 20, len(values), 1, *flat)


def _ids(result: PGresult) -> list[int]:
    return [_bigint_of(result.get_value(row, 0)) for row in range(result.ntuples)]


def _bigint_of(value: bytes | None) -> int:
    assert value is not None
    return int.from_bytes(value, "big")


_GOOD = (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.PIPELINE_SYNC)


def _good(result: PGresult | None) -> PGresult:
    assert result is not None
    if result.status not in _GOOD:
        raise psycopg.DatabaseError(result.error_message.decode())
    return result
