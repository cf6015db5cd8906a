"""The limits do the same work: the rows they leave are those that yaoki leaves."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.jobs import new_app, payload
from bench.limits.sqlite import RawSQLite, drain_rate, rows
from bench.setting import QUICK, Setting, new_setting
from bench.workloads.drain import drained

JOBS = 30


@pytest.fixture
def setting(tmp_path: Path) -> Iterator[Setting]:
    with new_setting(QUICK, tmp_path) as setting:
        yield setting


def stored(path: Path) -> list[dict[str, object]]:
    """The rows, with what differs from run to run replaced by what it is."""
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    found = [dict(row) for row in connection.execute("SELECT * FROM yaoki_jobs ORDER BY id")]
    connection.close()
    for row in found:
        for column in [name for name in row if name.endswith("_at") and row[name] is not None]:
            row[column] = "an instant"
        if row["lease"]:
            row["lease"] = "an odd token" if row["lease"] % 2 else "an even token"
        if row["worker_id"] is not None:
            row["worker_id"] = "a worker"
    return found


def test_a_raw_insert_writes_what_enqueue_writes(setting: Setting) -> None:
    ours, limit = setting.new_database(), setting.new_database()
    types, raw = new_app(ours), RawSQLite(limit)

    for number in range(JOBS):
        types.kind("noop").enqueue(**payload(number))
    raw.insert_many(rows(JOBS - 1))
    raw.insert(rows(1, JOBS - 1)[0])
    types.app.close()
    raw.close()

    assert stored(limit) == stored(ours)


def test_a_raw_drain_writes_what_a_worker_writes(setting: Setting) -> None:
    filled = setting.filled_database("noop", JOBS)

    with setting.copied(filled) as ours, setting.copied(filled) as limit:
        drained(setting, ours, JOBS)
        drain_rate(limit, 7)

        assert stored(limit) == stored(ours)
        assert {row["status"] for row in stored(limit)} == {"completed"}


def test_a_raw_claim_writes_what_a_claim_writes(setting: Setting) -> None:
    filled = setting.filled_database("noop", JOBS)

    with setting.copied(filled) as ours, setting.copied(filled) as limit:
        app = new_app(ours).app
        app.claim("w", limit=JOBS)
        app.close()
        raw = RawSQLite(limit)
        raw.exchange(JOBS)
        raw.close()

        assert stored(limit) == stored(ours)
        assert {row["status"] for row in stored(limit)} == {"running"}


def test_both_connections_wait_for_the_disk_in_the_same_way(setting: Setting) -> None:
    path = setting.new_database()

    levels = []
    for durability in ("full", "normal"):
        raw = RawSQLite(path, durability)
        levels += raw._run("PRAGMA synchronous").fetchone()
        assert raw._run("PRAGMA journal_mode").fetchone() == ("wal",)
        raw.close()

    assert levels == [2, 1]
