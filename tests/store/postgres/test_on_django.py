"""Django: calls join the open transaction of the same database by themselves."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.db.utils import IntegrityError

from tests.support.django_settings import postgres_connection
from tests.support.postgres import fresh_database
from tests.support.processes import Processes
from yaoki import KeyConflict, NotInTransaction, WrongConnection, Yaoki, once


@pytest.fixture(autouse=True)
def default(postgres_url: str, others: Any) -> Iterator[Any]:
    with postgres_connection("queue", postgres_url) as connection:
        yield connection


@pytest.fixture
def others(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY)")
        yield connection


@pytest.fixture(autouse=True)
def app(postgres_url: str) -> Iterator[Yaoki]:
    app = Yaoki(postgres_url)
    yield app
    app.close()


def atomic(**how: Any) -> Any:
    return transaction.atomic(using="queue", **how)


def add_order(number: int) -> None:
    with connections["queue"].cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s)", [number])


def jobs(others: psycopg.Connection[Any]) -> list[str]:
    rows = others.execute("SELECT type FROM yaoki.jobs ORDER BY id").fetchall()
    return [kind for (kind,) in rows]


def orders(others: psycopg.Connection[Any]) -> int:
    [(count,)] = others.execute("SELECT count(*) FROM orders").fetchall()
    return int(count)


def test_a_job_appears_with_the_commit_of_the_atomic_block(
    app: Yaoki, others: psycopg.Connection[Any]
) -> None:
    with atomic():
        add_order(1)
        app.enqueue("ship")
        app.enqueue_many("mail", [{}, {}])
        assert jobs(others) == []

    assert (jobs(others), orders(others)) == (["ship", "mail", "mail"], 1)


def test_a_job_is_gone_with_the_atomic_block(app: Yaoki, others: psycopg.Connection[Any]) -> None:
    """Also where nothing was done in it before."""
    with atomic():
        app.enqueue("ship", idempotency_key="k")
        transaction.set_rollback(True, using="queue")

    assert jobs(others) == []
    assert app.enqueue("ship", idempotency_key="k").created


def test_a_job_of_an_inner_block_goes_with_it(app: Yaoki, others: psycopg.Connection[Any]) -> None:
    with atomic():
        app.enqueue("outer")
        with suppress(ZeroDivisionError), atomic():
            app.enqueue("inner")
            raise ZeroDivisionError

    assert jobs(others) == ["outer"]


def test_outside_of_atomic_each_job_is_a_transaction(
    app: Yaoki, default: Any, others: psycopg.Connection[Any]
) -> None:
    default.ensure_connection()
    app.enqueue("ship")
    with app.on(default):
        app.enqueue("mail")
        assert jobs(others) == ["ship", "mail"]


def test_a_handlers_own_enqueue_joins_too(app: Yaoki, others: psycopg.Connection[Any]) -> None:
    @app.job("ship")
    def ship(order: int) -> None: ...

    with atomic():
        ship.enqueue(order=1)
        ship.using(delay=5).enqueue_many([{"order": 2}])
        transaction.set_rollback(True, using="queue")

    assert jobs(others) == []


def test_every_verb_joins(app: Yaoki, others: psycopg.Connection[Any]) -> None:
    job, dead = app.enqueue("mail"), app.enqueue("image", max_attempts=1)
    app.fail(app.claim("w1", types=["image"])[0], "broken")

    with atomic():
        add_order(1)
        new = app.enqueue("ship")
        assert app.get(new) == new
        app.cancel(job)
        app.retry(dead)
        app.pause("mail")
        assert app.jobs(status="pending") == [new, app.get(dead)]
        transaction.set_rollback(True, using="queue")

    assert [one.status for one in app.jobs()] == ["failed", "pending"]
    assert app.paused() == []


def test_a_transaction_of_another_database_is_not_joined(
    app: Yaoki, others: psycopg.Connection[Any]
) -> None:
    with fresh_database() as url, postgres_connection("elsewhere", url) as elsewhere:
        for _ in range(2):
            with transaction.atomic(using="elsewhere"):
                app.enqueue("ship")
                transaction.set_rollback(True, using="elsewhere")
        with pytest.raises(WrongConnection), app.on(elsewhere):
            app.enqueue("never")

    assert jobs(others) == ["ship", "ship"]


def test_a_transaction_on_a_file_is_not_joined(app: Yaoki, others: psycopg.Connection[Any]) -> None:
    with transaction.atomic(using="other"):
        app.enqueue("ship")
        transaction.set_rollback(True, using="other")
    with pytest.raises(WrongConnection, match="sqlite"), app.on(connections["other"]):
        app.enqueue("never")
    connections["other"].close()

    assert jobs(others) == ["ship"]


def test_a_transaction_of_another_thread_is_not_joined(
    app: Yaoki, others: psycopg.Connection[Any]
) -> None:
    with atomic():
        app.enqueue("mine")
        thread = threading.Thread(target=app.enqueue, args=("elsewhere",))
        thread.start()
        thread.join()
        transaction.set_rollback(True, using="queue")

    assert jobs(others) == ["elsewhere"]


def test_a_refused_job_leaves_the_block_usable(app: Yaoki, others: psycopg.Connection[Any]) -> None:
    app.enqueue("mail", idempotency_key="k")
    with atomic():
        add_order(1)
        with pytest.raises(KeyConflict):
            app.enqueue("ship", idempotency_key="k")
        add_order(2)

    assert orders(others) == 2


def test_a_block_that_has_failed_is_told_to_roll_back(
    app: Yaoki, default: Any, others: psycopg.Connection[Any]
) -> None:
    """Also where it is not known yet which database it is on: it can be asked no more."""
    others.execute("INSERT INTO orders VALUES (1)")
    with suppress(IntegrityError), atomic():
        with pytest.raises(IntegrityError):
            add_order(1)
        for call in (lambda: app.enqueue("ship"), lambda: once(default, "k")):
            with pytest.raises(NotInTransaction, match="roll it back first"):
                call()
    with atomic():
        with pytest.raises(IntegrityError), atomic():
            add_order(1)
        app.enqueue("after the inner block")

    assert jobs(others) == ["after the inner block"]


def test_a_durable_block_is_joined(app: Yaoki, others: psycopg.Connection[Any]) -> None:
    with atomic(durable=True):
        app.enqueue("ship")
        assert jobs(others) == []

    assert jobs(others) == ["ship"]


def test_once_is_part_of_the_atomic_block(app: Yaoki, default: Any) -> None:
    app.migrate()
    answers: list[Any] = []
    for rolls_back in (True, False, False):
        with atomic():
            answers.append(once(default, "k"))
            transaction.set_rollback(rolls_back, using="queue")

    assert answers == [True, True, False]


def test_once_outside_of_atomic_is_refused(app: Yaoki, default: Any) -> None:
    with pytest.raises(NotInTransaction, match="atomic"):
        once(default, "k")


def test_an_async_view_can_enqueue_in_a_transaction_and_outside(
    app: Yaoki, others: psycopg.Connection[Any]
) -> None:
    def in_a_block(name: str, fails: bool) -> None:
        with atomic():
            add_order(1)
            app.enqueue(name)
            if fails:
                raise ZeroDivisionError

    async def view() -> None:
        with suppress(ZeroDivisionError):
            await sync_to_async(in_a_block)("never", fails=True)
        await sync_to_async(in_a_block)("ship", fails=False)
        await app.aenqueue("mail")
        await sync_to_async(lambda: connections["queue"].close())()

    asyncio.run(view())

    assert (jobs(others), orders(others)) == (["ship", "mail"], 1)


ON_PSYCOPG2 = """
import sys
# Django takes psycopg 3 where it finds it.
sys.modules["psycopg"] = None
import django.db.backends.postgresql.base
del sys.modules["psycopg"]

import pathlib
from django.db import connections, transaction
from tests.support.django_settings import configure, postgres_connection
from yaoki import KeyConflict, Yaoki, once

url, folder = sys.argv[1:]
configure(pathlib.Path(folder))
app = Yaoki(url)
with postgres_connection("queue", url) as connection:
    app.enqueue("before", idempotency_key="k")
    for fails in (True, False):
        with transaction.atomic(using="queue"):
            app.enqueue("ship", {"to": "東京 100%"})
            try:
                app.enqueue("never", idempotency_key="k")
            except KeyConflict:
                app.enqueue_many("mail", [{}])
            assert once(connection, "k")
            assert "psycopg2" in type(connection.connection).__module__
            transaction.set_rollback(fails, using="queue")
print([job.type for job in app.jobs()])
app.close()
"""


def test_django_on_psycopg2_works_too(
    postgres_url: str, tmp_path: Path, processes: Processes
) -> None:
    process = processes.python("-c", ON_PSYCOPG2, postgres_url, str(tmp_path))

    assert (process.wait(), process.output) == (0, "['mail', 'ship', 'before']\n")
