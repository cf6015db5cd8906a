"""app.on() and once() on connections that go through PgBouncer, which shares sessions."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest

from tests.support import pgbouncer
from tests.support.postgres import fresh_database
from yaoki import KeyConflict, WrongConnection, Yaoki, aonce, once

pytestmark = pytest.mark.skipif(pgbouncer.program() is None, reason=pgbouncer.NOT_FOUND)


@pytest.fixture
def pooled(postgres_url: str) -> Iterator[str]:
    """The URL of the same database through PgBouncer."""
    with pgbouncer.through(postgres_url) as url:
        yield url


@pytest.fixture(params=["directly", "through it too"])
def app(request: pytest.FixtureRequest, postgres_url: str, pooled: str) -> Iterator[Yaoki]:
    """An app that reaches the database this way; its URL need not be that of the caller."""
    app = Yaoki(postgres_url if request.param == "directly" else pooled)
    yield app
    app.close()


def by_psycopg(url: str) -> Any:
    return psycopg.connect(url, prepare_threshold=None)


@pytest.mark.parametrize("connect", [by_psycopg, psycopg2.connect])
def test_a_job_is_part_of_the_transaction(app: Yaoki, pooled: str, connect: Any) -> None:
    app.enqueue("mail", idempotency_key="k")
    with closing(connect(pooled)) as mine:
        for ending in ("rollback", "commit", "commit"):
            with app.on(mine):
                job = app.enqueue("ship")
                app.enqueue_many("ship", [{}, {}])
                app.cancel(job)
                with pytest.raises(KeyConflict):
                    app.enqueue("never", idempotency_key="k")
            assert once(mine, "k") or ending == "commit"
            getattr(mine, ending)()

    assert len(app.jobs(type="ship", status="pending")) == 4
    assert len(app.jobs(type="ship", status="cancelled")) == 2


def test_asyncpg_without_its_cache_works_as_it_has_to_there(app: Yaoki, pooled: str) -> None:
    async def scenario() -> list[bool]:
        answers = []
        mine = await asyncpg.connect(pooled, statement_cache_size=0)
        try:
            for _ in range(2):
                async with mine.transaction():
                    with app.on(mine):
                        await app.acancel(await app.aenqueue("ship", {"to": "東京"}))
                        await app.aenqueue_many("ship", [{}, {}])
                    answers.append(await aonce(mine, "k"))
        finally:
            await mine.close()
        return answers

    assert asyncio.run(scenario()) == [True, False]
    assert len(app.jobs(type="ship")) == 6


def test_a_connection_to_another_database_is_refused(app: Yaoki) -> None:
    refused = pytest.raises(WrongConnection, match="one transaction cannot span both")
    with (
        fresh_database() as url,
        pgbouncer.through(url) as elsewhere,
        closing(by_psycopg(elsewhere)) as mine,
        app.on(mine),
        refused,
    ):
        app.enqueue("ship")

    assert app.jobs() == []
