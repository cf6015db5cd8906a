"""Every statement prepares, and finds its rows by the index that was made for it."""

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.databases import insert_rows
from yaoki.store import SQLiteStore, sql

NOW = 1_800_000_000_000_000
NAMES = sql.names("sqlite")

VALUES = {
    "types": '["mail", "image"]',
    "queues": '["default", "mail"]',
    "ids": "[1, 2, 3]",
    "keys": '["a", "b"]',
    "now": NOW,
    "type": "mail",
    "queue": "default",
    "priority": 0,
    "limit": 10,
    "window": 1_000,
}
"""What is bound where the value could matter; 1 for every other parameter."""

BY_ID = "PRIMARY KEY (rowid=?)"
PAUSED = "PRIMARY KEY (kind=?)"

PLANS = {
    "tiers": {
        "yaoki_jobs_due",
        "yaoki_jobs_due (priority<?)",
        "yaoki_jobs_due (priority=? AND run_at<?)",
        "yaoki_jobs_due (priority=? AND run_at>?)",
    },
    "due": {"yaoki_jobs_due (priority=? AND run_at<?)", PAUSED},
    "due_count": {"yaoki_jobs_due (priority=? AND run_at<?)"},
    "lanes": {
        BY_ID,
        "yaoki_jobs_lane (type=?)",
        "yaoki_jobs_lane (type=? AND queue=? AND priority>?)",
        "yaoki_jobs_lane (type=? AND queue>?)",
        PAUSED,
    },
    "lanes_of": {
        "yaoki_jobs_lane (type=? AND queue=?)",
        "yaoki_jobs_lane (type=? AND queue=? AND priority>?)",
        PAUSED,
    },
    "lane": {"yaoki_jobs_lane (type=? AND queue=? AND priority=? AND run_at<?)"},
    "pending_types": {"yaoki_jobs_lane", "yaoki_jobs_lane (type>?)"},
    "heads": {
        BY_ID,
        "yaoki_jobs_lane (type=? AND queue=? AND priority>?)",
        "yaoki_jobs_lane (type=? AND queue>?)",
        "yaoki_jobs_lane (type>?)",
    },
    "overdue": {"yaoki_jobs_held"},
    "first_of": {BY_ID},
    "claim": {BY_ID},
    "complete": {BY_ID},
    "settle": {BY_ID},
    "renew": {BY_ID},
    "extend": {BY_ID},
    "progress": {BY_ID},
    "mark_started": {BY_ID},
    "cancel": {BY_ID},
    "retry": {BY_ID},
    "discard": {BY_ID, "PRIMARY KEY (job_id=?)"},
    "get": {BY_ID},
    "leases_of": {BY_ID},
    "leases_held": {BY_ID},
    "leases_free": {BY_ID},
    "held_rows": {BY_ID},
    "attempts": {"PRIMARY KEY (job_id=?)", "PRIMARY KEY (job_id=? AND lease>?)"},
    "leases": {"yaoki_jobs_held (id>? AND id<?)"},
    "lease_page": {"yaoki_jobs_held (id>?)"},
    "can_write": {BY_ID},
    "held_by": {"yaoki_jobs_held"},
    "watched": {"yaoki_jobs_held"},
    "dead_rows": {"yaoki_jobs_held"},
    "cancelling": {BY_ID},
    "log": {BY_ID},
    "log_trim": {"PRIMARY KEY (job_id=?)", "PRIMARY KEY (job_id=? AND lease<?)"},
    "logs": {BY_ID, "PRIMARY KEY (job_id=?)", "PRIMARY KEY (job_id=? AND lease=?)"},
    "expired_rows": {"yaoki_jobs_held"},
    "get_by_key": {"yaoki_jobs_key (idempotency_key=?)"},
    "get_by_keys": {"yaoki_jobs_key (idempotency_key=?)"},
    "failed_ids": {"yaoki_jobs_failed (id>?)"},
    "definition": {"PRIMARY KEY (type=?)"},
    "once_forget": {"PRIMARY KEY (scope=? AND key=?)", "yaoki_once_done (done_at<?)"},
}
"""How each statement on the way of a job, or of a worker, finds its rows."""

SORTED = {
    "lanes",
    "lanes_of",
    "due",
    "due_count",
    "lane",
    "tiers",
    "failed_ids",
    "leases",
    "logs",
    "log_trim",
    "lease_page",
}
"""Statements whose rows come in order, or need none: nothing is to be sorted for them."""


def migrated(folder: Path) -> Path:
    """A new file with our tables in it."""
    store = SQLiteStore(f"sqlite:///{folder / 'jobs.db'}?durability=normal")
    store.migrate()
    store.close()
    return folder / "jobs.db"


def fill(file: Path, each: int = 5_000) -> None:
    """So many rows of each of ten kinds."""
    done = {"finished_at": NOW, "lease": 2}
    kinds = [
        {"status": "pending"},
        {"status": "pending", "run_at": NOW + 10**12, "priority": 100},
        {"status": "pending", "type": "mail", "queue": "mail"},
        {"status": "pending", "type": "unknown"},
        {"status": "pending", "priority": -5, "queue": "mail"},
        {"status": "completed", "result": "null"} | done,
        {"status": "completed", "result": "null", "type": "mail"} | done,
        {"status": "failed", "error": "no"} | done,
        {"status": "failed", "error": "no", "type": "mail", "queue": "mail"} | done,
        {"status": "cancelled"} | done,
    ]
    for columns in kinds:
        insert_rows(file, each, NOW, **columns)


def analysed(file: Path) -> None:
    execute(file, "ANALYZE")


def analysed_when_few(file: Path) -> None:
    fill(file, 1)
    analysed(file)
    fill(file)


def analysed_when_full(file: Path) -> None:
    fill(file)
    analysed(file)


def emptied(file: Path) -> None:
    analysed_when_full(file)
    execute(file, "UPDATE yaoki_jobs SET status = 'completed', finished_at = 1, result = 'null'")


def one_kind(file: Path) -> None:
    """Every row is pending and like every other: no index seems to tell them apart."""
    insert_rows(file, 50_000, NOW)
    analysed(file)


SITUATIONS: dict[str, Callable[[Path], None]] = {
    "empty": lambda file: None,
    "full": fill,
    "analysed when few": analysed_when_few,
    "analysed": analysed_when_full,
    "emptied": emptied,
    "one kind": one_kind,
}


def execute(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(statement)


@pytest.fixture(scope="module", params=SITUATIONS)
def database(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[sqlite3.Connection]:
    """A migrated file in one of the situations that mislead a planner."""
    file = migrated(tmp_path_factory.mktemp("plans"))
    SITUATIONS[request.param](file)
    # Statistics are read when a connection first sees the schema.
    with closing(sqlite3.connect(file)) as connection:
        yield connection


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(migrated(tmp_path))) as connection:
        yield connection


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_prepares(name: str, empty: sqlite3.Connection) -> None:
    script = sql.script("sqlite", name, "yaoki_")

    statements = script.each + script.once

    assert statements
    for text in statements:
        assert empty.execute(f"EXPLAIN {text}", bound(text)).fetchall()


@pytest.mark.parametrize("name", PLANS)
def test_every_statement_finds_its_rows_by_the_index_made_for_it(
    name: str, database: sqlite3.Connection
) -> None:
    steps = plan(database, name)

    assert {access for step in steps if (access := access_of(step))} == PLANS[name], steps
    assert [step for step in steps if scans_a_table(step)] == []


@pytest.mark.parametrize("name", sorted(SORTED))
def test_nothing_is_sorted_to_find_what_is_next(name: str, database: sqlite3.Connection) -> None:
    steps = plan(database, name)

    assert not any("TEMP B-TREE" in step for step in steps), steps


def test_the_window_of_due_jobs_is_left_as_soon_as_enough_are_found(
    database: sqlite3.Connection,
) -> None:
    steps = plan(database, "due")

    assert steps[0].startswith("CO-ROUTINE"), steps
    assert not any(step.startswith("MATERIALIZE") for step in steps), steps


def plan(connection: sqlite3.Connection, name: str) -> list[str]:
    """The steps of every statement in a file."""
    script = sql.script("sqlite", name, "yaoki_")
    steps: list[str] = []
    for text in script.each + script.once:
        rows = connection.execute(f"EXPLAIN QUERY PLAN {text}", bound(text))
        steps += [detail for _, _, _, detail in rows]
    return steps


def bound(text: str) -> dict[str, object]:
    return {name: VALUES.get(name, 1) for name in _PARAMETER.findall(text)}


def access_of(step: str) -> str | None:
    """The index, or key, and what of it is used: `yaoki_jobs_due (priority=?)`."""
    found = re.search(r" USING (?:INTEGER |COVERING )?(?:INDEX )?(.*)", step)
    return found[1] if found else None


def scans_a_table(step: str) -> bool:
    """Does it read a whole table of ours? (Reading a partial index is no such thing.)"""
    found = re.match(r"SCAN (?:TABLE )?(\w+)", step)
    return found is not None and found[1] not in _NOT_TABLES and " USING " not in step


_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_NOT_TABLES = {
    "page",
    "json_each",
    "types",
    "queues",
    "wanted",
    "lane",
    "tier",
    "kind",
    "first",
    "overdue",
    "CONSTANT",
    "SUBQUERY",
}
