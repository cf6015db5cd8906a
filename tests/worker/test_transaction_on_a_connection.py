"""ctx.transaction(connection): the same on a connection of the handler's own."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy
import sqlalchemy.orm

from tests.support.dialects import connected_by_driver, on_postgres
from tests.support.eventually import eventually
from tests.support.postgres import fresh_database
from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker, work_off
from yaoki import JobContext, RetryPolicy, TransactionLost, WrongConnection, Yaoki

ONCE = RetryPolicy(max_attempts=1)

pytestmark = pytest.mark.usefixtures("noted")


@pytest.fixture
def engine(app: Yaoki) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(app.url.replace("postgresql://", "postgresql+psycopg://"))
    yield engine
    engine.dispose()


@pytest.fixture
def another_url(app: Yaoki, tmp_path: Path) -> Iterator[str]:
    """Of a database of the same kind, which is not the queue's."""
    if on_postgres(app.url):
        with fresh_database() as url:
            yield url
    else:
        yield f"sqlite:///{tmp_path / 'other.db'}"


@pytest.mark.parametrize("fails", [False, True])
def test_a_connection_of_the_driver_is_committed_with_the_job(app: Yaoki, fails: bool) -> None:
    @app.job("follow-up")
    def follow_up() -> None: ...

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with connected_by_driver(app.url) as connection, ctx.transaction(connection) as tx:
            connection.execute(*add(app, "a"))
            tx.execute(*add(app, "b"))
            follow_up.enqueue()
            tx.result = "both"
            if fails:
                raise ValueError("no")

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
            connection.execute(sqlalchemy.text("INSERT INTO notes VALUES ('a')"))
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
            session.execute(sqlalchemy.text("INSERT INTO notes VALUES ('a')"))
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


def test_a_connection_to_another_database_is_refused(app: Yaoki, another_url: str) -> None:
    seen = []

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with connected_by_driver(another_url) as other:
            try:
                with ctx.transaction(other):
                    seen.append("inside")
            except WrongConnection as error:
                seen.append(str(error))

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).status == "completed"
    assert "one transaction cannot span both" in seen[0]


def test_a_block_on_a_handlers_own_connection_that_takes_too_long_is_rolled_back(
    app: Yaoki, start_worker: StartWorker
) -> None:
    seen = []

    @app.job("hogs", retry=ONCE, timeout=0.3)
    def hogs(ctx: JobContext) -> None:
        with connected_by_driver(app.url) as connection:
            try:
                with ctx.transaction(connection):
                    connection.execute(*add(app, "never"))
                    time.sleep(0.8)
            except TransactionLost:
                seen.append("lost")
                raise

    job = hogs.enqueue()
    start_worker(lease_for=1)

    assert app.wait(job, timeout=10).status == "failed"
    eventually(lambda: seen == ["lost"])
    assert notes(app) == []
