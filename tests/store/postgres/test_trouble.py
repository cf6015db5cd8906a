"""Connections that break, servers that are gone or silent: told in time, and nothing half done."""

import asyncio
import ctypes
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from servers.postgres import Server
from tests.store.postgres.support_trouble import (
    Asked,
    Proxy,
    Trouble,
    start_server,
)
from tests.support.acts import claim_one, end, make, read
from tests.support.eventually import eventually
from tests.support.saboteur import Saboteur, Texts, Way
from tests.worker.support_workers import Working, stays
from yaoki import JobContext, RetryPolicy, StoreError, StoreUnavailable, Yaoki, fixed
from yaoki.core.outcomes import Completed
from yaoki.core.said import NewJob
from yaoki.store.op import Op
from yaoki.store.ops.jobs import Enqueue, EnqueueMany, Get
from yaoki.store.postgres.connection import AsyncLine, Line
from yaoki.store.postgres.store import PostgresStore

Run = Callable[[Op[Any]], Any]


@pytest.fixture
def store(trouble: Trouble) -> Iterator[PostgresStore]:
    made = PostgresStore(f"{trouble.url}?pool=4")
    yield made
    made.close()


@pytest.fixture(params=["blocking", "awaiting"])
def run(request: pytest.FixtureRequest, store: PostgresStore) -> Iterator[Run]:
    """Either way of running an operation; both keep their connections."""
    if request.param == "blocking":
        yield store.run
        return
    with asyncio.Runner() as runner:
        yield lambda op: runner.run(store.arun(op))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is silent for half a second is taken for dead."""
    monkeypatch.setattr(Line, "patience", 0.5)
    monkeypatch.setattr(AsyncLine, "patience", 0.5)
    monkeypatch.setattr("yaoki.store.postgres.transaction.PATIENCE", 0.5)


def count(trouble: Trouble) -> int:
    [(number,)] = trouble.run("SELECT count(*) FROM yaoki.jobs")
    return int(number)


# Sessions that the server ends


def test_sessions_that_end_between_operations_are_replaced(run: Run, trouble: Trouble) -> None:
    for number in range(1, 6):
        assert run(Enqueue(NewJob("mail", "{}"))).id == number
        assert trouble.terminate_all() == 1


def test_a_session_that_ends_within_a_transaction_leaves_nothing_behind(
    run: Run, trouble: Trouble
) -> None:
    job = run(Enqueue(NewJob("mail", "{}")))
    changed = f"UPDATE yaoki.jobs SET priority = 7 WHERE id = {job.id}"

    with pytest.raises(StoreUnavailable, match="terminating connection") as error:
        run(Asked(changed, "SELECT 1::bigint", then=lambda place: trouble.terminate_all()))

    assert "\n" not in str(error.value)
    assert "not known" not in str(error.value)
    assert run(Get(job.id)).priority == 0


def test_a_session_that_ends_before_the_commit_leaves_its_fate_open(
    run: Run, trouble: Trouble
) -> None:
    """Nothing is committed here, but whoever waits for the answer cannot know it."""
    job = run(Enqueue(NewJob("mail", "{}")))
    changed = f"UPDATE yaoki.jobs SET priority = 7 WHERE id = {job.id}"

    with pytest.raises(StoreUnavailable, match=r"terminating.*not known.*idempotency key") as error:
        run(Asked(changed, then=lambda place: trouble.terminate_all()))

    assert "\n" not in str(error.value)
    assert run(Get(job.id)).priority == 0


def test_reading_says_nothing_of_a_fate(run: Run, trouble: Trouble) -> None:
    job = run(Enqueue(NewJob("mail", "{}")))

    class Reading(Asked):
        writes = False

    with pytest.raises(StoreUnavailable) as error:
        run(Reading("SELECT 1::bigint", then=lambda place: trouble.terminate_all()))

    assert "not known" not in str(error.value)
    assert run(Get(job.id)) == job


def test_a_handlers_transaction_whose_session_ends_is_rolled_back(
    store: PostgresStore, trouble: Trouble
) -> None:
    make(store)
    for act in (
        lambda shared: shared.connection.execute("SELECT 1"),
        lambda shared: shared.run(Get(1)),
        lambda shared: shared.commit(),
    ):
        shared = store.transaction()
        shared.connection.execute("UPDATE yaoki.jobs SET priority = 7")
        trouble.terminate_all()
        with pytest.raises((StoreUnavailable, psycopg.OperationalError), match="terminating"):
            act(shared)
        shared.rollback()
    assert read(store, 1).priority == 0


def test_of_a_thousand_operations_with_random_failures_none_leaves_a_session_behind(
    store: PostgresStore, trouble: Trouble
) -> None:
    chance = random.Random(7)
    told: Counter[str] = Counter()

    def fail_maybe(place: int) -> None:
        match chance.randrange(12):
            case 0:
                raise ValueError("a bug")
            case 1:
                raise KeyboardInterrupt
            case 2 if chance.randrange(8) == 0:
                trouble.terminate_all()

    def live() -> None:
        for _ in range(250):
            texts = chance.choice(
                [
                    ("SELECT 1::bigint", "SELECT 2::bigint"),
                    ("UPDATE yaoki.jobs SET priority = 1", "SELECT 1::bigint / 0"),
                    ("SELECT nonsense",),
                    ("UPDATE yaoki.jobs SET priority = 2",),
                ]
            )
            try:
                store.run(Asked(*texts, then=fail_maybe))
                told["done"] += 1
            except (StoreError, ValueError, KeyboardInterrupt) as error:
                told[type(error).__name__] += 1

    make(store)
    threads = [threading.Thread(target=live) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)

    assert told.keys() >= {
        "done",
        "ValueError",
        "KeyboardInterrupt",
        "StoreError",
        "StoreUnavailable",
    }
    assert told.total() == 1_000
    eventually(lambda: len(trouble.sessions()) <= 4, within=20)
    in_transaction = trouble.admin.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND state LIKE 'idle in%%'",
        [trouble.name],
    )
    assert in_transaction.fetchall() == [(0,)]
    assert make(store).id == 2


# Answers that are lost


def test_a_commit_whose_answer_is_lost_is_said_to_be_of_unknown_fate(
    trouble: Trouble, proxy: Proxy
) -> None:
    store = PostgresStore(proxy.url)
    job = make(store)
    proxy.cut_after = b"COMMIT\0"

    with pytest.raises(StoreUnavailable, match="not known") as error:
        store.run(Asked(f"UPDATE yaoki.jobs SET priority = 7 WHERE id = {job.id}"))

    assert "\n" not in str(error.value)
    proxy.heal()
    eventually(lambda: read(store, job).priority == 7)
    store.close()


def test_an_enqueue_whose_answer_is_lost_can_be_repeated_by_its_key(
    trouble: Trouble, proxy: Proxy
) -> None:
    app = Yaoki(f"{proxy.url}?prepared=off")
    app.enqueue("mail")
    proxy.cut_after = b"INSERT INTO"

    with pytest.raises(StoreUnavailable, match="not known"):
        app.enqueue("mail", idempotency_key="k")
    proxy.heal()
    eventually(lambda: count(trouble) == 2)

    again = app.enqueue("mail", idempotency_key="k")
    assert (again.id, again.created) == (2, False)
    app.close()


def test_an_answer_whose_messenger_alone_is_lost_is_an_answer(
    trouble: Trouble, proxy: Proxy
) -> None:
    """The look for sleepers travels behind the commit; what becomes of it is no matter."""
    store = PostgresStore(f"{proxy.url}?prepared=off")
    make(store)
    trouble.run(
        "INSERT INTO yaoki.sleepers (sleeper, until) VALUES ('x', 9000000000000000);"
        "ALTER TABLE yaoki.sleepers RENAME TO slow; CREATE VIEW yaoki.sleepers AS "
        "SELECT slow.* FROM yaoki.slow WHERE pg_sleep(0.5)::text = ''"
    )
    killer = threading.Timer(0.2, trouble.terminate_all)
    killer.start()

    jobs = store.run(EnqueueMany([NewJob("mail", "{}")] * 2))

    killer.join()
    assert [job.id for job in jobs] == [2, 3]
    assert read(store, jobs[0]) == jobs[0]
    store.close()


class CutsBehindCommits(Saboteur):
    """Ends each session when the look for sleepers is to be passed on, and nothing else."""

    def decide(self, journey: Texts) -> Way | None:
        return "cut before" if any("pg_notify" in text for text in journey) else None


@pytest.mark.parametrize("prepared", ["on", "off"])
def test_an_answer_whose_messenger_never_left_is_an_answer(trouble: Trouble, prepared: str) -> None:
    cuts = CutsBehindCommits(trouble.url)
    store = PostgresStore(f"{cuts.url}&prepared={prepared}")

    jobs = [make(store) for _ in range(3)]

    assert [job.id for job in jobs] == [1, 2, 3]
    store.close()
    cuts.close()


def test_a_completion_whose_answer_is_lost_is_recorded_once(trouble: Trouble, proxy: Proxy) -> None:
    app, ran = Yaoki(proxy.url), []

    @app.job("mail", retry=RetryPolicy(backoff=fixed(0)))
    def handler(ctx: JobContext) -> str:
        with ctx.transaction() as tx:
            ran.append(ctx.attempt)
            tx.result = "done"
            if len(ran) == 1:
                proxy.cut_after = b"COMMIT\0"
        return "never reached when the answer is lost"

    job = app.enqueue("mail")
    working = Working(app)
    eventually(lambda: ran, within=10)
    time_to_lose_it = time.monotonic() + 1
    eventually(lambda: time.monotonic() > time_to_lose_it)
    proxy.heal()
    ended = app.wait(job, timeout=20)
    working.drain()

    assert (ended.status, ended.result, ran) == ("completed", "done", [1])
    app.close()


# Servers that are silent


def test_a_server_that_falls_silent_is_given_up_in_time(
    run: Run, store: PostgresStore, trouble: Trouble, proxy: Proxy, impatient: None
) -> None:
    del run
    through = PostgresStore(proxy.url)
    make(through)
    proxy.swallows = True

    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"not answered for 0\.5 s") as error:
            make(through)
        assert time.monotonic() - began < 5
        assert "\n" not in str(error.value)
        proxy.cut()
        proxy.heal()
        assert make(through).type == "mail"
        proxy.swallows = True
    through.close()


def test_a_silent_server_does_not_hold_up_an_event_loop(
    trouble: Trouble, proxy: Proxy, impatient: None
) -> None:
    store = PostgresStore(f"{proxy.url}?connect_timeout=2")

    async def story() -> None:
        await store.arun(Enqueue(NewJob("mail", "{}")))
        proxy.swallows = True
        asking = [asyncio.create_task(store.arun(Get(1))) for _ in range(3)]
        turns = 0
        while not all(task.done() for task in asking):
            await asyncio.sleep(0.01)
            turns += 1
        for task in asking:
            assert isinstance(task.exception(), StoreUnavailable)
        assert turns >= 20
        proxy.heal()
        assert (await store.arun(Get(1))).type == "mail"

    asyncio.run(story())
    store.close()


def test_a_silent_server_does_not_hold_up_the_end_of_a_handlers_transaction(
    trouble: Trouble, proxy: Proxy, impatient: None
) -> None:
    store = PostgresStore(proxy.url)
    make(store)
    shared = store.transaction()
    shared.connection.execute("UPDATE yaoki.jobs SET priority = 7")
    proxy.swallows = True

    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="not known"):
        shared.commit()
    assert time.monotonic() - began < 5
    proxy.cut()
    proxy.heal()
    assert read(store, 1).priority == 0
    store.close()


def test_a_silent_server_does_not_hold_up_the_rollback_of_a_handlers_transaction(
    trouble: Trouble, proxy: Proxy, impatient: None
) -> None:
    store = PostgresStore(proxy.url)
    make(store)
    shared = store.transaction()
    shared.connection.execute("UPDATE yaoki.jobs SET priority = 7")
    proxy.swallows = True

    began = time.monotonic()
    shared.rollback()
    assert time.monotonic() - began < 5
    proxy.cut()
    proxy.heal()
    assert read(store, 1).priority == 0
    store.close()


def test_a_handlers_own_statements_may_take_as_long_as_they_take(
    store: PostgresStore, impatient: None
) -> None:
    make(store)
    shared = store.transaction()
    shared.connection.execute("SELECT pg_sleep(1.5)")
    shared.commit()


def test_a_server_that_takes_connections_and_says_nothing_is_given_up_in_time(
    trouble: Trouble, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many wait at once, for the first use or for a further connection."""
    monkeypatch.setattr("yaoki.store.postgres.store.WAIT_FOR_ONE", 3.0)
    proxy.answers_nobody = True
    store = PostgresStore(f"{proxy.url}?connect_timeout=2")
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            make(store)
        except StoreUnavailable as error:
            errors.append(error)

    began = time.monotonic()
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert time.monotonic() - began < 10
    assert len(errors) == 8
    assert all("\n" not in str(error) for error in errors)

    proxy.cut()
    proxy.heal()
    assert make(store).type == "mail"
    store.close()


def test_an_event_loop_goes_on_while_a_server_says_nothing(trouble: Trouble, proxy: Proxy) -> None:
    store = PostgresStore(f"{proxy.url}?connect_timeout=2")

    async def story() -> int:
        proxy.answers_nobody = True
        asking = asyncio.create_task(store.arun(Get(1)))
        turns = 0
        while not asking.done():
            await asyncio.sleep(0.01)
            turns += 1
        assert isinstance(asking.exception(), StoreUnavailable)
        return turns

    assert asyncio.run(story()) >= 50
    store.close()


# Servers that are gone for a while


@pytest.fixture
def mortal() -> Iterator[Server]:
    """A server that is this test's alone."""
    made = start_server()
    yield made
    made.delete()


@pytest.mark.parametrize("signal_name", ["INT", "QUIT"])
def test_a_server_that_was_started_again_is_used_again(mortal: Server, signal_name: str) -> None:
    store = PostgresStore(mortal.url)
    with asyncio.Runner() as runner:
        for number in (1, 3, 5):
            assert make(store).id == number
            assert runner.run(store.arun(Enqueue(NewJob("mail", "{}")))).id == number + 1
            mortal.stop(signal_name)
            for _ in range(3):
                with pytest.raises(StoreUnavailable) as error:
                    make(store)
                assert "\n" not in str(error.value)
                with pytest.raises(StoreUnavailable):
                    runner.run(store.arun(Get(1)))
            mortal.start()
            if signal_name == "QUIT":
                # A crash loses cached numbers of the sequence, and no job.
                assert read(store, number).id == number
                break
    store.close()


def test_a_worker_goes_on_through_five_losses_of_everything_within_two_seconds(
    trouble: Trouble, proxy: Proxy
) -> None:
    """Fault 49: several losses in a row used to make it worse."""
    app, ran = Yaoki(proxy.url), Counter()
    direct = Yaoki(trouble.url)

    @app.job("mail", retry=RetryPolicy(backoff=fixed(0), max_attempts=20))
    def handler(number: int) -> None:
        ran[number] += 1

    working = Working(app, lease_for=2)
    eventually(direct.workers)
    for loss in range(5):
        direct.enqueue_many("mail", [{"number": 10 * loss + n} for n in range(10)])
        proxy.cut()
        assert stays(lambda: True, during=0.35)
    jobs = direct.jobs(limit=100)
    assert len(jobs) == 50
    for job in jobs:
        assert direct.wait(job, timeout=30).status == "completed"
    before = time.monotonic()
    last = direct.enqueue("mail", {"number": 50})
    direct.wait(last, timeout=10)
    assert time.monotonic() - before < 5
    working.drain()

    assert set(ran) == set(range(51))
    app.close()
    direct.close()


# Exceptions from outside


def test_an_interrupt_from_the_keyboard_leaves_the_pool_whole(
    store: PostgresStore, trouble: Trouble
) -> None:
    make(store)
    for _ in range(6):
        main = threading.main_thread().ident
        assert main is not None
        waking = threading.Timer(0.15, signal.pthread_kill, [main, signal.SIGINT])
        waking.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            store.run(
                Asked("UPDATE yaoki.jobs SET priority = 7", "SELECT 1::bigint FROM pg_sleep(20)")
            )
        assert time.monotonic() - began < 5
        waking.join()
        assert read(store, 1).priority == 0
    eventually(lambda: len(trouble.sessions()) <= 1, within=20)
    eventually(lambda: not _running(trouble))


def _running(trouble: Trouble) -> list[tuple[Any, ...]]:
    return trouble.admin.execute(
        "SELECT pid FROM pg_stat_activity WHERE datname = %s AND state <> 'idle' "
        "AND pid <> pg_backend_pid()",
        [trouble.name],
    ).fetchall()


class Stopped(BaseException):
    """Thrown into a thread from outside."""


def test_an_exception_thrown_into_a_thread_leaves_the_pool_whole(
    store: PostgresStore, trouble: Trouble
) -> None:
    make(store)
    ends: list[str] = []
    throw = ctypes.pythonapi.PyThreadState_SetAsyncExc

    def work() -> None:
        try:
            while True:
                store.run(Asked("UPDATE yaoki.jobs SET priority = 7", "SELECT 1::bigint / 0"))
        except Stopped:
            ends.append("stopped")
        except StoreError:
            work()

    for _ in range(8):
        thread = threading.Thread(target=work)
        thread.start()
        assert thread.ident is not None
        time.sleep(random.uniform(0.001, 0.02))
        while thread.is_alive():
            throw(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))
            thread.join(0.05)

    assert ends == ["stopped"] * 8
    assert read(store, 1).priority == 0
    eventually(lambda: len(trouble.sessions()) <= 4, within=20)
    threads = [threading.Thread(target=make, args=(store,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert count(trouble) == 9


def test_a_bug_in_the_middle_of_an_operation_undoes_it(run: Run, trouble: Trouble) -> None:
    job = run(Enqueue(NewJob("mail", "{}")))

    def break_down(place: int) -> None:
        raise ZeroDivisionError

    for _ in range(20):
        with pytest.raises(ZeroDivisionError):
            run(Asked("UPDATE yaoki.jobs SET priority = 7", then=break_down))
    assert run(Get(job.id)).priority == 0
    assert len(trouble.sessions()) == 1


# What a fail-over leaves behind


def test_claims_and_outcomes_through_an_outage_are_whole(trouble: Trouble, proxy: Proxy) -> None:
    """Jobs in no state in between, whatever was cut (fault 16)."""
    store, direct = PostgresStore(proxy.url), PostgresStore(trouble.url)
    direct.run(EnqueueMany([NewJob("mail", "{}")] * 60))
    over = threading.Event()

    def cut_again_and_again() -> None:
        chance = random.Random(3)
        while not over.is_set():
            time.sleep(chance.uniform(0.005, 0.05))
            proxy.cut()

    cutting = threading.Thread(target=cut_again_and_again)
    cutting.start()
    completed = 0
    ending = time.monotonic() + 3
    while time.monotonic() < ending:
        try:
            end(store, claim_one(store), Completed())
            completed += 1
        except (StoreError, ValueError):
            continue
    over.set()
    cutting.join()

    rows = dict(trouble.run("SELECT status, count(*) FROM yaoki.jobs GROUP BY status"))
    assert sum(rows.values()) == 60
    assert rows.get("completed", 0) >= completed
    wrong = "SELECT count(*) FROM yaoki.jobs WHERE (status = 'running') <> (lease % 2 = 1)"
    assert trouble.run(wrong) == [(0,)]
    store.close()
    direct.close()


def test_a_session_on_a_server_that_turned_read_only_is_not_kept(trouble: Trouble) -> None:
    """Fault 16: after a fail-over every write failed, because the old connections stayed."""
    role = trouble.role().grant_all()
    store = PostgresStore(role.url)
    with asyncio.Runner() as runner:
        make(store)
        runner.run(store.arun(Enqueue(NewJob("mail", "{}"))))
        role.set(default_transaction_read_only="on")
        trouble.terminate_all()
        with pytest.raises(StoreUnavailable, match="read-only"):
            make(store)
        with pytest.raises(StoreUnavailable, match="read-only"):
            runner.run(store.arun(Enqueue(NewJob("mail", "{}"))))
        role.reset()
        assert make(store).type == "mail"
        assert runner.run(store.arun(Enqueue(NewJob("mail", "{}")))).type == "mail"
    store.close()
