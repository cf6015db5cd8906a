"""Every statement prepares, and finds its rows by the index made for it.

In situations that mislead it: statistics that are missing or stale in both directions, rows that
are all alike, plans kept from when the tables were tiny; and with each way of joining and scanning
switched off in turn.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.store.postgres.plans import GROWING, NAMES, NOW, Connection, Plan, Prepared, calls, plans
from tests.support import databases, postgres
from yaoki.store.postgres.connection import connect
from yaoki.store.postgres.place import parse
from yaoki.store.postgres.store import PostgresStore

BY_ID = "jobs_pkey (id)"
LANE = "jobs_lane (type, queue, priority)"

PLANS = {
    "tiers": {"jobs_due", "jobs_due (priority)", "jobs_due (priority, run_at)"},
    "due": {"jobs_due (priority, run_at, id)", BY_ID},
    "due_count": {"jobs_due (priority, run_at, id)"},
    "lanes": {"jobs_lane (type)", LANE},
    "lanes_of": {"jobs_lane (type, queue)", LANE},
    "lane": {"jobs_lane (type, queue, priority, run_at)"},
    "pending_types": {"jobs_lane", "jobs_lane (type)"},
    "heads": {"jobs_lane", LANE},
    "overdue": {"jobs_held"},
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
    "discard": {BY_ID, "attempts_pkey (job_id)", "logs_pkey (job_id)"},
    "get": {BY_ID},
    "leases_of": {BY_ID},
    "leases_held": {BY_ID},
    "leases_free": {BY_ID},
    "held_rows": {"jobs_held (id)"},
    "attempts": {"attempts_pkey (job_id)"},
    "leases": {"jobs_held (id)"},
    "lease_page": {"jobs_held (id)"},
    "can_write": {BY_ID},
    "held_by": {"jobs_held"},
    "watched": {"jobs_held"},
    "dead_rows": {"jobs_held"},
    "cancelling": {BY_ID},
    "log": {BY_ID},
    "log_trim": {"logs_pkey (job_id)", "logs_pkey (job_id, lease)"},
    "logs": {"logs_pkey (job_id)", BY_ID, "attempts_pkey (job_id, lease)"},
    "expired_rows": {"jobs_held"},
    "get_by_key": {"jobs_key (idempotency_key)"},
    "get_by_keys": {"jobs_key (idempotency_key)"},
    "failed_ids": {"jobs_failed (id)"},
    "adopt": {"jobs_unadopted (type)", BY_ID},
    "once_forget": {"once_done (done_at)"},
}
"""How each statement on the way of a job, or of a worker, finds its rows."""

IN_ORDER = {
    "heads",
    "overdue",
    "tiers",
    "due",
    "due_count",
    "lane",
    "lanes",
    "lanes_of",
    "pending_types",
    "first_of",
    "failed_ids",
    "expired_rows",
    "leases",
    "lease_page",
    "log_trim",
    "held_by",
    "watched",
    "dead_rows",
    "once_forget",
}
"""Statements whose rows come in order, or need none: nothing is to be sorted for them."""


def fill(store: PostgresStore, each: int = 5_000) -> None:
    """So many rows of each of ten kinds, and a history of attempts and of things done once."""
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
        insert(store, each, **columns)
    databases.ask(
        store,
        "INSERT INTO yaoki.attempts SELECT n, 2 * step, step, 'retried', 'w', 1, 1, 1 "
        "FROM generate_series(1, :each) AS n CROSS JOIN generate_series(1, 4) AS step "
        "ON CONFLICT DO NOTHING",
        {"each": each},
    )
    databases.ask(
        store,
        "INSERT INTO yaoki.logs SELECT n, 2 * step, 1, 1, 'info', 'a line' "
        "FROM generate_series(1, :each) AS n CROSS JOIN generate_series(1, 4) AS step "
        "ON CONFLICT DO NOTHING",
        {"each": each},
    )
    databases.ask(
        store,
        "INSERT INTO yaoki.once SELECT 'mail', :each || '/' || n, n "
        "FROM generate_series(1, 4 * :each) AS n",
        {"each": each},
    )


def insert(store: PostgresStore, count: int, **columns: object) -> None:
    databases.insert_rows(store, count, NOW - 1_000_000, **columns)


def analyse(store: PostgresStore) -> None:
    databases.ask(store, "ANALYZE")


def analysed_when_empty(store: PostgresStore) -> None:
    analyse(store)
    fill(store)


def analysed_when_few(store: PostgresStore) -> None:
    fill(store, 1)
    analyse(store)
    fill(store)


def analysed_when_full(store: PostgresStore) -> None:
    fill(store)
    analyse(store)


def emptied(store: PostgresStore) -> None:
    """Statistics say that half of all jobs are pending."""
    analysed_when_full(store)
    databases.ask(
        store,
        "UPDATE yaoki.jobs SET status = 'completed', finished_at = 1, result = 'null' "
        "WHERE status = 'pending'",
    )


def flooded(store: PostgresStore) -> None:
    """Statistics say that a few hundred jobs are pending, scattered over a long history."""
    for number in range(10):
        insert(store, 4_000, status="completed", result="null", finished_at=NOW, lease=2)
        insert(store, 60, type="mail", run_at=NOW - 1_000 * (number * 7 % 10))
    analyse(store)
    insert(store, 20_000, type="mail")
    insert(store, 20_000)


def one_kind(store: PostgresStore) -> None:
    """Every row is pending and like every other: no index seems to tell them apart."""
    insert(store, 50_000)
    analyse(store)


SITUATIONS: dict[str, Callable[[PostgresStore], None]] = {
    "empty": lambda store: None,
    "never analysed": fill,
    "analysed when empty": analysed_when_empty,
    "analysed when few": analysed_when_few,
    "analysed when full": analysed_when_full,
    "emptied": emptied,
    "flooded": flooded,
    "one kind": one_kind,
}


@contextmanager
def unattended() -> Iterator[PostgresStore]:
    """A store whose statistics are left as they are."""
    with postgres.fresh_database() as url:
        store = PostgresStore(url)
        for table in GROWING:
            databases.ask(store, f"ALTER TABLE yaoki.{table} SET (autovacuum_enabled = false)")
        yield store


@pytest.fixture(scope="module", params=SITUATIONS)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a database in one of the situations that mislead a planner."""
    with unattended() as store:
        SITUATIONS[request.param](store)
        yield store.url


@pytest.fixture(scope="module")
def own(database: str) -> Iterator[Connection]:
    """A connection such as the store's own are, which prepare what they run."""
    with connect(parse(database), plans=True) as line:
        yield line


@pytest.fixture(scope="module")
def another(database: str) -> Iterator[Connection]:
    """Somebody else's connection, or one that a pooler lent: it keeps no plans."""
    with connect(parse(database)) as connection:
        yield connection


@pytest.mark.parametrize("name", NAMES)
def test_every_statement_prepares(name: str, postgres_url: str) -> None:
    with connect(parse(postgres_url), plans=True) as line:
        assert list(plans(line, name, generic=True))


@pytest.mark.parametrize("generic", [False, True], ids=["for these values", "for any values"])
@pytest.mark.parametrize("name", PLANS)
def test_every_statement_finds_its_rows_by_the_index_made_for_it(
    name: str, generic: bool, own: Connection
) -> None:
    for plan in plans(own, name, generic=generic):
        assert_by_the_right_index(name, plan)


@pytest.mark.parametrize("generic", [False, True], ids=["for these values", "for any values"])
@pytest.mark.parametrize("name", sorted(IN_ORDER))
def test_nothing_is_sorted_to_find_what_is_next(name: str, generic: bool, own: Connection) -> None:
    for plan in plans(own, name, generic=generic):
        assert plan.sorts == [], plan


@pytest.mark.parametrize("name", PLANS)
def test_a_connection_that_keeps_no_plans_needs_no_settings_of_ours(
    name: str, another: Connection
) -> None:
    """Where rows are few it reads them all, and that is right: it asks again the next time."""
    for plan in plans(another, name, generic=False):
        if not any(is_small(another, table) for table in plan.read_whole):
            assert_by_the_right_index(name, plan)


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_that_was_made_while_the_tables_were_tiny_is_good_when_they_are_full(
    name: str, tiny: dict[str, list[Prepared]]
) -> None:
    """It read the whole table, was kept, and took a hundred times as long as it should."""
    for statement in tiny[name]:
        assert_by_the_right_index(name, statement.plan(generic=True))


@pytest.fixture(scope="module")
def tiny() -> Iterator[dict[str, list[Prepared]]]:
    """Statements that were prepared, and planned for any values, when all tables had few rows."""
    with unattended() as store, connect(parse(store.url), plans=True) as line:
        fill(store, 1)
        analyse(store)
        kept = {
            name: [Prepared(line, call, f"{name}_{n}") for n, call in enumerate(calls(name))]
            for name in PLANS
        }
        for statements in kept.values():
            for statement in statements:
                statement.plan(generic=True)
        fill(store)
        yield kept


def assert_by_the_right_index(name: str, plan: Plan) -> None:
    assert plan.read_whole == [], plan
    assert plan.accesses <= PLANS[name], plan


def is_small(connection: Connection, table: str) -> bool:
    [(size,)] = connection.execute("SELECT pg_relation_size(%s)", [f"yaoki.{table}"]).fetchall()
    return bool(size <= 10 * 8192)
