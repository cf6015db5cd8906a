"""app.on() and once() on connections of every kind: what holds for each of them."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests.store.postgres.support_callers import Caller, Kind
from tests.support.postgres import for_libpq, fresh_database
from yaoki import KeyConflict, NotInTransaction, StoreError, WrongConnection, WrongStatus, Yaoki
from yaoki.store.postgres.callers.kinds import recognised

Rows = list[tuple[Any, ...]]


@pytest.fixture
def others(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """What others see: a connection beside that of the caller."""
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute("CREATE TABLE orders (id integer)")
        yield connection


def jobs(others: psycopg.Connection[Any]) -> list[str]:
    rows = others.execute("SELECT type FROM yaoki.jobs ORDER BY id").fetchall()
    return [kind for (kind,) in rows]


def orders(others: psycopg.Connection[Any]) -> int:
    [(count,)] = others.execute("SELECT count(*) FROM orders").fetchall()
    return int(count)


ADD = "INSERT INTO orders VALUES (1)"


def test_a_job_appears_with_the_commit(
    app: Yaoki, kind: Kind, postgres_url: str, others: psycopg.Connection[Any]
) -> None:
    async def scenario() -> None:
        async with kind.connected(postgres_url) as mine:
            await mine.begin()
            await mine.execute(ADD)
            await mine.call(app, "enqueue", "ship", {"to": "東京 100% $1 'n' \\"})
            await mine.call(app, "enqueue_many", "mail", [{}, {}])
            assert (jobs(others), orders(others)) == ([], 0)
            await mine.commit()

    kind.run(scenario())

    assert (jobs(others), orders(others)) == (["ship", "mail", "mail"], 1)
    assert app.jobs(type="ship")[0].payload == {"to": "東京 100% $1 'n' \\"}


def test_a_job_is_gone_with_the_rollback(
    app: Yaoki, kind: Kind, postgres_url: str, others: psycopg.Connection[Any]
) -> None:
    async def scenario() -> None:
        async with kind.connected(postgres_url) as mine:
            await mine.begin()
            await mine.call(app, "enqueue", "ship", idempotency_key="k")
            await mine.execute(ADD)
            await mine.rollback()

    kind.run(scenario())

    assert (jobs(others), orders(others)) == ([], 0)
    assert app.enqueue("ship", idempotency_key="k").created


def test_a_connection_goes_on_after_a_commit_and_after_a_rollback(
    app: Yaoki, kind: Kind, postgres_url: str, others: psycopg.Connection[Any]
) -> None:
    async def scenario() -> None:
        async with kind.connected(postgres_url) as mine:
            for name, ending in (("a", "commit"), ("b", "rollback"), ("c", "commit")):
                await mine.begin()
                await mine.call(app, "enqueue", name)
                await getattr(mine, ending)()

    kind.run(scenario())

    assert jobs(others) == ["a", "c"]


def test_a_refusal_of_ours_leaves_the_transaction_usable(
    app: Yaoki, kind: Kind, postgres_url: str, others: psycopg.Connection[Any]
) -> None:
    app.enqueue("mail", idempotency_key="k")
    done = app.enqueue("image")
    app.complete(app.claim("w1", types=["image"])[0])

    async def scenario() -> None:
        async with kind.connected(postgres_url) as mine:
            await mine.begin()
            await mine.execute(ADD)
            with pytest.raises(KeyConflict):
                await mine.call(app, "enqueue", "ship", idempotency_key="k")
            with pytest.raises(WrongStatus):
                await mine.call(app, "cancel", done)
            await mine.execute(ADD)
            await mine.commit()

    kind.run(scenario())

    assert orders(others) == 2


def test_other_verbs_are_part_of_it_too(
    app: Yaoki, kind: Kind, postgres_url: str, others: psycopg.Connection[Any]
) -> None:
    job = app.enqueue("mail")

    async def scenario() -> None:
        async with kind.connected(postgres_url) as mine:
            await mine.begin()
            assert (await mine.call(app, "cancel", job)).status == "cancelled"
            assert (await mine.call(app, "get", job)).status == "cancelled"
            new = await mine.call(app, "enqueue", "ship")
            assert list(await mine.call(app, "jobs", status="pending")) == [new]
            await mine.call(app, "pause", "default")
            assert await mine.call(app, "claim", "w1") == []
            await mine.rollback()

    kind.run(scenario())

    assert app.get(job).status == "pending"
    assert app.paused() == []


def test_a_connection_to_another_database_is_refused(app: Yaoki, kind: Kind) -> None:
    async def scenario(url: str) -> None:
        async with kind.connected(url) as mine:
            for _ in range(2):
                await mine.begin()
                with pytest.raises(WrongConnection, match="one transaction cannot span both"):
                    await mine.call(app, "enqueue", "ship")
                await mine.execute("SELECT 1")
                await mine.rollback()

    with fresh_database() as url:
        kind.run(scenario(url))

    assert app.jobs() == []


def test_a_transaction_that_has_failed_is_told_to_roll_back(
    app: Yaoki, kind: Kind, postgres_url: str, others: psycopg.Connection[Any]
) -> None:
    async def scenario() -> None:
        async with kind.connected(postgres_url) as mine:
            for _ in range(2):
                await mine.begin()
                with pytest.raises(Exception, match="nowhere"):
                    await mine.execute("SELECT * FROM nowhere")
                for verb in ("enqueue", "cancel"):
                    with pytest.raises(NotInTransaction, match="roll it back first"):
                        await mine.call(app, verb, "ship" if verb == "enqueue" else 1)
                with pytest.raises(NotInTransaction, match="roll it back first"):
                    await mine.once("k")
                await mine.rollback()
                await mine.begin()
                await mine.call(app, "enqueue", "ship")
                await mine.commit()

    kind.run(scenario())

    assert jobs(others) == ["ship", "ship"]


def test_the_second_block_on_a_connection_asks_nothing_more(
    app: Yaoki, kind: Kind, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which database it leads to is found out once."""
    asked: list[str] = []
    home = app.store._home
    run, arun = home._run, home._arun
    monkeypatch.setattr(home, "_run", lambda op: asked.append("home") or run(op))
    monkeypatch.setattr(home, "_arun", lambda op: asked.append("home") or arun(op))

    async def scenario() -> None:
        async with kind.connected(postgres_url) as mine:
            for _ in range(3):
                await mine.begin()
                await mine.call(app, "enqueue", "ship")
                await mine.commit()

    kind.run(scenario())
    kind.run(scenario())

    assert asked == ["home"]


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_every_isolation_level_works(
    app: Yaoki, kind: Kind, postgres_url: str, others: psycopg.Connection[Any], level: str
) -> None:
    """Also when it is set in the block: nothing was asked before."""

    async def scenario() -> None:
        async with kind.connected(postgres_url) as mine:
            await mine.begin()
            with app.on(mine.connection):
                await mine.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
                job = await mine.plainly(app, "enqueue", "ship")
                await mine.plainly(app, "enqueue_many", "mail", [{}])
                await mine.plainly(app, "cancel", job)
            await mine.commit()

    kind.run(scenario())

    assert jobs(others) == ["ship", "mail"]


def test_once_is_true_once_and_part_of_the_transaction(
    app: Yaoki, kind: Kind, postgres_url: str
) -> None:
    async def scenario() -> list[bool]:
        answers = []
        async with kind.connected(postgres_url) as mine:
            for ending in ("rollback", "commit", "commit"):
                await mine.begin()
                answers.append(await mine.once("k"))
                answers.append(await mine.once("k", scope="other"))
                await getattr(mine, ending)()
        return answers

    assert kind.run(scenario()) == [True, True, True, True, False, False]


def test_without_the_table_of_once_the_error_says_how_to_make_it(kind: Kind) -> None:
    async def scenario(url: str) -> None:
        async with kind.connected(url) as mine:
            await mine.begin()
            await mine.execute("CREATE TABLE effects ()")
            with pytest.raises(StoreError, match=r"yaoki migrate --once postgresql://…/yaoki_test"):
                await mine.once("k")
            await mine.execute("SELECT * FROM effects")
            await mine.rollback()

    with fresh_database(migrated=False) as url:
        kind.run(scenario(for_libpq(url)))


def test_a_connection_that_speaks_another_encoding_loses_no_character(
    app: Yaoki, kind: Kind, postgres_url: str, others: psycopg.Connection[Any]
) -> None:
    """And it speaks its own again afterwards, also after an error of ours."""
    app.enqueue("mail", idempotency_key="鍵")

    async def scenario() -> None:
        async with kind.connected(postgres_url) as mine:
            await mine.begin()
            await mine.execute("SET client_encoding TO 'LATIN1'")
            job = await mine.call(app, "enqueue", "運ぶ", {"to": "東京"}, idempotency_key="名")
            assert (job.type, job.payload) == ("運ぶ", {"to": "東京"})
            assert await mine.call(app, "get", job) == job
            with pytest.raises(KeyConflict, match="鍵"):
                await mine.call(app, "enqueue", "ship", idempotency_key="鍵")
            assert await encoding(mine) == "LATIN1"
            await mine.commit()
            assert await encoding(mine) == "LATIN1"

    kind.run(scenario())

    assert jobs(others) == ["mail", "運ぶ"]


async def encoding(caller: Caller) -> str:
    found = recognised(caller.connection)
    driver = await found.borrow() if caller.awaits else found.borrow()
    return str(driver.encoding)
