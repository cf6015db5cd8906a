"""app.on(connection): a transaction is a transaction (promise 10)."""

import asyncio
import contextvars
import random
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import ask, assert_intact
from yaoki import KeyConflict, StoreBusy, WrongConnection, Yaoki
from yaoki.store.ops.claims import Look


@contextmanager
def connected(path: Path | str, **how: Any) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, **how)
    try:
        yield connection
    finally:
        connection.close()


def begun(connection: sqlite3.Connection) -> sqlite3.Connection:
    connection.execute("BEGIN")
    return connection


Open = Callable[[Path], sqlite3.Connection]

# Every way in which a program may have a transaction.
WAYS: dict[str, Open] = {
    "legacy": lambda path: sqlite3.connect(path),
    "legacy, immediate": lambda path: sqlite3.connect(path, isolation_level="IMMEDIATE"),
    "begun by hand": lambda path: begun(sqlite3.connect(path, isolation_level=None)),
}
if sys.version_info >= (3, 12):
    WAYS["autocommit=False"] = lambda path: sqlite3.connect(path, autocommit=False)


@pytest.fixture(params=WAYS)
def mine(request: pytest.FixtureRequest, app: Yaoki, path: Path) -> Iterator[sqlite3.Connection]:
    """The caller's connection, in each of the ways."""
    with connected(path) as first:
        first.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    connection = WAYS[request.param](path)
    yield connection
    connection.close()


def orders(path: Path) -> int:
    [(count,)] = ask(path, "SELECT count(*) FROM orders")
    return int(count)


def test_a_job_appears_when_the_caller_commits(
    app: Yaoki, mine: sqlite3.Connection, path: Path
) -> None:
    """Not before: a worker that ran it would not find the order (fault 132)."""
    with app.on(mine):
        mine.execute("INSERT INTO orders VALUES (1)")
        job = app.enqueue("ship", {"order": 1})
        assert app.get(job) == job
    assert mine.in_transaction
    assert app.jobs() == []
    assert not app.store.run(Look()).due

    mine.commit()

    assert (app.get(job), orders(path)) == (job, 1)


def test_a_job_is_gone_when_the_caller_rolls_back(
    app: Yaoki, mine: sqlite3.Connection, path: Path
) -> None:
    with app.on(mine):
        app.enqueue("ship", idempotency_key="order-1")
        mine.execute("INSERT INTO orders VALUES (1)")
        app.enqueue_many("mail", [{}, {}])

    mine.rollback()

    assert (app.jobs(), orders(path)) == ([], 0)
    assert app.enqueue("ship", idempotency_key="order-1").created


def test_a_job_may_be_the_first_change_of_the_transaction(
    app: Yaoki, mine: sqlite3.Connection
) -> None:
    """The driver begins before an INSERT, not before a SAVEPOINT."""
    with app.on(mine):
        app.enqueue("ship")
    assert app.jobs() == []
    mine.rollback()

    assert app.jobs() == []


def test_an_operation_that_is_refused_leaves_the_callers_transaction_as_it_was(
    app: Yaoki, mine: sqlite3.Connection, path: Path
) -> None:
    app.enqueue("mail", idempotency_key="k")

    with app.on(mine):
        mine.execute("INSERT INTO orders VALUES (1)")
        app.enqueue("ship")
        with pytest.raises(KeyConflict):
            app.enqueue("ship", idempotency_key="k")
        mine.execute("INSERT INTO orders VALUES (2)")
    mine.commit()

    assert ([job.type for job in app.jobs()], orders(path)) == (["ship", "mail"], 2)


def test_every_verb_runs_in_the_callers_transaction(app: Yaoki, mine: sqlite3.Connection) -> None:
    old = app.enqueue("mail")
    with app.on(mine):
        [claimed] = app.claim("w1")
        app.complete(claimed)
        app.pause("mail")
        assert app.get(old).status == "completed"
        assert [queue.name for queue in app.queues()] == ["mail"]

    mine.rollback()

    assert app.get(old).status == "pending"
    assert app.queues()[0].name == "default"


def test_on_a_connection_that_commits_each_statement_each_call_is_a_transaction(
    app: Yaoki, path: Path
) -> None:
    with connected(path, isolation_level=None) as mine, app.on(mine):
        job = app.enqueue("ship")
        assert not mine.in_transaction

    assert app.get(job) == job


def test_after_the_block_calls_have_transactions_of_their_own_again(app: Yaoki, path: Path) -> None:
    with connected(path) as mine:
        with app.on(mine):
            inside = app.enqueue("ship")
        mine.rollback()
        outside = app.enqueue("ship")

    assert [job.id for job in app.jobs()] == [outside.id]
    assert inside.created


def test_the_scope_ends_with_the_block_also_when_it_raises(app: Yaoki, path: Path) -> None:
    with connected(path) as mine:
        with pytest.raises(ZeroDivisionError), app.on(mine):
            raise ZeroDivisionError
        job = app.enqueue("ship")

    assert app.get(job) == job


def test_blocks_can_be_nested(app: Yaoki, path: Path) -> None:
    with connected(path) as one:
        with app.on(one):
            app.enqueue("first")
            with app.on(one):
                app.enqueue("second")
            app.enqueue("third")
        assert app.jobs() == []
        one.commit()

    assert [job.type for job in app.jobs()] == ["third", "second", "first"]


def test_another_app_inside_the_block_is_not_part_of_it(app: Yaoki, path: Path) -> None:
    with connected(path) as mine:
        other = Yaoki(f"sqlite:///{path.with_name('other.db')}")
        with app.on(mine):
            app.enqueue("ship")
            elsewhere = other.enqueue("mail")
        mine.rollback()

    assert other.get(elsewhere) == elsewhere
    other.close()


# What the caller does with rows and text


def dicts(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> dict[str, Any]:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


@pytest.mark.parametrize("factory", [sqlite3.Row, dicts], ids=["Row", "dicts"])
def test_the_callers_row_factory_is_left_alone_and_does_no_harm(
    app: Yaoki, path: Path, factory: Any
) -> None:
    with connected(path) as mine:
        mine.row_factory = factory
        with app.on(mine):
            made = app.enqueue("ship", {"a": 1}, idempotency_key="k")
            assert app.get(made) == made
            assert app.enqueue("ship", idempotency_key="k").id == made.id
            [claimed] = app.claim("w1")
            app.complete(claimed)
            assert app.jobs()[0].id == made.id
        mine.commit()
        assert mine.row_factory is factory
        [row] = mine.execute("SELECT 1 AS one").fetchall()
        assert row["one"] == 1


def test_a_text_factory_that_would_change_the_answers_is_refused(app: Yaoki, path: Path) -> None:
    with connected(path) as mine:
        mine.text_factory = bytes
        with pytest.raises(WrongConnection, match="text_factory"), app.on(mine):
            app.enqueue("ship")

    assert app.jobs() == []


# Connections that cannot be used


def test_a_connection_to_another_file_is_refused_by_name(app: Yaoki, path: Path) -> None:
    elsewhere = path.with_name("elsewhere.db")
    with connected(elsewhere) as mine, pytest.raises(WrongConnection) as wrong, app.on(mine):
        app.enqueue("ship")

    assert str(elsewhere) in str(wrong.value)
    assert str(path) in str(wrong.value)
    assert "\n" not in str(wrong.value)
    assert app.jobs() == []


def test_a_connection_to_which_the_queue_is_only_attached_is_refused(
    app: Yaoki, path: Path
) -> None:
    with connected(path.with_name("elsewhere.db")) as mine:
        mine.execute("ATTACH ? AS queue", [str(path)])
        with pytest.raises(WrongConnection), app.on(mine):
            app.enqueue("ship")


@pytest.mark.parametrize("place", [":memory:", ""])
def test_a_database_in_memory_is_refused(app: Yaoki, place: str) -> None:
    with (
        connected(place) as mine,
        pytest.raises(WrongConnection, match="in memory"),
        app.on(mine),
    ):
        app.enqueue("ship")


def test_the_same_file_by_another_name_is_the_same(
    app: Yaoki, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    monkeypatch.chdir(path.parent)

    for name in (link, Path("jobs.db"), path.parent / "." / "jobs.db"):
        with connected(name) as mine:
            with app.on(mine):
                app.enqueue("ship")
            mine.commit()

    assert len(app.jobs()) == 3


@pytest.mark.parametrize(
    "module", ["apsw", "pysqlite3.dbapi2", "sqlean.dbapi2", "libsql_experimental", "sqlcipher3"]
)
def test_a_connection_of_another_sqlite_library_is_refused_with_the_reason(
    app: Yaoki, module: str
) -> None:
    """Closing a file in one library drops the locks of the other: both damage it."""
    stand_in = type("Connection", (), {"__module__": module})()

    with (
        pytest.raises(WrongConnection, match="two of them in one process damage"),
        app.on(stand_in),
    ):
        app.enqueue("ship")


@pytest.mark.parametrize("thing", [None, "sqlite:///jobs.db", object(), 7, sqlite3])
def test_what_is_no_connection_is_refused(app: Yaoki, thing: Any) -> None:
    with pytest.raises(WrongConnection, match=r"pass a sqlite3\.Connection"), app.on(thing):
        app.enqueue("ship")


# Threads and tasks


def test_a_thread_that_is_begun_inside_is_not_part_of_it(app: Yaoki, path: Path) -> None:
    """Not even when it takes the context along, as asyncio.to_thread does."""
    with connected(path, check_same_thread=False) as mine:
        with app.on(mine):
            context = contextvars.copy_context()
            for run in (app.enqueue, lambda kind: context.run(app.enqueue, kind)):
                thread = threading.Thread(target=run, args=("elsewhere",))
                thread.start()
                thread.join()
            app.enqueue("inside")
        mine.rollback()

    assert [job.type for job in app.jobs()] == ["elsewhere"] * 2


def test_a_task_that_is_begun_inside_is_not_part_of_it(app: Yaoki, path: Path) -> None:
    async def story() -> None:
        with connected(path, check_same_thread=False) as mine:
            with app.on(mine):
                await asyncio.create_task(app.aenqueue("in a task"))
                await asyncio.to_thread(app.enqueue, "in a thread")
                await app.aenqueue("inside")
                app.enqueue("inside")
                assert [job.type for job in await app.ajobs()][:2] == ["inside", "inside"]
            mine.rollback()

    asyncio.run(story())

    assert [job.type for job in app.jobs()] == ["in a thread", "in a task"]


def test_a_task_beside_the_block_is_not_part_of_it(app: Yaoki, path: Path) -> None:
    async def story() -> None:
        entered, done = asyncio.Event(), asyncio.Event()

        async def beside() -> None:
            await entered.wait()
            await app.aenqueue("beside")
            done.set()

        task = asyncio.create_task(beside())
        with connected(path) as mine:
            with app.on(mine):
                entered.set()
                await done.wait()
                app.enqueue("inside")
            mine.rollback()
        await task

    asyncio.run(story())

    assert [job.type for job in app.jobs()] == ["beside"]


# Others who write


def test_a_transaction_that_read_before_another_wrote_gets_a_clear_error(
    app: Yaoki, path: Path
) -> None:
    """SQLite refuses the upgrade at once, whatever the busy timeout says (fact F12)."""
    with connected(path, isolation_level=None, timeout=3) as mine:
        mine.execute("BEGIN")
        mine.execute("SELECT count(*) FROM yaoki_jobs").fetchone()
        app.enqueue("by another")

        with pytest.raises(StoreBusy, match="BEGIN IMMEDIATE"), app.on(mine):
            app.enqueue("ship")
        mine.rollback()
        mine.execute("BEGIN IMMEDIATE")
        with app.on(mine):
            app.enqueue("ship")
        mine.commit()

    assert [job.type for job in app.jobs()] == ["ship", "by another"]


def test_a_connection_that_finds_the_lock_taken_gets_a_clear_error(app: Yaoki, path: Path) -> None:
    with (
        connected(path, isolation_level=None) as other,
        connected(path, timeout=0.05) as mine,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy, match="try the whole again"), app.on(mine):
            app.enqueue("ship")
        other.rollback()

    assert app.jobs() == []


def test_writers_on_connections_of_their_own_do_not_harm_the_file(app: Yaoki, path: Path) -> None:
    def write(number: int) -> None:
        with connected(path, timeout=30, isolation_level="IMMEDIATE") as mine:
            for step in range(20):
                with app.on(mine):
                    app.enqueue("ship", {"n": number * 100 + step})
                mine.commit() if step % 2 else mine.rollback()
                app.enqueue("own")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    kinds = [job.type for job in app.jobs(limit=1_000)]
    assert (kinds.count("ship"), kinds.count("own")) == (60, 120)
    assert_intact(path)


# The same key in two transactions


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_key_that_another_transaction_may_still_give_up_is_waited_for(
    app: Yaoki, path: Path, ending: str
) -> None:
    """Who is second learns the truth, and is not told that somebody else is at it (fault 71)."""
    made: list[Any] = []
    with connected(path, check_same_thread=False) as mine:
        with app.on(mine):
            first = app.enqueue("ship", idempotency_key="k")
        second = threading.Thread(
            target=lambda: made.append(app.enqueue("ship", idempotency_key="k"))
        )
        second.start()
        second.join(0.2)
        assert made == []
        getattr(mine, ending)()
        second.join(10)

    [job] = made
    if ending == "commit":
        assert (job.id, job.created) == (first.id, False)
    else:
        assert job.created
    assert [one.id for one in app.jobs()] == [job.id]


def test_of_transactions_with_one_key_that_end_at_random_one_job_is_left(
    app: Yaoki, path: Path
) -> None:
    for round_ in range(5):
        key, commits = f"k{round_}", []

        def one(number: int, key: str = key, commits: list[int] = commits) -> None:
            with connected(path, timeout=30, isolation_level="IMMEDIATE") as mine:
                with app.on(mine):
                    app.enqueue("ship", {"by": number}, idempotency_key=key)
                if random.Random(number * 7).random() < 0.5:
                    mine.commit()
                    commits.append(number)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert commits
        assert [job.idempotency_key for job in app.jobs()].count(key) == 1


def test_reading_takes_no_lock_that_the_caller_would_have_to_let_go_of(
    app: Yaoki, path: Path
) -> None:
    """A program that only looks commits nothing, and would block every writer for ever."""
    job = app.enqueue("mail")
    with connected(path) as mine:
        with app.on(mine):
            assert app.get(job) == job
            assert app.jobs() == [job]
        assert not mine.in_transaction

        assert app.enqueue("by another").id == 2
