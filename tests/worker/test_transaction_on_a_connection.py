"""ctx.transaction(connection): the same on a connection of the handler's own."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
import sqlalchemy.orm

from tests.worker.support_workers import StartWorker, database, work_off
from yaoki import JobContext, RetryPolicy, TransactionLost, WrongConnection, Yaoki

ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture(autouse=True)
def points(app: Yaoki) -> None:
    with database(app) as connection:
        connection.execute("CREATE TABLE points (id INTEGER PRIMARY KEY, note TEXT)")


def notes(app: Yaoki) -> list[str]:
    with database(app) as connection:
        return [note for (note,) in connection.execute("SELECT note FROM points ORDER BY id")]


def add(note: str) -> tuple[str, list[str]]:
    return "INSERT INTO points (note) VALUES (?)", [note]


@pytest.fixture
def engine(app: Yaoki, tmp_path: Path) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(app.url)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("fails", [False, True])
def test_a_sqlite3_connection_of_the_handlers_own_is_committed_with_the_job(
    app: Yaoki, fails: bool
) -> None:
    @app.job("follow-up")
    def follow_up() -> None: ...

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        connection = sqlite3.connect(app.store.path)
        try:
            with ctx.transaction(connection) as tx:
                connection.execute(*add("a"))
                tx.execute(*add("b"))
                follow_up.enqueue()
                tx.result = "both"
                if fails:
                    raise ValueError("no")
        finally:
            connection.close()

    job = handler.enqueue()
    work_off(app)

    ended = app.get(job)
    assert (ended.status, ended.result) == (("failed", None) if fails else ("completed", "both"))
    assert notes(app) == ([] if fails else ["a", "b"])
    assert len(list(app.jobs(type="follow-up"))) == (0 if fails else 1)


@pytest.mark.parametrize("fails", [False, True])
def test_a_sqlalchemy_connection_is_committed_with_the_job(
    app: Yaoki, engine: sqlalchemy.Engine, fails: bool
) -> None:
    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with engine.connect() as connection, ctx.transaction(connection):
            connection.execute(sqlalchemy.text("INSERT INTO points (note) VALUES ('a')"))
            if fails:
                raise ValueError("no")

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).status == ("failed" if fails else "completed")
    assert notes(app) == ([] if fails else ["a"])


@pytest.mark.parametrize("fails", [False, True])
def test_a_sqlalchemy_session_is_committed_with_the_job(
    app: Yaoki, engine: sqlalchemy.Engine, fails: bool
) -> None:
    @app.job("follow-up")
    def follow_up() -> None: ...

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with sqlalchemy.orm.Session(engine) as session, ctx.transaction(session) as tx:
            session.execute(sqlalchemy.text("INSERT INTO points (note) VALUES ('a')"))
            follow_up.enqueue()
            tx.result = 7
            if fails:
                raise ValueError("no")

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).status == ("failed" if fails else "completed")
    assert app.get(job).result == (None if fails else 7)
    assert notes(app) == ([] if fails else ["a"])
    assert len(list(app.jobs(type="follow-up"))) == (0 if fails else 1)


def test_a_connection_to_another_database_is_refused(app: Yaoki, tmp_path: Path) -> None:
    seen = []

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        other = sqlite3.connect(tmp_path / "other.db")
        try:
            with ctx.transaction(other):
                seen.append("inside")
        except WrongConnection as error:
            seen.append(str(error))
        finally:
            other.close()

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).status == "completed"
    assert "one transaction cannot span both" in seen[0]


def test_a_block_on_a_handlers_own_connection_that_takes_too_long_is_rolled_back(
    app: Yaoki, start_worker: StartWorker
) -> None:
    seen = []

    @app.job("hogs", retry=ONCE)
    def hogs(ctx: JobContext) -> None:
        connection = sqlite3.connect(app.store.path)
        try:
            with ctx.transaction(connection):
                connection.execute(*add("never"))
                time.sleep(0.8)
        except TransactionLost:
            seen.append("lost")
            raise
        finally:
            connection.close()

    job = hogs.enqueue()
    start_worker(lease_for=1)

    assert app.wait(job, timeout=10).status == "failed"
    assert seen == ["lost"]
    assert notes(app) == []
