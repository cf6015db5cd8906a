"""app.on() and once() on SQLAlchemy's connections and sessions to the queue's own file."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, sessionmaker

from tests.support.databases import ask
from yaoki import KeyConflict, NotInTransaction, WrongConnection, Yaoki, once


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)


@pytest.fixture
def engine(app: Yaoki, path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{path}")
    Base.metadata.create_all(engine)
    yield engine
    engine.dispose()


def orders(path: Path) -> int:
    [(count,)] = ask(path, "SELECT count(*) FROM orders")
    return int(count)


def test_a_job_is_part_of_the_connections_transaction(
    app: Yaoki, engine: Engine, path: Path
) -> None:
    with engine.begin() as connection:
        with app.on(connection):
            job = app.enqueue("ship")
        connection.execute(text("INSERT INTO orders VALUES (1)"))
        assert app.jobs() == []

    assert (app.jobs(), orders(path)) == ([job], 1)


def test_a_job_is_gone_when_the_connection_rolls_back(
    app: Yaoki, engine: Engine, path: Path
) -> None:
    with engine.connect() as connection:
        connection.execute(text("INSERT INTO orders VALUES (1)"))
        with app.on(connection):
            app.enqueue("ship", idempotency_key="k")
        connection.rollback()

    assert (app.jobs(), orders(path)) == ([], 0)
    assert app.enqueue("ship", idempotency_key="k").created


def test_a_connection_that_has_not_begun_is_committed_by_its_owner_all_the_same(
    app: Yaoki, engine: Engine
) -> None:
    """SQLAlchemy thinks that nothing happened, unless its transaction is begun for it."""
    with engine.connect() as connection:
        with app.on(connection):
            app.enqueue("first")
        connection.commit()
        with app.on(connection):
            app.enqueue("second")
        connection.rollback()
        with app.on(connection):
            app.enqueue("third")

    assert [job.type for job in app.jobs()] == ["first"]


def test_a_job_is_part_of_the_sessions_transaction(app: Yaoki, engine: Engine, path: Path) -> None:
    with Session(engine) as session, session.begin():
        session.add(Order(id=1))
        with app.on(session):
            job = app.enqueue("ship")

    assert (app.jobs(), orders(path)) == ([job], 1)


def test_a_job_is_gone_when_the_session_rolls_back(app: Yaoki, engine: Engine, path: Path) -> None:
    with Session(engine) as session:
        session.add(Order(id=1))
        session.flush()
        with app.on(session):
            app.enqueue("ship")
        session.rollback()

    assert (app.jobs(), orders(path)) == ([], 0)


def test_a_job_goes_with_the_savepoint_it_was_made_in(app: Yaoki, engine: Engine) -> None:
    """Also where the savepoint begins inside the block: SQLAlchemy makes it when it is needed."""
    with Session(engine) as session:
        session.add(Order(id=1))
        with app.on(session):
            app.enqueue("outer")
            savepoint = session.begin_nested()
            app.enqueue("inner")
            savepoint.rollback()
        session.commit()

    assert [job.type for job in app.jobs()] == ["outer"]


def test_a_session_may_commit_more_than_once_in_the_block(
    app: Yaoki, engine: Engine, path: Path
) -> None:
    """After a commit the session's connection is back in the pool, and is not its own any more."""
    with Session(engine) as session:
        with app.on(session):
            for number in range(3):
                session.add(Order(id=number))
                app.enqueue("ship")
                session.commit()
                app.enqueue("mail")
                session.commit()
        app.enqueue("by another")

    assert (len(app.jobs()), orders(path)) == (7, 3)


def test_a_connection_may_commit_more_than_once_in_the_block(app: Yaoki, engine: Engine) -> None:
    with engine.connect() as connection, app.on(connection):
        app.enqueue("first")
        connection.commit()
        app.enqueue("second")
        connection.commit()
        app.enqueue("third")

    assert [job.type for job in app.jobs()] == ["second", "first"]


def test_a_refused_job_leaves_the_session_usable(app: Yaoki, engine: Engine, path: Path) -> None:
    app.enqueue("mail", idempotency_key="k")
    with Session(engine) as session, session.begin():
        session.add(Order(id=1))
        with app.on(session), pytest.raises(KeyConflict):
            app.enqueue("ship", idempotency_key="k")
        session.add(Order(id=2))

    assert orders(path) == 2


def test_sessions_made_by_a_factory_work_too(app: Yaoki, engine: Engine) -> None:
    with sessionmaker(engine).begin() as session, app.on(session):
        app.enqueue("ship")

    assert len(app.jobs()) == 1


def test_once_is_part_of_the_transaction(app: Yaoki, engine: Engine) -> None:
    answers = []
    for ending in ("rollback", "commit", "commit"):
        with Session(engine) as session:
            answers.append(once(session, "k"))
            getattr(session, ending)()

    assert answers == [True, True, False]


def test_once_begins_with_the_connection(app: Yaoki, engine: Engine) -> None:
    with engine.connect() as connection:
        assert once(connection, "k")
        connection.rollback()
        assert once(connection, "k")
        connection.commit()
        assert not once(connection, "k")


def test_a_connection_to_another_database_is_refused(app: Yaoki, path: Path) -> None:
    for url in (f"sqlite:///{path.with_name('other.db')}", "sqlite://"):
        other = create_engine(url)
        with (
            other.connect() as connection,
            pytest.raises(WrongConnection),
            app.on(connection),
        ):
            app.enqueue("ship")
        other.dispose()

    assert app.jobs() == []


def test_an_engine_is_no_connection(app: Yaoki, engine: Engine) -> None:
    with pytest.raises(WrongConnection, match="Engine is no connection"), app.on(engine):
        app.enqueue("ship")


def test_an_asyncio_session_is_refused_with_the_reason(app: Yaoki, engine: Engine) -> None:
    stand_in = type("AsyncSession", (), {"__module__": "sqlalchemy.ext.asyncio", "sync_session": 1})

    with pytest.raises(WrongConnection, match="not async"), app.on(stand_in()):
        app.enqueue("ship")


def test_an_engine_that_begins_by_hand_works_too(app: Yaoki, path: Path) -> None:
    """SQLAlchemy's own recipe for transactions that begin when they should."""
    engine = create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))

    for ending in ("rollback", "commit"):
        with engine.connect() as connection:
            with app.on(connection):
                app.enqueue(ending)
            assert once(connection, ending)
            getattr(connection, ending)()

    assert [job.type for job in app.jobs()] == ["commit"]
    engine.dispose()


def test_an_engine_that_commits_each_statement_makes_each_job_a_transaction(
    app: Yaoki, path: Path
) -> None:
    engine = create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")

    with engine.connect() as connection:
        with app.on(connection):
            job = app.enqueue("ship")
        with pytest.raises(NotInTransaction):
            once(connection, "k")

    assert app.get(job) == job
    engine.dispose()
