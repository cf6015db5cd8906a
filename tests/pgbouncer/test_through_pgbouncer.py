"""PgBouncer in transaction mode: found out by itself, nothing left in the sessions that it shares.

That every operation works through it is shown by the conformance tests, which run there as well.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.pgbouncer.conftest import Start
from tests.support.eventually import eventually
from tests.worker.support_workers import Working
from yaoki import (
    InvalidOption,
    JobContext,
    RetryPolicy,
    StoreError,
    StoreUnavailable,
    Yaoki,
    fixed,
    once,
)
from yaoki.core.said import NewJob
from yaoki.store.op import Op, Statement
from yaoki.store.ops.jobs import Enqueue
from yaoki.store.postgres.store import PostgresStore


class Asked(Op[list[tuple[Any, ...]]]):
    """The rows of a statement, in a transaction of the store's."""

    def __init__(self, text: str) -> None:
        self._text = text

    def steps(self) -> Any:
        return (yield Statement("asked", {}, text=self._text)).rows


@pytest.fixture
def direct(postgres_url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A connection to the database with nothing in between."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def opened(url: str) -> Any:
    store = PostgresStore(url)
    made = store._opened()
    store.close()
    return made


# It is found out


def test_it_is_noticed_that_sessions_are_shared(postgres_url: str, pooled: str) -> None:
    assert opened(pooled).server.pooled
    assert not opened(postgres_url).server.pooled


@pytest.mark.parametrize(
    ("option", "directly", "through_it"),
    [
        ("", True, False),
        ("?prepared=auto", True, False),
        ("?prepared=on", True, True),
        ("?prepared=off", False, False),
    ],
)
def test_statements_are_prepared_where_sessions_are_ours_or_as_the_url_says(
    postgres_url: str, pooled: str, option: str, directly: bool, through_it: bool
) -> None:
    assert opened(postgres_url + option).prepared is directly
    assert opened(pooled + option).prepared is through_it


def test_nobody_listens_through_it_and_the_log_says_what_would_help(
    app: Yaoki, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "yaoki")
    app.enqueue("mail")
    app.enqueue("mail")
    store = app.store
    assert isinstance(store, PostgresStore)

    assert not store._opened().listens
    [line] = [line for line in caplog.messages if "pooler" in line]
    assert "listen=" in line


def test_with_a_direct_url_for_listening_it_listens(postgres_url: str, pooled: str) -> None:
    assert opened(f"{pooled}?listen={postgres_url}").listens
    assert not opened(f"{pooled}?listen={postgres_url}&wake=poll").listens


def test_health_tells_that_nobody_is_woken_through_it_and_that_a_direct_url_helps(
    postgres_url: str, pooled: str
) -> None:
    Yaoki(postgres_url).migrate()

    def wake_ups(url: str) -> tuple[str, str]:
        [found] = [one for one in Yaoki(url).health().checks if one.code == "wake-ups"]
        return found.level, found.advice + found.message

    through, with_direct = wake_ups(pooled), wake_ups(f"{pooled}?listen={postgres_url}")

    assert through[0] == "warning"
    assert "listen=URL" in through[1]
    assert with_direct[0] == "ok"
    assert "notifications arrive" in with_direct[1]


def test_sessions_of_ones_own_prepare_when_they_are_told_to(
    start: Start, postgres_url: str
) -> None:
    """In session mode nothing tells that they are; the URL can."""
    bouncer = start(mode="session", sessions=6)
    app = Yaoki(f"{bouncer.of(postgres_url)}?prepared=on&pool=2")
    for _ in range(5):
        job = app.enqueue("mail", {"n": 1})
        assert app.get(job) == job

    [(prepared,)] = app.store.run(Asked("SELECT count(*) FROM pg_prepared_statements"))
    assert prepared > 0
    app.close()


def test_preparing_on_shared_sessions_is_told_with_what_to_do(pooled: str) -> None:
    app = Yaoki(f"{pooled}?prepared=on&pool=4")

    def live() -> None:
        for _ in range(50):
            app.enqueue("mail", {"n": 1})
            app.jobs(limit=1)

    with pytest.raises(StoreError, match=r"prepared statement .*prepared=off") as told:
        at_once(live, 4)
    assert "\n" not in str(told.value)
    app.close()


def at_once(act: Any, number: int) -> None:
    """In so many threads; raises the first error."""
    errors: list[BaseException] = []

    def guarded() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if errors:
        raise errors[0]


# Nothing is left behind


def test_nothing_of_ours_stays_in_the_sessions_that_others_use_next(
    start: Start, postgres_url: str
) -> None:
    """Settings, prepared statements, locks, temporary tables, LISTEN (fault 134)."""
    bouncer = start(sessions=1)
    url = bouncer.of(postgres_url)
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
        before = other.execute(SETTINGS).fetchall()
        app = Yaoki(f"{url}?durability=normal")

        @app.job("mail")
        def handler(ctx: JobContext, number: int) -> None:
            with ctx.transaction() as tx:
                once(tx.connection, f"k{number}")
                app.enqueue("child")
                tx.result = number

        handler.enqueue_many([{"number": number} for number in range(5)])
        working = Working(app)
        eventually(lambda: {job.status for job in app.jobs(type="mail")} == {"completed"}, 20)
        asyncio.run(app.ajobs())
        working.drain()
        app.close()

        assert other.execute(SETTINGS).fetchall() == before
        for nothing in (
            "SELECT name FROM pg_prepared_statements",
            "SELECT pg_listening_channels()",
            "SELECT objid FROM pg_locks WHERE locktype = 'advisory'",
            "SELECT relname FROM pg_class WHERE relpersistence = 't'",
        ):
            assert other.execute(nothing).fetchall() == []
        assert other.execute("SHOW synchronous_commit").fetchone() == ("on",)


SETTINGS = "SELECT name, setting FROM pg_settings WHERE name <> 'application_name' ORDER BY name"


def test_two_schemas_keep_apart_whatever_path_a_session_has(
    pooled: str, direct: psycopg.Connection[Any]
) -> None:
    """Fault 135: the schema was chosen by a setting, and sessions change hands."""
    name = direct.info.dbname
    direct.execute(f"ALTER DATABASE \"{name}\" SET search_path = ''".encode())
    apps = [Yaoki(f"{pooled}?schema={schema}") for schema in ("a", "b-x")]

    def live() -> None:
        for app, other in ((apps[0], "a"), (apps[1], "b")):
            for _ in range(10):
                app.enqueue(other)
                for job in app.claim("w1"):
                    assert job.type == other
                    app.complete(job)

    at_once(live, 4)
    assert [{job.type for job in app.jobs(limit=100)} for app in apps] == [{"a"}, {"b"}]
    for app in apps:
        app.close()


def test_of_migrators_that_share_sessions_one_does_it(pooled: str) -> None:
    for number in range(3):
        stores = [PostgresStore(f"{pooled}?schema=s{number}") for _ in range(4)]
        applied: list[str] = []
        each = iter(stores)
        at_once(lambda each=each, applied=applied: applied.extend(next(each).migrate()), 4)

        assert len(applied) == len(set(applied)) > 0
        for store in stores:
            store.close()


# Workers and their handlers


def test_a_worker_completes_effect_and_job_in_one_transaction(
    app: Yaoki, direct: psycopg.Connection[Any]
) -> None:
    direct.execute("CREATE TABLE effects (number bigint)")
    tries: Counter[int] = Counter()

    @app.job("mail", retry=RetryPolicy(backoff=fixed(0)))
    def handler(ctx: JobContext, number: int) -> None:
        with ctx.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES (%s)", [number])
            app.enqueue("child", {"number": number})
            tries[number] += 1
            if tries[number] == 1 and number % 3 == 0:
                raise RuntimeError("once more")
            tx.result = number

    handler.enqueue_many([{"number": number} for number in range(30)])
    working = Working(app, concurrency=20)
    eventually(lambda: {one.status for one in app.jobs(type="mail")} == {"completed"}, 30)
    working.drain()

    numbers = direct.execute("SELECT number FROM effects ORDER BY number").fetchall()
    assert numbers == [(number,) for number in range(30)]
    assert len(app.jobs(type="child", limit=100)) == 30


def test_awaiting_handlers_work_too(app: Yaoki) -> None:
    @app.job("mail")
    async def handler(ctx: JobContext, number: int) -> None:
        await ctx.aprogress(1, 2)
        async with ctx.atransaction() as tx:
            await app.aenqueue("child")
            tx.result = number

    jobs = handler.enqueue_many([{"number": number} for number in range(10)])
    working = Working(app, concurrency=10)
    ended = [app.wait(job, timeout=30) for job in jobs]
    working.drain()

    assert [(one.status, one.result) for one in ended] == [("completed", n) for n in range(10)]


def test_without_notifications_a_job_starts_within_the_next_look(
    app: Yaoki, postgres_url: str
) -> None:
    elsewhere = Yaoki(postgres_url)

    @app.job("mail")
    def handler() -> None: ...

    working = Working(app)
    eventually(elsewhere.workers)
    for _ in range(3):
        job = elsewhere.wait(elsewhere.enqueue("mail"), timeout=10)
        assert (job.claimed_at - job.created_at).total_seconds() < 2
    working.drain()
    elsewhere.close()


def test_with_a_direct_connection_a_job_starts_at_once(pooled: str, postgres_url: str) -> None:
    app, elsewhere = Yaoki(f"{pooled}?listen={postgres_url}"), Yaoki(pooled)

    @app.job("mail")
    def handler() -> None: ...

    working = Working(app)
    eventually(lambda: elsewhere.store.run(Asked("SELECT sleeper FROM yaoki.sleepers")))
    waits = []
    for _ in range(5):
        job = elsewhere.wait(elsewhere.enqueue("mail"), timeout=10)
        waits.append((job.claimed_at - job.created_at).total_seconds())
        eventually(lambda: working.worker.slots.idle)
    working.drain()
    app.close()
    elsewhere.close()

    assert sorted(waits)[2] < 0.3


# Trouble with it


def test_one_that_is_not_there_is_told(pooled: str) -> None:
    with pytest.raises(StoreUnavailable, match="check host and port"):
        Yaoki("postgresql://postgres@127.0.0.1:1/jobs").enqueue("mail")


def test_options_that_it_does_not_pass_on_are_told_with_another_way(pooled: str) -> None:
    app = Yaoki(f"{pooled}?options=-c%20geqo%3Doff")

    with pytest.raises(StoreUnavailable, match=r"options.*ignore_startup_parameters") as told:
        app.enqueue("mail")
    assert "\n" not in str(told.value)


def test_a_pool_of_its_that_is_used_up_is_told_and_is_over(start: Start, postgres_url: str) -> None:
    bouncer = start(sessions=1, patience=1)
    app = Yaoki(bouncer.of(postgres_url))
    app.enqueue("mail")
    shared = app.store.transaction()

    with pytest.raises(StoreUnavailable, match=r"query_wait_timeout.*default_pool_size") as told:
        app.enqueue("mail")
    assert "\n" not in str(told.value)
    shared.rollback()

    assert app.enqueue("mail").type == "mail"
    app.close()


def test_more_clients_than_it_takes_are_told(start: Start, postgres_url: str) -> None:
    bouncer = start(clients=4)
    url = bouncer.of(postgres_url)
    app = Yaoki(url)
    app.enqueue("mail")
    with psycopg.connect(url), psycopg.connect(url):
        bouncer.tell("RECONNECT")
        second = Yaoki(url)
        with pytest.raises(StoreUnavailable, match=r"no more connections .*PgBouncer|lower pool="):
            second.enqueue("mail")
    assert app.enqueue("mail").type == "mail"
    app.close()


def test_sessions_that_the_server_ends_are_replaced(
    app: Yaoki, direct: psycopg.Connection[Any]
) -> None:
    for _ in range(5):
        app.enqueue("mail")
        direct.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        eventually(lambda: _answers(app))


def _answers(app: Yaoki) -> bool:
    try:
        return app.jobs() != []
    except StoreUnavailable:
        return False


def test_one_that_was_started_again_is_used_again(start: Start, postgres_url: str) -> None:
    first = start()
    app = Yaoki(first.of(postgres_url))

    @app.job("mail", retry=RetryPolicy(backoff=fixed(0)))
    def handler() -> None: ...

    handler.enqueue()
    working = Working(app)
    eventually(lambda: app.jobs()[0].status == "completed")
    first.end()
    with pytest.raises(StoreUnavailable):
        app.enqueue("mail")
    start(port=first.port)
    eventually(lambda: _answers(app))

    job = handler.enqueue()
    assert app.wait(job, timeout=20).status == "completed"
    working.drain()
    app.close()


def test_a_task_that_is_cancelled_takes_no_session_with_it(start: Start, postgres_url: str) -> None:
    bouncer = start(sessions=2, patience=5)
    store = PostgresStore(bouncer.of(postgres_url))

    class Reading(Asked):
        writes = False

    async def story() -> None:
        await store.arun(Enqueue(NewJob("mail", "{}")))
        for _ in range(10):
            task = asyncio.create_task(store.arun(Reading("SELECT 1::bigint FROM pg_sleep(30)")))
            await asyncio.sleep(0.05)
            task.cancel()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        began = time.monotonic()
        await asyncio.gather(*(store.arun(Enqueue(NewJob("mail", "{}"))) for _ in range(10)))
        assert time.monotonic() - began < 5

    asyncio.run(story())
    store.close()


def test_a_url_that_is_wrong_is_refused_as_anywhere(pooled: str) -> None:
    with pytest.raises(InvalidOption):
        Yaoki(f"{pooled}?prepared=perhaps")
