"""Statements on their way: what is prepared, and what travels together."""

import psycopg
import pytest

from tests.support.postgres import for_libpq
from yaoki import StoreError, Yaoki
from yaoki.store.op import Statement
from yaoki.store.postgres.statements import changes
from yaoki.store.postgres.store import PostgresStore


def prepared(app: Yaoki) -> int:
    """How many statements the one session of this app's pool has prepared."""
    store = app.store
    assert isinstance(store, PostgresStore)
    with store._opened().pool.lend() as (line, _):
        [(count,)] = line.execute("SELECT count(*) FROM pg_prepared_statements").fetchall()
    return int(count)


def test_a_statement_that_fails_again_and_again_is_prepared_once(
    app: Yaoki, postgres_url: str
) -> None:
    app.enqueue("mail")
    with psycopg.connect(for_libpq(postgres_url), autocommit=True) as other:
        other.execute("ALTER TABLE yaoki.jobs ADD CHECK (type <> 'unwanted')")
    before = prepared(app)

    for _ in range(20):
        with pytest.raises(StoreError, match="violates check constraint"):
            app.enqueue("unwanted")

    assert prepared(app) == before


def test_one_that_could_not_be_prepared_is_prepared_when_it_can_be(
    app: Yaoki, postgres_url: str
) -> None:
    with psycopg.connect(for_libpq(postgres_url), autocommit=True) as other:
        other.execute("ALTER TABLE yaoki.paused RENAME TO away")
        with pytest.raises(StoreError, match="yaoki migrate"):
            app.paused()
        other.execute("ALTER TABLE yaoki.away RENAME TO paused")

    assert app.paused() == []


def test_only_a_statement_that_writes_is_a_reason_to_wake_somebody() -> None:
    names = ("definition", "get_by_key", "attempts", "enqueue", "resume", "retry")

    assert [changes(Statement(name, {})) for name in names] == [False] * 3 + [True] * 3


def test_what_is_silent_travels_with_what_is_asked_next(app: Yaoki) -> None:
    app.enqueue_many("mail", [{}] * 3)

    claimed = app.claim("w1", limit=3)

    assert [app.get(job).status for job in claimed] == ["running"] * 3
