"""once() and aonce() on PostgreSQL: two at once, where the table is, and who is refused."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.support.eventually import eventually
from yaoki import InvalidOption, NotInTransaction, StoreBusy, WrongConnection, Yaoki, aonce, once

KEY = "order-1001-points"

Connection = psycopg.Connection[Any]


@pytest.fixture
def mine(app: Yaoki, postgres_url: str) -> Iterator[Connection]:
    """A connection of the caller's, as psycopg makes it by default."""
    with closing(psycopg.connect(postgres_url)) as connection:
        connection.execute("CREATE TABLE points (balance integer NOT NULL)")
        connection.execute("INSERT INTO points VALUES (0)")
        connection.commit()
        yield connection


@pytest.fixture
def others(postgres_url: str) -> Iterator[Connection]:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        yield connection


def balance(others: Connection) -> int:
    [(points,)] = others.execute("SELECT balance FROM points").fetchall()
    return int(points)


def add_points(connection: Connection, key: str = KEY, **how: Any) -> bool:
    first = once(connection, key, **how)
    if first:
        connection.execute("UPDATE points SET balance = balance + 100")
    return first


def waits_for_a_lock(others: Connection) -> bool:
    return others.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is not None


@pytest.mark.parametrize(("ending", "second"), [("commit", False), ("rollback", True)])
def test_of_two_transactions_with_one_key_the_second_waits_for_the_first(
    mine: Connection, others: Connection, postgres_url: str, ending: str, second: bool
) -> None:
    assert add_points(mine)
    answers: list[bool] = []

    def race() -> None:
        with psycopg.connect(postgres_url) as other:
            answers.append(add_points(other))

    racer = threading.Thread(target=race)
    racer.start()
    eventually(lambda: waits_for_a_lock(others))
    assert answers == []
    getattr(mine, ending)()
    racer.join(20)

    assert answers == [second]
    assert balance(others) == 100


def test_many_at_once_have_one_effect(
    mine: Connection, others: Connection, postgres_url: str
) -> None:
    barrier = threading.Barrier(8)
    answers: list[bool] = []

    def race() -> None:
        with psycopg.connect(postgres_url) as other:
            barrier.wait(10)
            answers.append(add_points(other))

    racers = [threading.Thread(target=race) for _ in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    assert sorted(answers) == [False] * 7 + [True]
    assert balance(others) == 100


def test_many_tasks_at_once_have_one_effect(
    mine: Connection, others: Connection, postgres_url: str
) -> None:
    async def race() -> bool:
        connection = await asyncpg.connect(postgres_url)
        async with connection.transaction():
            first = await aonce(connection, KEY)
            if first:
                await connection.execute("UPDATE points SET balance = balance + 100")
        await connection.close()
        return first

    async def all_at_once() -> list[bool]:
        return await asyncio.gather(*(race() for _ in range(8)))

    assert sorted(asyncio.run(all_at_once())) == [False] * 7 + [True]
    assert balance(others) == 100


def test_a_transaction_that_read_too_early_gets_a_clear_error(
    mine: Connection, postgres_url: str
) -> None:
    with closing(psycopg.connect(postgres_url)) as early:
        early.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        early.execute("SELECT balance FROM points")
        add_points(mine)
        mine.commit()

        with pytest.raises(StoreBusy, match="try the whole of it again"):
            once(early, KEY)
        early.rollback()
        assert not once(early, KEY)


def test_a_key_is_free_again_when_its_transaction_rolls_back(
    mine: Connection, others: Connection
) -> None:
    assert add_points(mine)
    mine.rollback()
    assert add_points(mine)
    mine.commit()
    assert not add_points(mine)

    assert balance(others) == 100


def test_outside_a_transaction_it_refuses_and_stores_nothing(
    app: Yaoki, others: Connection
) -> None:
    """In autocommit the key would be stored before the effect."""
    with pytest.raises(NotInTransaction, match="begin a transaction first"):
        once(others, KEY)
    with others.transaction():
        assert once(others, KEY)

    assert others.execute("SELECT key FROM yaoki.once").fetchall() == [(KEY,)]


def test_it_is_false_already_in_the_same_transaction(mine: Connection) -> None:
    assert [once(mine, KEY), once(mine, KEY)] == [True, False]


def test_in_a_handler_the_scope_is_its_type(app: Yaoki, postgres_url: str) -> None:
    answers = []

    def record() -> None:
        with psycopg.connect(postgres_url) as connection:
            answers.append(once(connection, KEY))

    async def record_awaiting() -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            answers.append(await aonce(connection, KEY))

    app.job("a")(record)
    app.job("b")(record_awaiting)
    for kind in ("a", "b", "a", "b"):
        app.enqueue(kind)
        app.run_worker(concurrency=1, until_empty=True)

    assert answers == [True, True, False, False]


def test_keys_are_forgotten_after_they_were_kept_long_enough(mine: Connection) -> None:
    assert once(mine, KEY)
    mine.commit()

    assert not once(mine, KEY, keep=timedelta(days=1))
    assert once(mine, KEY, keep=timedelta(microseconds=0))


def test_old_keys_are_cleared_away_a_few_at_a_time(mine: Connection, others: Connection) -> None:
    others.execute(
        "INSERT INTO yaoki.once (scope, key, done_at) "
        "SELECT '', n, 1 FROM generate_series(1, 100) AS n"
    )
    for number in range(5):
        once(mine, f"new-{number}")
    mine.commit()

    left = others.execute("SELECT count(*) FROM yaoki.once WHERE done_at = 1").fetchone()
    assert left == (50,)


@pytest.mark.parametrize("key", ["", "a\0", "\ud83d", "k" * 501, None, 7])
def test_a_key_that_cannot_be_is_refused(mine: Connection, key: Any) -> None:
    with pytest.raises(InvalidOption):
        once(mine, key)
    with pytest.raises(InvalidOption):
        asyncio.run(aonce(mine, key))


@pytest.mark.parametrize("thing", [None, "postgresql:///jobs", object()])
def test_what_is_no_connection_is_refused(thing: Any) -> None:
    with pytest.raises(WrongConnection):
        once(thing, KEY)
    with pytest.raises(WrongConnection):
        asyncio.run(aonce(thing, KEY))


def test_the_queue_may_be_in_a_file_and_the_effects_in_postgres(
    mine: Connection, others: Connection, url: str
) -> None:
    queue, answers = Yaoki(url), []

    @queue.job("points")
    def points() -> None:
        answers.append(add_points(mine))
        mine.commit()

    for _ in range(2):
        points.enqueue()
    queue.run_worker(concurrency=1, until_empty=True)
    queue.close()

    assert answers == [True, False]
    assert balance(others) == 100
