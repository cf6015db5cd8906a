"""app.on() on connections that have to be awaited: those of asyncpg, and psycopg's async."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

import asyncpg
import psycopg
import pytest

from yaoki import (
    KeyConflict,
    NotHere,
    NotInTransaction,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    WrongConnection,
    Yaoki,
    aonce,
    once,
)

Connection = psycopg.Connection[Any]
Connected = Callable[[str], Any]


@pytest.fixture
def others(postgres_url: str) -> Iterator[Connection]:
    with closing(psycopg.connect(postgres_url, autocommit=True)) as connection:
        yield connection


def jobs(others: Connection) -> list[str]:
    rows = others.execute("SELECT type FROM yaoki.jobs ORDER BY id").fetchall()
    return [kind for (kind,) in rows]


@asynccontextmanager
async def by_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection


@asynccontextmanager
async def by_asyncpg(url: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@pytest.fixture(params=[by_psycopg, by_asyncpg])
def connected(request: pytest.FixtureRequest) -> Connected:
    """A connection in a transaction that is committed at the end."""
    found: Connected = request.param
    return found


def test_calls_that_do_not_await_are_refused_with_what_to_write(
    app: Yaoki, connected: Connected, postgres_url: str, others: Connection
) -> None:
    @app.job("ship")
    def ship() -> None: ...

    async def scenario() -> None:
        async with connected(postgres_url) as mine:
            with app.on(mine):
                for call in (ship.enqueue, app.jobs, lambda: app.enqueue("mail")):
                    with pytest.raises(NotHere, match=r"await app\.aenqueue"):
                        call()
                await ship.aenqueue()
            with pytest.raises(NotHere, match=r"await yaoki\.aonce"):
                once(mine, "k")

    asyncio.run(scenario())

    assert jobs(others) == ["ship"]


def test_the_block_is_not_inherited_by_tasks(
    app: Yaoki, connected: Connected, postgres_url: str, others: Connection
) -> None:
    async def scenario() -> None:
        async with connected(postgres_url) as mine:
            with app.on(mine):
                await app.aenqueue("mine")
                await asyncio.create_task(app.aenqueue("elsewhere"))
                assert jobs(others) == ["elsewhere"]
            await app.aenqueue("afterwards")
            assert jobs(others) == ["elsewhere", "afterwards"]

    asyncio.run(scenario())

    assert jobs(others) == ["mine", "elsewhere", "afterwards"]


@pytest.mark.parametrize("connect", [psycopg.AsyncConnection.connect, asyncpg.connect])
def test_outside_of_a_coroutine_nobody_could_await(
    app: Yaoki, connect: Any, postgres_url: str
) -> None:
    async def connected() -> Any:
        return await connect(postgres_url)

    with asyncio.Runner() as runner:
        mine = runner.run(connected())
        with pytest.raises(NotHere, match="in a coroutine"), app.on(mine):
            app.enqueue("ship")
        with pytest.raises(NotHere, match=r"await yaoki\.aonce"):
            once(mine, "k")
        runner.run(mine.close())


def test_a_connection_that_blocks_takes_awaiting_calls_too(
    app: Yaoki, postgres_url: str, others: Connection
) -> None:
    async def scenario() -> None:
        with psycopg.connect(postgres_url) as mine:
            with app.on(mine):
                await app.aenqueue("ship")
            assert await aonce(mine, "k")
            assert jobs(others) == []

    asyncio.run(scenario())

    assert jobs(others) == ["ship"]


def test_two_tasks_are_each_in_their_own_transaction(
    app: Yaoki, connected: Connected, postgres_url: str, others: Connection
) -> None:
    async def one(name: str, fails: bool) -> None:
        async with connected(postgres_url) as mine:
            with app.on(mine):
                for _ in range(5):
                    await app.aenqueue(name)
            if fails:
                raise ZeroDivisionError

    async def scenario() -> None:
        tasks = [one("a", False), one("b", True), one("c", False)]
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())

    assert sorted(jobs(others)) == ["a"] * 5 + ["c"] * 5


def test_the_loop_goes_on_while_a_call_waits_for_a_lock(
    app: Yaoki, connected: Connected, postgres_url: str, others: Connection
) -> None:
    async def scenario() -> Any:
        with closing(psycopg.connect(postgres_url)) as theirs:
            with app.on(theirs):
                first = app.enqueue("ship", idempotency_key="k")
            async with connected(postgres_url) as mine:

                async def second() -> Any:
                    with app.on(mine):
                        return await app.aenqueue("ship", idempotency_key="k")

                waiting = asyncio.create_task(second())
                while others.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone() is None:
                    await asyncio.sleep(0.005)
                theirs.commit()
                found = await waiting
        return found.id == first.id, found.created

    assert asyncio.run(scenario()) == (True, False)


def test_who_is_cancelled_in_the_middle_can_roll_back_and_go_on(
    app: Yaoki, connected: Connected, postgres_url: str, others: Connection
) -> None:
    @app.job("ship", idempotency_key="{order}")
    def ship(order: int) -> None: ...

    async def scenario() -> None:
        with closing(psycopg.connect(postgres_url)) as theirs:
            with app.on(theirs):
                ship.enqueue(order=1)
            async with connected(postgres_url) as mine, savepoint(mine):
                with app.on(mine):
                    await app.aenqueue("before")
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await ship.aenqueue_many([{"order": 1}])
                    await app.aenqueue("after")

    asyncio.run(scenario())

    assert jobs(others) == ["before", "after"]


@asynccontextmanager
async def savepoint(connection: Any) -> AsyncIterator[None]:
    async with connection.transaction():
        yield


def test_a_refused_key_leaves_an_inner_transaction_usable(
    app: Yaoki, connected: Connected, postgres_url: str, others: Connection
) -> None:
    app.enqueue("mail", idempotency_key="k")

    async def scenario() -> None:
        async with connected(postgres_url) as mine:
            with app.on(mine):
                async with mine.transaction():
                    with pytest.raises(KeyConflict):
                        await app.aenqueue("ship", idempotency_key="k")
                    await app.aenqueue("inner")
                with suppress(ZeroDivisionError):
                    async with mine.transaction():
                        await app.aenqueue_many("never", [{}])
                        raise ZeroDivisionError

    asyncio.run(scenario())

    assert jobs(others) == ["mail", "inner"]


def test_a_transaction_that_read_too_early_is_told_to_try_the_whole_again(
    app: Yaoki, connected: Connected, postgres_url: str
) -> None:
    async def scenario() -> None:
        async with connected(postgres_url) as mine:
            await mine.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            await mine.execute("SELECT 1 FROM yaoki.jobs")
            app.enqueue("ship", idempotency_key="k")
            with app.on(mine), pytest.raises(StoreBusy, match="try the whole of it again"):
                await app.aenqueue("ship", idempotency_key="k")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(scenario())


# asyncpg alone


def run(scenario: Callable[[Any], Coroutine[Any, Any, Any]], url: str, **how: Any) -> Any:
    """On a connection of asyncpg's that is in no transaction."""

    async def main() -> Any:
        connection = await asyncpg.connect(url, **how)
        try:
            return await scenario(connection)
        finally:
            await connection.close()

    return asyncio.run(main())


def test_outside_of_a_transaction_each_call_is_one(
    app: Yaoki, postgres_url: str, others: Connection
) -> None:
    async def scenario(mine: Any) -> None:
        with app.on(mine):
            job = await app.aenqueue("ship", idempotency_key="k")
            assert jobs(others) == ["ship"]
            with pytest.raises(KeyConflict):
                await app.aenqueue("mail", idempotency_key="k")
            assert (await app.aget(job)).id == job.id
            assert (await app.acancel(job)).status == "cancelled"
        with pytest.raises(NotInTransaction, match="begin a transaction first"):
            await aonce(mine, "k")
        assert not mine.is_in_transaction()

    run(scenario, postgres_url)

    assert [job.status for job in app.jobs()] == ["cancelled"]


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_who_is_cancelled_outside_of_a_transaction_leaves_none_open(
    app: Yaoki, postgres_url: str, others: Connection, driver: str
) -> None:
    """Whenever it happens."""

    async def scenario(mine: Any) -> None:
        with app.on(mine):
            await app.aenqueue("first")
            for step in range(40):
                with suppress(TimeoutError):
                    async with asyncio.timeout(step * 0.000_2):
                        await app.aenqueue_many("ship", [{}])
                assert not is_in_transaction(mine)
            await app.aenqueue("last")

    async def by_psycopg() -> None:
        connection = await psycopg.AsyncConnection.connect(postgres_url, autocommit=True)
        async with connection:
            await scenario(connection)

    if driver == "asyncpg":
        run(scenario, postgres_url)
    else:
        asyncio.run(by_psycopg())

    assert jobs(others)[0] == "first"
    assert jobs(others)[-1] == "last"


def is_in_transaction(connection: Any) -> bool:
    if isinstance(connection, psycopg.AsyncConnection):
        return connection.info.transaction_status != psycopg.pq.TransactionStatus.IDLE
    return bool(connection.is_in_transaction())


def test_a_transaction_begun_in_words_is_one_too(
    app: Yaoki, postgres_url: str, others: Connection
) -> None:
    async def scenario(mine: Any) -> None:
        for ending in ("ROLLBACK", "COMMIT"):
            await mine.execute("BEGIN")
            with app.on(mine):
                await app.aenqueue(ending)
            assert await aonce(mine, "k")
            await mine.execute(ending)

    run(scenario, postgres_url)

    assert jobs(others) == ["COMMIT"]


class Odd(asyncpg.Record):
    def __getitem__(self, name: Any) -> Any:
        raise AssertionError("rows of its owner's kind")


def test_how_asyncpg_converts_values_for_its_owner_does_not_matter(
    app: Yaoki, postgres_url: str
) -> None:
    async def scenario(mine: Any) -> Any:
        for name in ("int8", "text"):
            await mine.set_type_codec(
                name, schema="pg_catalog", encoder=str.upper, decoder=lambda text: f"<{text}>"
            )
        async with mine.transaction():
            with app.on(mine):
                job = await app.aenqueue("ship", {"to": "x"}, idempotency_key="k")
                assert not (await app.aenqueue("ship", idempotency_key="k")).created
                [listed] = await app.ajobs()
                assert (listed.id, listed.payload) == (job.id, {"to": "x"})
            assert await aonce(mine, "k")
        return job

    job = run(scenario, postgres_url, record_class=Odd)

    assert app.get(job) == job


def test_a_connection_without_a_cache_of_statements_works(
    app: Yaoki, postgres_url: str, others: Connection
) -> None:
    async def scenario(mine: Any) -> None:
        async with mine.transaction():
            with app.on(mine):
                await app.aenqueue("ship")
                await app.aenqueue_many("mail", [{}])

    run(scenario, postgres_url, statement_cache_size=0)

    assert jobs(others) == ["ship", "mail"]


def test_a_connection_that_is_back_in_its_pool_is_refused(app: Yaoki, postgres_url: str) -> None:
    async def scenario() -> None:
        async with asyncpg.create_pool(postgres_url, min_size=1) as pool:
            mine = await pool.acquire()
            with app.on(mine):
                await app.aenqueue("ship")
                await pool.release(mine)
                with pytest.raises(WrongConnection, match="back in its pool"):
                    await app.aenqueue("never")
            with pytest.raises(WrongConnection, match="back in its pool"):
                await aonce(mine, "k")
            with pytest.raises(WrongConnection, match="is no connection"), app.on(pool):
                await app.aenqueue("never")

    asyncio.run(scenario())

    assert [job.type for job in app.jobs()] == ["ship"]


def test_two_calls_at_once_on_one_connection_get_a_clear_error(
    app: Yaoki, postgres_url: str
) -> None:
    async def scenario(mine: Any) -> None:
        async def enqueue() -> None:
            with app.on(mine):
                await app.aenqueue_many("ship", [{}])

        await enqueue()
        answers = await asyncio.gather(enqueue(), enqueue(), return_exceptions=True)
        [problem] = [answer for answer in answers if answer is not None]
        assert isinstance(problem, StoreError)
        assert "another operation is in progress" in str(problem)

    run(scenario, postgres_url)

    assert len(app.jobs()) == 2


def test_a_connection_that_was_closed_is_said_to_be_closed(app: Yaoki, postgres_url: str) -> None:
    async def scenario(mine: Any) -> None:
        with app.on(mine):
            await app.aenqueue("ship")
            await mine.close()
            with pytest.raises(StoreUnavailable, match="closed"):
                await app.aenqueue("never")

    run(scenario, postgres_url)
    assert [job.type for job in app.jobs()] == ["ship"]


def test_a_connection_that_broke_is_said_to_be_broken(
    app: Yaoki, connected: Connected, postgres_url: str, others: Connection
) -> None:
    async def scenario() -> None:
        async with connected(postgres_url) as mine:
            with app.on(mine):
                await app.aenqueue("ship")
                others.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
                    "pg_backend_pid() AND state = 'idle in transaction'"
                )
                for _ in range(2):
                    with pytest.raises(StoreUnavailable):
                        await app.aenqueue_many("ship", [{}])

    with suppress(psycopg.Error, asyncpg.PostgresError, asyncpg.InterfaceError):
        asyncio.run(scenario())
    assert jobs(others) == []
