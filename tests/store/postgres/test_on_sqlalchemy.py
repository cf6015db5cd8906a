"""app.on() and once() on SQLAlchemy's connections and sessions, blocking and asyncio's."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.ext.asyncio import (
    AsyncSession,
    async_scoped_session,
    async_sessionmaker,
    create_async_engine,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, scoped_session
from sqlalchemy.orm import sessionmaker as session_maker

from yaoki import KeyConflict, NotInTransaction, WrongConnection, Yaoki, aonce, once


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


class OurSession(Session):
    """As in a program of one's own, or SQLModel's."""

    __module__ = "shop.database"


@pytest.fixture
def others(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute("CREATE TABLE orders (id integer PRIMARY KEY)")
        yield connection


def jobs(others: psycopg.Connection[Any]) -> list[str]:
    rows = others.execute("SELECT type FROM yaoki.jobs ORDER BY id").fetchall()
    return [kind for (kind,) in rows]


def orders(others: psycopg.Connection[Any]) -> int:
    [(count,)] = others.execute("SELECT count(*) FROM orders").fetchall()
    return int(count)


@pytest.fixture(params=["psycopg", "psycopg2"])
def engine(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Any]:
    engine = create_engine(for_driver(postgres_url, request.param))
    yield engine
    engine.dispose()


@pytest.fixture(params=["psycopg", "asyncpg"])
def async_url(request: pytest.FixtureRequest, postgres_url: str) -> str:
    return for_driver(postgres_url, request.param)


def for_driver(url: str, driver: str) -> str:
    return url.replace("postgresql", f"postgresql+{driver}", 1)


def test_a_connection_that_has_not_begun_is_committed_by_its_owner_all_the_same(
    app: Yaoki, engine: Any, others: psycopg.Connection[Any]
) -> None:
    with engine.connect() as connection:
        with app.on(connection):
            app.enqueue("first")
        connection.commit()
        with app.on(connection):
            app.enqueue("second")
        connection.rollback()
        with app.on(connection):
            app.enqueue("third")

    assert jobs(others) == ["first"]


def test_a_job_goes_with_the_savepoint_it_was_made_in(
    app: Yaoki, engine: Any, others: psycopg.Connection[Any]
) -> None:
    with Session(engine) as session:
        session.add(Order(id=1))
        with app.on(session):
            app.enqueue("outer")
            savepoint = session.begin_nested()
            app.enqueue_many("inner", [{}])
            savepoint.rollback()
        session.commit()

    assert (jobs(others), orders(others)) == (["outer"], 1)


def test_a_session_may_commit_more_than_once_in_the_block(
    app: Yaoki, engine: Any, others: psycopg.Connection[Any]
) -> None:
    with Session(engine) as session:
        with app.on(session):
            for number in range(3):
                session.add(Order(id=number))
                app.enqueue("ship")
                session.commit()
                app.enqueue("mail")
                session.commit()
        app.enqueue("by another")

    assert (len(jobs(others)), orders(others)) == (7, 3)


@pytest.mark.parametrize("made", ["subclass", "factory", "scoped"])
def test_every_kind_of_session_works(
    app: Yaoki, engine: Any, others: psycopg.Connection[Any], made: str
) -> None:
    makers: dict[str, Any] = {
        "subclass": lambda: OurSession(engine),
        "factory": session_maker(engine),
        "scoped": scoped_session(session_maker(engine)),
    }
    session = makers[made]()
    with app.on(session):
        app.enqueue(made)
    assert once(session, "k")
    session.commit()
    session.close()

    assert jobs(others) == [made]


def test_a_session_whose_flush_failed_is_told_to_roll_back(
    app: Yaoki, engine: Any, others: psycopg.Connection[Any]
) -> None:
    others.execute("INSERT INTO orders VALUES (1)")
    with Session(engine) as session:
        session.add(Order(id=1))
        with pytest.raises(Exception, match="duplicate key"):
            session.flush()
        with app.on(session):
            with pytest.raises(NotInTransaction, match="roll it back first"):
                app.enqueue("ship")
            session.rollback()
            app.enqueue("ship")
        session.commit()

    assert jobs(others) == ["ship"]


def test_an_engine_that_commits_each_statement_makes_each_job_a_transaction(
    app: Yaoki, engine: Any, others: psycopg.Connection[Any]
) -> None:
    with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        with app.on(connection):
            app.enqueue("ship")
            assert jobs(others) == ["ship"]
        with pytest.raises(NotInTransaction):
            once(connection, "k")


def test_an_engine_is_no_connection(app: Yaoki, engine: Any) -> None:
    with pytest.raises(WrongConnection, match="Engine is no connection"), app.on(engine):
        app.enqueue("ship")


def test_a_session_on_a_sqlite_file_is_refused_with_the_reason(app: Yaoki, tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    refused = pytest.raises(WrongConnection, match="to a SQLite file, and the jobs are in Postgre")
    with Session(engine) as session, app.on(session), refused:
        app.enqueue("ship")
    engine.dispose()


def test_once_in_a_sqlite_file_is_none_of_postgres(tmp_path: Path, app: Yaoki, url: str) -> None:
    in_a_file = Yaoki(url)
    in_a_file.migrate()
    engine = create_engine(url)
    with Session(engine) as session:
        assert [once(session, "k"), once(session, "k")] == [True, False]
    engine.dispose()
    in_a_file.close()


# asyncio's


def test_an_asyncio_connection_that_has_not_begun_is_committed_by_its_owner_all_the_same(
    app: Yaoki, async_url: str, others: psycopg.Connection[Any]
) -> None:
    """asyncpg's transaction is begun by SQLAlchemy, which would otherwise not commit it."""

    async def scenario() -> None:
        engine = create_async_engine(async_url)
        async with engine.connect() as connection:
            with app.on(connection):
                await app.aenqueue("first")
            await connection.commit()
            with app.on(connection):
                await app.aenqueue("second")
            await connection.rollback()
            assert await aonce(connection, "k")
            await connection.rollback()
            assert await aonce(connection, "k")
            await connection.commit()
            assert not await aonce(connection, "k")
            with app.on(connection):
                await app.aenqueue("third")
        await engine.dispose()

    asyncio.run(scenario())

    assert jobs(others) == ["first"]


@pytest.mark.parametrize("made", ["session", "factory", "scoped"])
def test_an_asyncio_session_may_commit_more_than_once_in_the_block(
    app: Yaoki, async_url: str, others: psycopg.Connection[Any], made: str
) -> None:
    async def scenario() -> None:
        engine = create_async_engine(async_url)
        makers: dict[str, Any] = {
            "session": lambda: AsyncSession(engine),
            "factory": async_sessionmaker(engine),
            "scoped": async_scoped_session(async_sessionmaker(engine), asyncio.current_task),
        }
        session = makers[made]()
        with app.on(session):
            for number in range(3):
                session.add(Order(id=number))
                await app.aenqueue("ship")
                await session.commit()
                await app.aenqueue("never")
                await session.rollback()
        await app.aenqueue("by another")
        await session.close()
        await engine.dispose()

    asyncio.run(scenario())

    assert (jobs(others), orders(others)) == (["ship"] * 3 + ["by another"], 3)


def test_an_asyncio_session_whose_flush_failed_is_told_to_roll_back(
    app: Yaoki, async_url: str, others: psycopg.Connection[Any]
) -> None:
    others.execute("INSERT INTO orders VALUES (1)")

    async def scenario() -> None:
        engine = create_async_engine(async_url)
        async with AsyncSession(engine) as session:
            session.add(Order(id=1))
            with pytest.raises(Exception, match="duplicate key"):
                await session.flush()
            with app.on(session):
                with pytest.raises(NotInTransaction, match="roll it back first"):
                    await app.aenqueue("ship")
                await session.rollback()
                await app.aenqueue("ship")
            await session.commit()
        await engine.dispose()

    asyncio.run(scenario())

    assert jobs(others) == ["ship"]


def test_an_asyncio_engine_that_commits_each_statement_makes_each_job_a_transaction(
    app: Yaoki, async_url: str, others: psycopg.Connection[Any]
) -> None:
    async def scenario() -> None:
        engine = create_async_engine(async_url, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            with app.on(connection):
                await app.aenqueue("ship")
                assert jobs(others) == ["ship"]
            with pytest.raises(NotInTransaction):
                await aonce(connection, "k")
        await engine.dispose()

    asyncio.run(scenario())


def test_code_that_blocks_can_be_run_on_an_asyncio_session(
    app: Yaoki, async_url: str, others: psycopg.Connection[Any]
) -> None:
    """By run_sync, and in SQLAlchemy's own events."""
    app.enqueue("mail", idempotency_key="k")

    @event.listens_for(Order, "after_insert")
    def inserted(mapper: Any, connection: Any, order: Order) -> None:
        with app.on(connection):
            app.enqueue("inserted")
            with pytest.raises(KeyConflict):
                app.enqueue("never", idempotency_key="k")
        assert once(connection, f"order-{order.id}")

    def add(session: Session) -> None:
        with app.on(session):
            app.enqueue("blocking")
        session.add(Order(id=1))

    async def scenario() -> None:
        engine = create_async_engine(async_url)
        for ending in ("rollback", "commit"):
            async with AsyncSession(engine) as session:
                await session.run_sync(add)
                await session.flush()
                await getattr(session, ending)()
        await engine.dispose()

    try:
        asyncio.run(scenario())
    finally:
        event.remove(Order, "after_insert", inserted)

    assert jobs(others) == ["mail", "blocking", "inserted"]


def test_an_asyncio_connection_to_a_sqlite_file_is_refused(app: Yaoki) -> None:
    stand_in = type("Connection", (), {"__module__": "aiosqlite"})

    with pytest.raises(WrongConnection), app.on(stand_in()):
        app.enqueue("ship")
