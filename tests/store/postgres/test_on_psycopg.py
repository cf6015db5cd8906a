"""app.on() on psycopg's connections: whatever their owner made of them, and who is woken."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from decimal import Decimal
from typing import Any

import psycopg
import psycopg_pool
import pytest
from psycopg.adapt import Dumper, Loader
from psycopg.rows import dict_row

from tests.support.eventually import eventually
from tests.support.postgres import Server, database_of, for_libpq, fresh_database, with_database
from yaoki import (
    DuplicateJob,
    KeyConflict,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    WrongConnection,
    Yaoki,
)
from yaoki.store.op import Interfered, Op, Statement, Steps

Connection = psycopg.Connection[Any]


@pytest.fixture
def mine(postgres_url: str) -> Iterator[Connection]:
    with closing(psycopg.connect(postgres_url)) as connection:
        yield connection


@pytest.fixture
def others(postgres_url: str) -> Iterator[Connection]:
    """A connection beside the caller's, which commits each statement."""
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        yield connection


def jobs(others: Connection) -> list[str]:
    rows = others.execute("SELECT type FROM yaoki.jobs ORDER BY id").fetchall()
    return [kind for (kind,) in rows]


# What its owner made of it


class DecimalLoader(Loader):
    def load(self, data: Any) -> Decimal:
        return Decimal(bytes(data).decode())


class Shouting(Dumper):
    def dump(self, obj: Any) -> bytes:
        return str(obj).upper().encode() + b"!"


def test_how_the_connection_converts_values_for_its_owner_does_not_matter(
    app: Yaoki, mine: Connection
) -> None:
    mine.row_factory = dict_row
    mine.cursor_factory = psycopg.ClientCursor
    for name in ("int8", "text", "bool"):
        mine.adapters.register_loader(name, DecimalLoader)
    for kind in (str, int):
        mine.adapters.register_dumper(kind, Shouting)

    with app.on(mine):
        job = app.enqueue("ship", {"to": "x"}, idempotency_key="k", priority=7)
        assert app.enqueue("ship", idempotency_key="k").created is False
        [listed] = app.jobs()
        assert (listed.id, listed.type, listed.payload, listed.priority) == (
            job.id,
            "ship",
            {"to": "x"},
            7,
        )
        [many] = app.enqueue_many("mail", [{}])
        assert app.cancel(many).status == "cancelled"
    mine.commit()

    assert app.get(job) == job
    assert mine.row_factory is dict_row
    assert mine.execute("SELECT 1::int8 AS one").fetchone() == {"one": Decimal(1)}


def test_nothing_is_prepared_where_the_owner_wants_nothing_prepared(
    app: Yaoki, postgres_url: str
) -> None:
    with closing(psycopg.connect(postgres_url, prepare_threshold=None)) as mine, app.on(mine):
        for _ in range(10):
            app.enqueue("ship")
            app.enqueue_many("mail", [{}])
        assert mine.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)


def test_statements_that_are_used_often_are_prepared_as_the_owners_own(
    app: Yaoki, mine: Connection
) -> None:
    with app.on(mine):
        for _ in range(10):
            app.enqueue("ship")
            app.enqueue_many("mail", [{}, {}])
    mine.commit()

    assert len(app.jobs()) == 30


def test_a_pipeline_of_the_owners_is_no_hindrance(
    app: Yaoki, mine: Connection, others: Connection
) -> None:
    others.execute("CREATE TABLE orders (id integer)")
    app.enqueue("mail", idempotency_key="k")
    with mine.pipeline(), app.on(mine):
        mine.execute("INSERT INTO orders VALUES (1)")
        app.enqueue("ship")
        app.enqueue_many("ship", [{}])
        with pytest.raises(KeyConflict):
            app.enqueue("ship", idempotency_key="k")
        mine.execute("INSERT INTO orders VALUES (2)")
    mine.commit()

    assert jobs(others) == ["mail", "ship", "ship"]
    assert others.execute("SELECT count(*) FROM orders").fetchone() == (2,)


def test_a_job_goes_with_the_savepoint_it_was_made_in(
    app: Yaoki, mine: Connection, others: Connection
) -> None:
    with mine, app.on(mine):
        app.enqueue("outer")
        with suppress(ZeroDivisionError), mine.transaction():
            app.enqueue_many("inner", [{}, {}])
            raise ZeroDivisionError

    assert jobs(others) == ["outer"]


def test_a_connection_from_a_pool_works_and_the_pool_itself_is_no_connection(
    app: Yaoki, postgres_url: str
) -> None:
    with psycopg_pool.ConnectionPool(postgres_url, min_size=1, open=True) as pool:
        with pool.connection() as mine, app.on(mine):
            app.enqueue("ship")
        with pytest.raises(WrongConnection, match="is no connection"), app.on(pool):
            app.enqueue("never")

    assert [job.type for job in app.jobs()] == ["ship"]


def test_another_schema_is_found(postgres_url: str, mine: Connection) -> None:
    app = Yaoki(f"{postgres_url}?schema=Other$1")
    app.migrate()
    with app.on(mine):
        job = app.enqueue("ship")
        app.cancel(job)
    mine.commit()

    assert [job.status for job in app.jobs()] == ["cancelled"]
    app.close()


# Whose transaction


def test_nothing_is_committed_behind_the_callers_back(
    app: Yaoki, mine: Connection, others: Connection
) -> None:
    with app.on(mine):
        app.enqueue("ship")
        app.enqueue_many("mail", [{}])
        assert mine.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    mine.rollback()

    assert jobs(others) == []


def test_in_autocommit_mode_each_call_is_a_transaction(app: Yaoki, others: Connection) -> None:
    with app.on(others):
        app.enqueue("ship", idempotency_key="k")
        assert jobs(others) == ["ship"]
        with pytest.raises(KeyConflict):
            app.enqueue("mail", idempotency_key="k")
        app.cancel(app.jobs(type="ship")[0])

    assert others.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert app.jobs(type="ship")[0].status == "cancelled"


def test_in_autocommit_mode_another_encoding_loses_no_character_either(
    app: Yaoki, others: Connection
) -> None:
    others.execute("SET client_encoding TO 'LATIN1'")
    with app.on(others):
        job = app.enqueue("運ぶ", {"to": "東京"})
        app.pause("待")
        assert app.get(job) == job
        assert [one.name for one in app.paused()] == ["待"]

    assert others.info.encoding == "iso8859-1"


def test_a_transaction_that_was_begun_in_autocommit_mode_is_joined(
    app: Yaoki, mine: Connection, others: Connection
) -> None:
    mine.autocommit = True
    with app.on(mine):
        with suppress(ZeroDivisionError), mine.transaction():
            app.enqueue("never")
            raise ZeroDivisionError
        with mine.transaction():
            app.enqueue("ship")
            assert jobs(others) == []

    assert jobs(others) == ["ship"]


def test_the_block_is_not_inherited_by_threads(
    app: Yaoki, mine: Connection, others: Connection
) -> None:
    with app.on(mine):
        app.enqueue("mine")
        thread = threading.Thread(target=app.enqueue, args=("elsewhere",))
        thread.start()
        thread.join()
        assert jobs(others) == ["elsewhere"]
    app.enqueue("afterwards")
    mine.rollback()

    assert jobs(others) == ["elsewhere", "afterwards"]


def test_a_batch_is_all_or_nothing_in_a_transaction_that_goes_on(
    app: Yaoki, mine: Connection, others: Connection
) -> None:
    @app.job("ship", idempotency_key="order-{order}")
    def ship(order: int) -> None: ...

    ship.enqueue(order=2)
    with mine, app.on(mine), pytest.raises(DuplicateJob):
        ship.using(on_existing="raise").enqueue_many([{"order": 1}, {"order": 2}])

    assert jobs(others) == ["ship"]


# Others who come in the way


def test_a_key_that_another_transaction_holds_is_waited_for(
    app: Yaoki, mine: Connection, postgres_url: str
) -> None:
    made: list[Any] = []
    with app.on(mine):
        first = app.enqueue("ship", idempotency_key="k")

    def second() -> None:
        with psycopg.connect(postgres_url) as theirs, app.on(theirs):
            made.append(app.enqueue("ship", idempotency_key="k"))

    thread = threading.Thread(target=second)
    thread.start()
    eventually(lambda: waits_for_a_lock(mine))
    assert made == []
    mine.commit()
    thread.join(20)

    assert [(job.id, job.created) for job in made] == [(first.id, False)]


def waits_for_a_lock(connection: Connection) -> bool:
    statement = "SELECT 1 FROM pg_locks WHERE NOT granted"
    return connection.execute(statement).fetchone() is not None


class Disturbed(Op[int]):
    """One that others come in the way of, a few times."""

    def __init__(self, times: int) -> None:
        self.times = times

    def steps(self) -> Steps[int]:
        yield Statement("disturbed", {}, text="INSERT INTO orders VALUES (1)")
        self.times -= 1
        if self.times >= 0:
            raise Interfered
        return (yield Statement("disturbed", {}, text="SELECT count(*) FROM orders")).rows[0][0]


@pytest.mark.parametrize("autocommit", [False, True])
def test_what_others_came_in_the_way_of_is_undone_and_done_again(
    app: Yaoki, mine: Connection, others: Connection, autocommit: bool
) -> None:
    others.execute("CREATE TABLE orders (id integer)")
    mine.autocommit = autocommit

    with app.store.on(mine) as run:
        assert run(Disturbed(2)) == 1
        with pytest.raises(StoreBusy, match="again and again"):
            run(Disturbed(100))
    mine.commit()

    assert others.execute("SELECT count(*) FROM orders").fetchone() == (1,)


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("many", [False, True])
def test_a_transaction_that_read_too_early_is_told_to_try_the_whole_again(
    app: Yaoki, mine: Connection, level: str, many: bool
) -> None:
    @app.job("ship", idempotency_key="{order}")
    def ship(order: int) -> None: ...

    mine.execute(f"SET TRANSACTION ISOLATION LEVEL {level}".encode())
    mine.execute("SELECT 1 FROM yaoki.jobs")
    ship.enqueue(order=1)

    with app.on(mine), pytest.raises(StoreBusy, match="try the whole of it again"):
        ship.enqueue_many([{"order": 1}]) if many else ship.enqueue(order=1)
    mine.rollback()
    with app.on(mine):
        assert not ship.enqueue(order=1).created


def test_a_transaction_that_only_reads_is_told_so(app: Yaoki, mine: Connection) -> None:
    mine.read_only = True

    with app.on(mine), pytest.raises(StoreError, match="only reads"):
        app.enqueue_many("ship", [{}])
    assert app.jobs() == []


def test_a_deadlock_is_told_to_try_the_whole_again(
    app: Yaoki, mine: Connection, postgres_url: str
) -> None:
    a, b = app.enqueue("a"), app.enqueue("b")
    problems: list[Exception] = []
    met = threading.Barrier(2)

    def cancel(connection: Connection, first: Any, second: Any) -> None:
        with app.on(connection):
            app.cancel(first)
            met.wait(10)
            try:
                app.cancel(second)
            except StoreBusy as problem:
                problems.append(problem)
        connection.rollback()

    with psycopg.connect(postgres_url) as theirs:
        thread = threading.Thread(target=cancel, args=(theirs, b, a))
        thread.start()
        cancel(mine, a, b)
        thread.join(20)

    assert len(problems) == 1
    assert "try the whole of it again" in str(problems[0])


def test_a_connection_that_broke_is_said_to_be_broken(
    app: Yaoki, mine: Connection, others: Connection
) -> None:
    with app.on(mine):
        app.enqueue("ship")
        others.execute("SELECT pg_terminate_backend(%s)", [mine.info.backend_pid])
        with pytest.raises(StoreUnavailable):
            app.enqueue_many("ship", [{}])
        with pytest.raises(StoreUnavailable):
            app.enqueue("ship")

    assert jobs(others) == []


def test_a_connection_that_was_closed_is_said_to_be_closed(app: Yaoki, mine: Connection) -> None:
    mine.close()

    with app.on(mine), pytest.raises(StoreUnavailable, match="closed"):
        app.enqueue("ship")


# Who is woken


@contextmanager
def listening(url: str) -> Iterator[Connection]:
    with closing(psycopg.connect(url, autocommit=True)) as ear:
        ear.execute('LISTEN "yaoki_yaoki"')
        yield ear


def heard(ear: Connection) -> int:
    """How often it was told, by now."""
    ear.execute("SELECT 1")
    return len(list(ear.notifies(timeout=0)))


def test_workers_are_told_with_the_commit_and_once(
    app: Yaoki, mine: Connection, postgres_url: str
) -> None:
    with listening(postgres_url) as ear:
        with app.on(mine):
            app.enqueue("ship")
            app.enqueue_many("mail", [{}, {}])
            app.enqueue("ship")
        assert heard(ear) == 0
        mine.commit()
        assert heard(ear) == 1


def test_nobody_is_told_of_what_was_rolled_back(
    app: Yaoki, mine: Connection, postgres_url: str
) -> None:
    with listening(postgres_url) as ear:
        with app.on(mine):
            app.enqueue("ship")
        mine.rollback()
        with app.on(mine):
            app.get(app.enqueue("ship"))
            mine.rollback()
            app.jobs()
        mine.commit()
        assert heard(ear) == 0


def test_nobody_is_told_where_workers_poll(postgres_url: str, mine: Connection) -> None:
    app = Yaoki(f"{postgres_url}?wake=poll")
    with listening(postgres_url) as ear:
        with mine, app.on(mine):
            app.enqueue("ship")
        assert heard(ear) == 0
    app.close()


# What cannot be used


@pytest.mark.parametrize("thing", [None, "postgresql:///jobs", object(), psycopg])
def test_what_is_no_connection_is_refused(app: Yaoki, thing: Any) -> None:
    with pytest.raises(WrongConnection), app.on(thing):
        app.enqueue("ship")


def test_a_database_of_the_same_name_on_another_server_is_another(
    app: Yaoki, postgres_url: str
) -> None:
    other = Server()
    try:
        name = database_of(postgres_url)
        with psycopg.connect(other.url, autocommit=True) as admin:
            admin.execute(f'CREATE DATABASE "{name}"'.encode())
        refused = pytest.raises(WrongConnection, match="another server")
        with psycopg.connect(with_database(other.url, name)) as mine, app.on(mine), refused:
            app.enqueue("ship")
    finally:
        other.delete()


def test_a_server_that_was_started_again_is_still_the_queues_own(
    app: Yaoki, mine: Connection
) -> None:
    home = app.store._home
    with app.on(mine):
        app.enqueue("ship")
    home._own = home._own._replace(started=0)
    home._known.clear()

    with app.on(mine):
        app.enqueue("ship")
    mine.commit()

    assert len(app.jobs()) == 2


def test_a_connection_of_the_other_database_is_refused_with_the_reason(
    app: Yaoki, mine: Connection, url: str
) -> None:
    in_a_file = Yaoki(url)

    refused = pytest.raises(WrongConnection, match="to PostgreSQL, and the jobs are in a SQLite")
    with refused, in_a_file.on(mine):
        in_a_file.enqueue("ship")
    in_a_file.close()


def test_the_tables_are_made_when_the_first_use_is_on_a_connection() -> None:
    """Also in a transaction that began before: names are looked up as they are now."""
    with fresh_database(migrated=False) as url, psycopg.connect(for_libpq(url)) as mine:
        mine.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        mine.execute("SELECT 1 FROM pg_class")
        app = Yaoki(url)
        with app.on(mine):
            job = app.enqueue("ship")
        mine.commit()
        assert app.get(job) == job
        app.close()


def test_tables_that_were_dropped_meanwhile_are_missed(app: Yaoki) -> None:
    with fresh_database() as url, psycopg.connect(for_libpq(url), autocommit=True) as mine:
        gone = Yaoki(url)
        gone.jobs()
        mine.execute("DROP SCHEMA yaoki CASCADE")
        with gone.on(mine), pytest.raises(StoreError, match="yaoki migrate"):
            gone.enqueue("ship")
        gone.close()
