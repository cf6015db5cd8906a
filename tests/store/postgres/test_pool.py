"""Few connections for many threads: everybody gets his turn, and nobody waits for himself."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import psycopg
import pytest

from tests.store.postgres.support_trouble import Asked, Trouble
from tests.support.acts import make, read
from tests.support.eventually import eventually
from tests.support.processes import Processes
from tests.worker.support_workers import Working
from yaoki import (
    InvalidOption,
    JobContext,
    NotInTransaction,
    RetryPolicy,
    StoreBusy,
    TransactionLost,
    Yaoki,
    fixed,
)
from yaoki.store.ops.jobs import Get
from yaoki.store.postgres.store import PostgresStore


@pytest.fixture
def store(trouble: Trouble) -> Iterator[PostgresStore]:
    """One whose short operations have two connections, the least there can be."""
    made = PostgresStore(f"{trouble.url}?pool=2")
    yield made
    made.close()


@pytest.fixture
def app(store: PostgresStore) -> Yaoki:
    made = Yaoki(store.url)
    made.store = store
    return made


def test_fifty_threads_share_two_connections(store: PostgresStore, trouble: Trouble) -> None:
    make(store)
    most = 0

    def use(number: int) -> None:
        nonlocal most
        for _ in range(4):
            job = make(store)
            assert read(store, job) == job
            store.run(Asked("SELECT 1::bigint FROM pg_sleep(0.005)"))
        most = max(most, len(trouble.sessions()))

    with ThreadPoolExecutor(50) as threads:
        list(threads.map(use, range(50)))

    assert trouble.run("SELECT count(*) FROM yaoki.jobs") == [(201,)]
    assert most <= 2


def test_one_after_the_other_needs_one_connection(store: PostgresStore, trouble: Trouble) -> None:
    make(store)
    [pid] = trouble.sessions()
    for _ in range(100):
        make(store)

    assert trouble.sessions() == [pid]


def test_a_pool_of_one_is_refused_before_anything_is_opened(
    trouble: Trouble, processes: Processes
) -> None:
    url = f"{trouble.url}?pool=1"

    with pytest.raises(InvalidOption, match="from 2") as refused:
        Yaoki(url)
    assert "\n" not in str(refused.value)
    command = processes.yaoki("--url", url, "jobs")
    assert command.wait() == 2
    assert len(command.output.splitlines()) == 1
    assert "from 2" in command.output


def test_who_waits_in_vain_is_told_in_time_and_what_to_do(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(store)
    monkeypatch.setattr("yaoki.store.postgres.pool.WAIT_FOR_ONE", 0.3)
    opened = store._opened()
    with ExitStack() as in_use:
        for _ in range(2):
            in_use.enter_context(opened.pool.lend())
        began = time.monotonic()
        with pytest.raises(
            StoreBusy, match=r"all 2 connections .*try again, or raise pool="
        ) as busy:
            make(store)
        assert 0.2 < time.monotonic() - began < 5
        assert "\n" not in str(busy.value)
        assert busy.value.__cause__ is None
    assert make(store).id == 2


def test_a_closed_store_has_no_sessions_and_opens_again(
    store: PostgresStore, trouble: Trouble
) -> None:
    make(store)
    store.transaction().rollback()
    with store._opened().pool.lend():
        store.close()
        assert len(eventually(lambda: trouble.sessions())) >= 1
    eventually(lambda: trouble.sessions() == [], within=20)

    assert make(store).id == 2


# Transactions of handlers


def test_handlers_in_transactions_of_their_own_all_enqueue_at_once(
    app: Yaoki, trouble: Trouble
) -> None:
    """Twenty hold a transaction at the same instant, and two connections are for the rest."""
    all_inside = threading.Barrier(20)
    runs: Counter[int] = Counter()

    @app.job("parent", retry=RetryPolicy(max_attempts=1))
    def parent(ctx: JobContext, number: int) -> None:
        with ctx.transaction() as tx:
            runs[number] += 1
            tx.execute("CREATE TEMP TABLE IF NOT EXISTS mine (n bigint)")
            app.enqueue("child", {"number": number})
            all_inside.wait(30)
            app.enqueue("child", {"number": -number})
            tx.result = number

    parents = parent.enqueue_many([{"number": number} for number in range(20)])
    working = Working(app, concurrency=20)
    ended = [app.wait(job, timeout=60) for job in parents]
    working.drain()

    assert {one.status for one in ended} == {"completed"}
    assert runs == Counter(range(20))
    assert trouble.run("SELECT count(*) FROM yaoki.jobs WHERE type = 'child'") == [(40,)]


def test_handlers_that_use_the_app_all_at_once_get_their_turn(app: Yaoki, trouble: Trouble) -> None:
    together = threading.Barrier(20)

    @app.job("parent", retry=RetryPolicy(max_attempts=1))
    def parent(ctx: JobContext, number: int) -> int:
        together.wait(30)
        for _ in range(5):
            job = app.enqueue("child", {"number": number})
            assert app.get(job).payload == {"number": number}
            ctx.progress(number)
        return number

    parents = parent.enqueue_many([{"number": number} for number in range(20)])
    working = Working(app, concurrency=20)
    ended = [app.wait(job, timeout=60) for job in parents]
    working.drain()

    assert [one.result for one in ended] == list(range(20))
    assert trouble.run("SELECT count(*) FROM yaoki.jobs WHERE type = 'child'") == [(100,)]


def test_held_transactions_keep_nobody_from_recording_and_renewing(
    app: Yaoki, trouble: Trouble
) -> None:
    """Ten transactions last three leases; a rescuer stands by, and other jobs go on."""
    runs: Counter[int] = Counter()
    inside, over = threading.Barrier(11), threading.Event()

    @app.job("slow", retry=RetryPolicy(backoff=fixed(0)))
    def slow(ctx: JobContext, number: int) -> None:
        runs[number] += 1
        with ctx.transaction():
            inside.wait(30)
            over.wait(30)

    @app.job("quick", retry=RetryPolicy(backoff=fixed(0)))
    def quick() -> None: ...

    other = Yaoki(trouble.url)

    @other.job("slow", retry=RetryPolicy(backoff=fixed(0)))
    def taken_over(number: int) -> None:
        runs[number] += 100

    held = slow.enqueue_many([{"number": number} for number in range(10)])
    working = Working(app, concurrency=12, lease_for=1)
    inside.wait(30)
    standing_by = Working(other, lease_for=1)
    began = time.monotonic()
    while time.monotonic() - began < 3:
        assert app.wait(quick.enqueue(), timeout=3).status == "completed"
    over.set()
    ended = [app.wait(job, timeout=20) for job in held]
    working.drain()
    standing_by.drain()
    other.close()

    assert runs == Counter(range(10))
    assert {(one.status, one.attempt, one.rescues) for one in ended} == {("completed", 1, 0)}


def test_enqueues_that_wait_for_a_transaction_keep_nobody_from_recording_and_renewing(
    app: Yaoki, trouble: Trouble
) -> None:
    """Somebody has made a job of their key and does not commit; they have all the connections."""
    runs: Counter[int] = Counter()
    waiting = threading.Barrier(6)

    @app.job("slow", retry=RetryPolicy(backoff=fixed(0)))
    def slow(number: int) -> None:
        runs[number] += 1
        waiting.wait(30)
        app.enqueue("child", idempotency_key="k")

    @app.job("quick")
    def quick() -> None: ...

    held = slow.enqueue_many([{"number": number} for number in range(5)])
    quick_ones = quick.enqueue_many([{}] * 20)
    with psycopg.connect(trouble.url) as connection:
        with app.on(connection):
            app.enqueue("child", idempotency_key="k")
        working = Working(app, concurrency=8, lease_for=1)
        waiting.wait(30)
        observer = Yaoki(trouble.url)
        for job in quick_ones:
            assert observer.wait(job, timeout=5).status == "completed"
        ends = time.monotonic() + 3
        eventually(lambda: time.monotonic() > ends)
    ended = [app.wait(job, timeout=20) for job in held]
    working.drain()
    observer.close()

    assert runs == Counter(range(5))
    assert {(one.status, one.attempt, one.rescues) for one in ended} == {("completed", 1, 0)}
    assert trouble.run("SELECT count(*) FROM yaoki.jobs WHERE type = 'child'") == [(1,)]


def test_what_a_handler_sets_for_its_session_is_gone_for_the_next_one(
    store: PostgresStore, trouble: Trouble
) -> None:
    make(store)
    pids = []
    for _ in range(3):
        shared = store.transaction()
        execute = shared.connection.execute
        assert execute("SHOW work_mem").fetchone() != ("7MB",)
        assert execute("SELECT to_regclass('pg_temp.mine')").fetchone() == (None,)
        execute("SET work_mem = '7MB'; SET search_path = nowhere")
        execute("CREATE TEMP TABLE mine (n bigint); SELECT pg_advisory_lock(1)")
        execute("PREPARE mine AS SELECT 1")
        pids.append(execute("SELECT pg_backend_pid()").fetchone())
        assert shared.run(Get(1)).id == 1
        shared.commit()
    assert len(set(pids)) == 1
    locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    assert trouble.run(locks) == [(0,)]


class Shouting(psycopg.adapt.Loader):
    """Makes something else of every text and number."""

    format = psycopg.pq.Format.BINARY

    def load(self, data: object) -> str:
        return "!"


class ShoutingInText(Shouting):
    format = psycopg.pq.Format.TEXT


def test_what_a_handler_sets_in_the_driver_is_gone_for_the_next_one(store: PostgresStore) -> None:
    make(store)
    told: list[object] = []
    for _ in range(3):
        shared = store.transaction()
        connection = shared.connection
        assert connection.execute("SELECT 1::bigint, 'a'").fetchone() == (1, "a")
        assert (connection.prepare_threshold, connection.cursor_factory) == (None, psycopg.Cursor)
        connection.execute("DO $$ BEGIN RAISE NOTICE 'hello'; END $$")
        connection.prepare_threshold = 0
        connection.cursor_factory = psycopg.ClientCursor
        connection.row_factory = psycopg.rows.dict_row
        connection.add_notice_handler(told.append)
        for loader in (Shouting, ShoutingInText):
            connection.adapters.register_loader("int8", loader)
            connection.adapters.register_loader("text", loader)
        assert shared.run(Get(1)).type == "mail"
        shared.commit()
    assert told == []


def test_what_a_program_changes_in_psycopg_for_everybody_is_not_for_the_store(
    trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = psycopg.adapt.AdaptersMap(psycopg.adapters)
    monkeypatch.setattr("psycopg.postgres.adapters", changed)
    for loader in (Shouting, ShoutingInText):
        for kind in ("int8", "int4", "text", "bool"):
            changed.register_loader(kind, loader)
    app = Yaoki(f"{trouble.url}?schema=another")
    job = app.enqueue("mail", {"to": "mai"})
    shared = app.store.transaction()
    # A handler's own statements are his program's.
    assert shared.connection.execute("SELECT 'a'::text").fetchone() == ("!",)
    assert shared.run(Get(job.id)).payload == {"to": "mai"}
    shared.commit()

    assert app.get(job).payload == {"to": "mai"}
    assert app.claim("w1")[0].type == "mail"
    app.close()


@pytest.mark.parametrize("words", ["COMMIT", "ROLLBACK"])
def test_a_transaction_that_a_handler_ended_itself_is_refused(
    store: PostgresStore, words: str
) -> None:
    make(store)
    shared = store.transaction()
    shared.connection.execute(words)

    with pytest.raises(NotInTransaction, match="leave both to the block"):
        shared.run(Get(1))
    with pytest.raises(NotInTransaction, match="leave both to the block"):
        shared.commit()
    shared.rollback()
    assert make(store).id == 2


def test_an_error_that_a_handler_swallowed_is_not_taken_for_a_commit(
    store: PostgresStore,
) -> None:
    make(store)
    shared = store.transaction()
    shared.connection.execute("UPDATE yaoki.jobs SET priority = 7")
    with pytest.raises(Exception, match="division by zero"):
        shared.connection.execute("SELECT 1 / 0")

    with pytest.raises(NotInTransaction, match="roll it back first"):
        shared.commit()
    shared.rollback()
    assert read(store, 1).priority == 0


def test_an_interrupt_stops_the_transaction_it_is_for(store: PostgresStore) -> None:
    make(store)
    shared = store.transaction()
    shared.connection.execute("UPDATE yaoki.jobs SET priority = 7")
    stopping = threading.Timer(0.2, shared.interrupt)
    stopping.start()

    began = time.monotonic()
    with pytest.raises(Exception, match=r"cancel|closed|connection"):
        shared.connection.execute("SELECT pg_sleep(20)")
    assert time.monotonic() - began < 5
    stopping.join()
    with pytest.raises(TransactionLost):
        shared.commit()
    shared.rollback()
    assert read(store, 1).priority == 0


def test_an_interrupt_that_comes_too_late_leaves_the_next_one_alone(
    store: PostgresStore,
) -> None:
    """The connection is somebody else's by then."""
    make(store)
    first = store.transaction()
    first.commit()
    second = store.transaction()
    assert second.connection is first.connection

    first.interrupt()

    assert second.connection.execute("SELECT 1").fetchone() == (1,)
    second.commit()


def test_interrupts_at_any_instant_end_in_one_way_or_the_other(store: PostgresStore) -> None:
    make(store)
    for number in range(1, 60):
        shared = store.transaction()
        shared.connection.execute(f"UPDATE yaoki.jobs SET priority = {number}")
        stopping = threading.Thread(target=shared.interrupt)
        stopping.start()
        time.sleep(0.0002 * (number % 10))
        try:
            shared.commit()
            done = True
        except Exception:
            shared.rollback()
            done = False
        stopping.join()
        assert (read(store, 1).priority == number) is done


# How durable


@pytest.mark.parametrize(
    ("option", "is_"), {"": "on", "?durability=full": "on", "?durability=normal": "off"}.items()
)
def test_durability_is_how_a_commit_waits_for_the_disk(
    trouble: Trouble, option: str, is_: str
) -> None:
    store = PostgresStore(trouble.url + option)
    question = "SELECT current_setting('synchronous_commit')"

    class Alone(Asked):
        atomic = False

    for op in (Asked(question), Alone(question)):
        assert store.run(op) == [(is_,)]
    shared = store.transaction()
    assert shared.connection.execute(question).fetchone() == (is_,)
    shared.commit()
    store.close()


def test_full_durability_leaves_the_servers_own_setting(trouble: Trouble) -> None:
    """A role that was told not to wait, or to wait for its standbys, keeps to that."""
    role = trouble.role(synchronous_commit="'remote_write'").grant_all()
    store = PostgresStore(role.url)

    assert store.run(Asked("SELECT current_setting('synchronous_commit')")) == [("remote_write",)]
    store.close()


# The end of a program


PROGRAM = """
import asyncio, sys, threading
from yaoki import Yaoki
app = Yaoki(sys.argv[1])
app.enqueue("mail")
threads = [threading.Thread(target=app.enqueue, args=("mail",)) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for _ in range(5):
    asyncio.run(app.aenqueue("mail"))
async def some(): await asyncio.gather(*(app.aenqueue("mail") for _ in range(8)))
asyncio.run(some())
transaction = app.store.transaction()
print("sessions are open")
"""


def test_a_program_ends_without_closing_and_without_a_word(
    trouble: Trouble, processes: Processes
) -> None:
    program = processes.python("-X", "dev", "-W", "error", "-c", PROGRAM, trouble.url)

    assert program.wait(100) == 0
    assert program.output == "sessions are open\n"
    eventually(lambda: trouble.sessions() == [], within=20)
