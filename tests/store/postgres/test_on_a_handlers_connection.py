"""ctx.transaction(connection): the handler's effect and the job's completion in one commit."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import asyncpg
import psycopg
import psycopg2
import pytest
import sqlalchemy
from django.db import transaction
from sqlalchemy.ext.asyncio import create_async_engine

from tests.store.postgres.support_callers import Kind
from tests.support.django_settings import postgres_connection
from tests.support.eventually import eventually
from tests.support.postgres import fresh_database
from tests.worker.support_workers import release, start_worker, work_off
from yaoki import (
    JobContext,
    LeaseLost,
    NotHere,
    RetryPolicy,
    TransactionLost,
    WrongConnection,
    Yaoki,
    fixed,
)

__all__ = ["release", "start_worker"]

ONCE = RetryPolicy(max_attempts=1)

Connection = psycopg.Connection[Any]


@pytest.fixture
def others(app: Yaoki, postgres_url: str) -> Iterator[Connection]:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        connection.execute("CREATE TABLE points (id integer PRIMARY KEY)")
        yield connection


def points(others: Connection) -> int:
    [(count,)] = others.execute("SELECT count(*) FROM points").fetchall()
    return int(count)


ADD = "INSERT INTO points VALUES (1)"


@pytest.mark.parametrize("fails", [False, True])
def test_effect_and_completion_are_one_commit(
    app: Yaoki, kind: Kind, postgres_url: str, others: Connection, fails: bool
) -> None:
    @app.job("follow-up")
    def follow_up() -> None: ...

    seen: list[object] = []

    async def act(ctx: JobContext) -> None:
        async with kind.connected(postgres_url) as mine:
            async with ctx.atransaction(mine.connection) as tx:
                await mine.execute(ADD)
                await (follow_up.aenqueue() if mine.awaits else done(follow_up.enqueue()))
                tx.result = 7
                seen.append((points(others), status(others, ctx.job.id)))
                if fails:
                    raise ValueError("no")
            seen.append((points(others), status(others, ctx.job.id)))

    async def handler(ctx: JobContext) -> None:
        await act(ctx)

    def blocking(ctx: JobContext) -> None:
        kind.run(act(ctx))

    app.job("a", retry=ONCE)(handler if kind.awaits else blocking)
    job = app.enqueue("a")
    work_off(app)

    ended = app.get(job)
    assert seen == [(0, "running")] + ([] if fails else [(1, "completed")])
    assert (ended.status, ended.result) == (("failed", None) if fails else ("completed", 7))
    assert points(others) == (0 if fails else 1)
    assert len(list(app.jobs(type="follow-up"))) == (0 if fails else 1)


async def done(value: Any) -> Any:
    return value


def status(others: Connection, job_id: int) -> str:
    [(found,)] = others.execute("SELECT status FROM yaoki.jobs WHERE id = %s", [job_id]).fetchall()
    return str(found)


def sync_connections(url: str) -> dict[str, Any]:
    return {
        "psycopg": lambda: psycopg.connect(url),
        "psycopg in autocommit mode": lambda: psycopg.connect(url, autocommit=True),
        "psycopg2": lambda: closing(psycopg2.connect(url)),
        "psycopg2 in autocommit mode": lambda: closing(in_autocommit(psycopg2.connect(url))),
    }


def in_autocommit(connection: Any) -> Any:
    connection.autocommit = True
    return connection


@pytest.mark.parametrize("name", list(sync_connections("")))
@pytest.mark.parametrize("fails", [False, True])
def test_a_block_that_does_not_await_is_one_commit_too(
    app: Yaoki, postgres_url: str, others: Connection, name: str, fails: bool
) -> None:
    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with sync_connections(postgres_url)[name]() as mine, ctx.transaction(mine):
            with mine.cursor() as cursor:
                cursor.execute(ADD)
            assert points(others) == 0
            if fails:
                raise ValueError("no")

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).status == ("failed" if fails else "completed")
    assert points(others) == (0 if fails else 1)


def test_an_error_of_the_drivers_reaches_the_handler_as_it_is(
    app: Yaoki, postgres_url: str, others: Connection
) -> None:
    others.execute(ADD)
    seen: list[object] = []

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with psycopg.connect(postgres_url) as mine:
            try:
                with ctx.transaction(mine):
                    mine.execute(ADD)
            except psycopg.errors.UniqueViolation as error:
                seen.append(error)
                raise

    job = handler.enqueue()
    work_off(app)

    assert len(seen) == 1
    assert "UniqueViolation" in str(app.get(job).error)


def test_an_error_that_the_handler_hides_does_not_complete_the_job(
    app: Yaoki, postgres_url: str, others: Connection
) -> None:
    """PostgreSQL answers COMMIT with ROLLBACK then, and without an error."""
    others.execute(ADD)

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        hidden = suppress(psycopg.errors.UniqueViolation)
        with psycopg.connect(postgres_url) as mine, ctx.transaction(mine), hidden:
            mine.execute(ADD)

    @app.job("b", retry=ONCE)
    async def awaiting(ctx: JobContext) -> None:
        mine = await asyncpg.connect(postgres_url)
        try:
            async with ctx.atransaction(mine):
                with suppress(asyncpg.UniqueViolationError):
                    await mine.execute(ADD)
        finally:
            await mine.close()

    jobs = [handler.enqueue(), awaiting.enqueue()]
    work_off(app)

    for job in jobs:
        assert app.get(job).status == "failed"
        assert "roll it back first" in str(app.get(job).error)


def test_a_connection_to_another_database_is_refused(app: Yaoki, others: Connection) -> None:
    seen: list[str] = []

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext, url: str) -> None:
        with psycopg.connect(url) as mine:
            try:
                with ctx.transaction(mine):
                    seen.append("inside")
            except WrongConnection as error:
                seen.append(str(error))

    with fresh_database() as url:
        job = handler.enqueue(url=url)
        work_off(app)

    assert app.get(job).status == "completed"
    assert "one transaction cannot span both" in seen[0]


def test_a_transaction_of_the_handlers_own_around_it_is_refused(
    app: Yaoki, postgres_url: str, others: Connection
) -> None:
    """The end of the block could not commit."""

    @app.job("a", retry=ONCE)
    def by_psycopg(ctx: JobContext) -> None:
        with psycopg.connect(postgres_url) as mine, mine.transaction(), ctx.transaction(mine):
            mine.execute(ADD)

    @app.job("b", retry=ONCE)
    async def by_asyncpg(ctx: JobContext) -> None:
        mine = await asyncpg.connect(postgres_url)
        try:
            async with mine.transaction(), ctx.atransaction(mine):
                await mine.execute(ADD)
        finally:
            await mine.close()

    @app.job("c", retry=ONCE)
    def by_django(ctx: JobContext) -> None:
        with (
            postgres_connection("queue", postgres_url) as mine,
            transaction.atomic(using="queue"),
            ctx.transaction(mine),
            mine.cursor() as cursor,
        ):
            cursor.execute(ADD)

    jobs = [by_psycopg.enqueue(), by_asyncpg.enqueue(), by_django.enqueue()]
    work_off(app)

    assert [app.get(job).status for job in jobs] == ["failed"] * 3
    assert ["do not begin" in str(app.get(job).error) for job in jobs[:2]] == [True, True]
    assert "durable" in str(app.get(jobs[2]).error)
    assert points(others) == 0


def test_a_connection_that_has_to_be_awaited_is_refused_where_nothing_awaits(
    app: Yaoki, postgres_url: str
) -> None:
    @app.job("a", retry=ONCE)
    async def handler(ctx: JobContext) -> None:
        async with await psycopg.AsyncConnection.connect(postgres_url) as mine:
            refused = pytest.raises(NotHere, match=r"async with ctx\.atransaction")
            with refused, ctx.transaction(mine):
                pass

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).status == "completed"


def test_a_job_that_was_cancelled_meanwhile_is_rolled_back(
    app: Yaoki, postgres_url: str, others: Connection
) -> None:
    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with psycopg.connect(postgres_url) as mine, ctx.transaction(mine):
            mine.execute(ADD)
            thread = threading.Thread(target=app.cancel, args=(ctx.job,))
            thread.start()
            thread.join()

    @app.job("b", retry=ONCE)
    async def awaiting(ctx: JobContext) -> None:
        mine = await asyncpg.connect(postgres_url)
        try:
            async with ctx.atransaction(mine):
                await mine.execute(ADD)
                others.execute(
                    "UPDATE yaoki.jobs SET cancel_requested_at = 1 WHERE id = %s", [ctx.job.id]
                )
        finally:
            await mine.close()

    jobs = [handler.enqueue(), awaiting.enqueue()]
    work_off(app)

    assert [app.get(job).status for job in jobs] == ["cancelled", "cancelled"]
    assert points(others) == 0


def test_a_lost_lease_rolls_back(app: Yaoki, postgres_url: str, others: Connection) -> None:
    seen: list[str] = []

    @app.job("a", retry=RetryPolicy(max_attempts=2, backoff=fixed(0)))
    def handler(ctx: JobContext) -> None:
        if ctx.attempt == 2:
            return
        with psycopg.connect(postgres_url) as mine:
            try:
                with ctx.transaction(mine):
                    mine.execute(ADD)
                    others.execute(
                        "UPDATE yaoki.jobs SET lease = lease + 1, status = 'pending', "
                        "lease_expires_at = NULL, worker_id = NULL WHERE id = %s",
                        [ctx.job.id],
                    )
            except LeaseLost:
                seen.append("lost")
                raise

    handler.enqueue()
    work_off(app)

    assert seen == ["lost"]
    assert points(others) == 0


# Blocks that take too long


@pytest.mark.parametrize("stuck", [False, True], ids=["idle", "in a statement"])
@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "SQLAlchemy", "Django"])
def test_a_block_that_takes_too_long_is_rolled_back_by_the_server_at_once(
    app: Yaoki,
    start_worker: Any,
    release: threading.Event,
    postgres_url: str,
    others: Connection,
    driver: str,
    stuck: bool,
) -> None:
    """Its locks are free, although the handler does not end."""
    seen: list[str] = []

    def act(ctx: JobContext, connection: Any, execute: Any) -> None:
        try:
            with ctx.transaction(connection):
                execute(ADD)
                if stuck:
                    execute("SELECT pg_sleep(60)")
                release.wait(20)
        except TransactionLost:
            seen.append("lost")
            raise

    @app.job("hogs", retry=ONCE, timeout=0.5)
    def hogs(ctx: JobContext) -> None:
        if driver == "psycopg":
            with psycopg.connect(postgres_url) as mine:
                act(ctx, mine, mine.execute)
        elif driver == "psycopg2":
            with closing(psycopg2.connect(postgres_url)) as mine, mine.cursor() as cursor:
                act(ctx, mine, cursor.execute)
        elif driver == "Django":
            with postgres_connection("queue", postgres_url) as mine, mine.cursor() as cursor:
                act(ctx, mine, cursor.execute)
        else:
            engine = sqlalchemy.create_engine(postgres_url.replace("ql:", "ql+psycopg:", 1))
            try:
                with engine.connect() as mine:
                    act(ctx, mine, mine.exec_driver_sql)
            finally:
                engine.dispose()

    job = hogs.enqueue()
    start_worker(lease_for=60)

    assert app.wait(job, timeout=20).status == "failed"
    others.execute("SET lock_timeout = '10s'")
    others.execute(ADD)
    assert points(others) == 1
    release.set()
    eventually(lambda: seen == ["lost"])


def test_a_block_that_lost_its_lease_is_cut_off_before_it_ends(
    app: Yaoki,
    start_worker: Any,
    release: threading.Event,
    postgres_url: str,
    others: Connection,
) -> None:
    ended: list[Any] = []

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with psycopg.connect(postgres_url) as mine, ctx.transaction(mine):
            mine.execute(ADD)
            ended.append(ctx.job)
            release.wait(20)

    handler.enqueue()
    start_worker(lease_for=1)
    [job] = eventually(lambda: ended)
    others.execute(
        "UPDATE yaoki.jobs SET lease = lease + 1, status = 'pending', lease_expires_at = NULL, "
        "worker_id = NULL, claimed_at = NULL, started_at = NULL, run_at = run_at + 3600000000 "
        "WHERE id = %s",
        [job.id],
    )
    others.execute("SET lock_timeout = '10s'")
    others.execute(ADD)

    assert points(others) == 1
    assert app.get(job).status == "pending"


@pytest.mark.parametrize(
    "driver", ["psycopg", "asyncpg", "SQLAlchemy psycopg", "SQLAlchemy asyncpg"]
)
def test_an_awaiting_block_that_takes_too_long_is_rolled_back(
    app: Yaoki, start_worker: Any, postgres_url: str, others: Connection, driver: str
) -> None:

    seen: list[str] = []

    async def act(ctx: JobContext, connection: Any, execute: Any) -> None:
        try:
            async with ctx.atransaction(connection):
                await execute(ADD)
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(20)
                await asyncio.sleep(0.5)
        except TransactionLost:
            seen.append("lost")
            raise

    @app.job("hogs", retry=ONCE, timeout=0.5)
    async def hogs(ctx: JobContext) -> None:
        if driver == "psycopg":
            async with await psycopg.AsyncConnection.connect(postgres_url) as mine:
                await act(ctx, mine, mine.execute)
        elif driver == "asyncpg":
            mine = await asyncpg.connect(postgres_url)
            try:
                await act(ctx, mine, mine.execute)
            finally:
                await mine.close()
        else:
            name = driver.rpartition(" ")[2]
            engine = create_async_engine(postgres_url.replace("ql:", f"ql+{name}:", 1))
            try:
                async with engine.connect() as mine:
                    await act(ctx, mine, mine.exec_driver_sql)
            finally:
                await engine.dispose()

    job = hogs.enqueue()
    start_worker(lease_for=60)

    assert app.wait(job, timeout=20).status == "failed"
    eventually(lambda: seen == ["lost"])
    assert points(others) == 0
