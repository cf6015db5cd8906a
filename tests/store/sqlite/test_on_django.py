"""Django: enqueue joins the open transaction of the same database by itself."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import connection as default
from django.db import connections, transaction

from tests.support.databases import ask
from tests.support.django_settings import configure
from yaoki import KeyConflict, NotInTransaction, WrongConnection, Yaoki, once


@pytest.fixture(scope="session", autouse=True)
def configured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Django is configured once in a process, however often this module is begun in it."""
    return configure(tmp_path_factory.mktemp("django"))


@pytest.fixture
def path(configured: Path) -> Path:
    return configured / "default.db"


@pytest.fixture(autouse=True)
def clean(path: Path, app: Yaoki) -> Iterator[None]:
    with default.cursor() as cursor:
        cursor.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    yield
    app.close()
    connections.close_all()
    for file in path.parent.iterdir():
        file.unlink()


def add_order(number: int) -> None:
    with default.cursor() as cursor:
        cursor.execute("INSERT INTO orders VALUES (%s)", [number])


def orders(path: Path) -> int:
    [(count,)] = ask(path, "SELECT count(*) FROM orders")
    return int(count)


def jobs(path: Path) -> list[str]:
    """The types of the jobs that others can see."""
    return [kind for (kind,) in ask(path, "SELECT type FROM yaoki_jobs ORDER BY id")]


def test_a_job_appears_with_the_commit_of_the_atomic_block(app: Yaoki, path: Path) -> None:
    with transaction.atomic():
        add_order(1)
        app.enqueue("ship")
        app.enqueue_many("mail", [{}, {}])
        assert jobs(path) == []

    assert (jobs(path), orders(path)) == (["ship", "mail", "mail"], 1)


def test_a_job_is_gone_with_the_atomic_block(app: Yaoki, path: Path) -> None:
    with transaction.atomic():
        app.enqueue("ship", idempotency_key="k")
        add_order(1)
        transaction.set_rollback(True)

    assert (jobs(path), orders(path)) == ([], 0)
    assert app.enqueue("ship", idempotency_key="k").created


def test_a_job_of_an_inner_block_goes_with_it(app: Yaoki, path: Path) -> None:
    with transaction.atomic():
        app.enqueue("outer")
        with suppress(ZeroDivisionError), transaction.atomic():
            app.enqueue("inner")
            raise ZeroDivisionError

    assert jobs(path) == ["outer"]


def test_outside_of_atomic_each_job_is_a_transaction(app: Yaoki, path: Path) -> None:
    default.ensure_connection()

    app.enqueue("ship")

    assert jobs(path) == ["ship"]


def test_a_handlers_own_enqueue_joins_too(app: Yaoki, path: Path) -> None:
    @app.job("ship")
    def ship(order: int) -> None: ...

    with transaction.atomic():
        ship.enqueue(order=1)
        ship.using(delay=5).enqueue_many([{"order": 2}])
        transaction.set_rollback(True)

    assert jobs(path) == []


def test_a_transaction_of_another_database_is_not_joined(app: Yaoki, path: Path) -> None:
    with transaction.atomic(using="other"):
        app.enqueue("ship")
        transaction.set_rollback(True, using="other")

    assert jobs(path) == ["ship"]


def test_a_transaction_of_another_thread_is_not_joined(app: Yaoki, path: Path) -> None:
    with transaction.atomic():
        default.ensure_connection()
        thread = threading.Thread(target=app.enqueue, args=("elsewhere",))
        thread.start()
        thread.join()
        assert jobs(path) == ["elsewhere"]
        transaction.set_rollback(True)

    assert jobs(path) == ["elsewhere"]


def test_a_refused_job_leaves_the_block_usable(app: Yaoki, path: Path) -> None:
    app.enqueue("mail", idempotency_key="k")
    with transaction.atomic():
        add_order(1)
        with pytest.raises(KeyConflict):
            app.enqueue("ship", idempotency_key="k")
        add_order(2)

    assert orders(path) == 2


@pytest.mark.parametrize("commits", [True, False])
def test_djangos_connection_can_be_named(app: Yaoki, path: Path, commits: bool) -> None:
    with transaction.atomic():
        add_order(1)
        with app.on(default):
            job = app.enqueue("ship")
            assert app.cancel(job).status == "cancelled"
        transaction.set_rollback(not commits)

    assert (jobs(path), orders(path)) == ((["ship"], 1) if commits else ([], 0))


def test_djangos_connection_to_another_database_is_refused(app: Yaoki, path: Path) -> None:
    with pytest.raises(WrongConnection), app.on(connections["other"]):
        app.enqueue("ship")

    assert jobs(path) == []


def test_once_is_part_of_the_atomic_block(app: Yaoki) -> None:
    answers: list[Any] = []
    for rolls_back in (True, False, False):
        with transaction.atomic():
            answers.append(once(default, "k"))
            transaction.set_rollback(rolls_back)

    assert answers == [True, True, False]


def test_once_outside_of_atomic_is_refused(app: Yaoki, path: Path) -> None:
    with pytest.raises(NotInTransaction, match="atomic"):
        once(default, "k")

    assert ask(path, "SELECT * FROM yaoki_once") == []


def test_no_verb_waits_for_the_lock_of_its_own_caller(app: Yaoki, path: Path) -> None:
    """The block holds the write lock, and ends only after the verb: that would never end well."""
    job, dead = app.enqueue("mail"), app.enqueue("image", max_attempts=1)
    app.fail(app.claim("w1", types=["image"])[0], "broken")

    with transaction.atomic():
        add_order(1)
        began = time.monotonic()
        app.cancel(job)
        app.retry(dead)
        app.pause("mail")
        assert time.monotonic() - began < 1
        transaction.set_rollback(True)

    assert [one.status for one in app.jobs()] == ["failed", "pending"]


def test_what_was_enqueued_in_the_block_can_be_read_in_it(app: Yaoki) -> None:
    with transaction.atomic():
        job = app.enqueue("ship")

        assert app.get(job) == job
        assert app.jobs() == [job]
        assert app.enqueue("ship", idempotency_key="k").id == job.id + 1
        assert app.enqueue("ship", idempotency_key="k").created is False
