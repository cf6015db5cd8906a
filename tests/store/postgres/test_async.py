"""Tasks, event loops, and their ends: few connections, no write undone, nothing left behind."""

import asyncio
import gc
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.store.postgres.support_trouble import Asked, Trouble
from tests.support.acts import make, read
from tests.support.eventually import eventually
from tests.support.processes import Processes
from tests.worker.support_workers import Working
from yaoki import JobContext, StoreBusy, Yaoki
from yaoki.core.said import NewJob
from yaoki.store.ops.jobs import Enqueue, Get
from yaoki.store.postgres.store import PostgresStore

SLOW = "SELECT 1::bigint FROM pg_sleep(0.3)"


class Reading(Asked):
    """Statements that change nothing, so whoever is cancelled need not see them through."""

    writes = False


@pytest.fixture
def store(trouble: Trouble) -> Iterator[PostgresStore]:
    made = PostgresStore(f"{trouble.url}?pool=2")
    made.migrate()
    yield made
    made.close()


def count(trouble: Trouble) -> int:
    [(number,)] = trouble.run("SELECT count(*) FROM yaoki.jobs")
    return int(number)


def new() -> Enqueue:
    return Enqueue(NewJob("mail", "{}"))


def test_two_hundred_tasks_share_two_connections(store: PostgresStore, trouble: Trouble) -> None:
    most = 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(await asyncio.to_thread(trouble.sessions)))
            await asyncio.sleep(0.01)

    async def story() -> list[int]:
        watching = asyncio.create_task(watch())
        made = await asyncio.gather(*(store.arun(new()) for _ in range(200)))
        assert await asyncio.gather(*(store.arun(Get(job.id)) for job in made)) == made
        watching.cancel()
        return [job.id for job in made]

    assert sorted(asyncio.run(story())) == list(range(1, 201))
    assert 1 <= most <= 2


def test_several_loops_in_several_threads_have_connections_of_their_own(
    store: PostgresStore, trouble: Trouble
) -> None:
    together = threading.Barrier(6)

    def live(number: int) -> int:
        async def story() -> int:
            made = 0
            for _ in range(5):
                jobs = await asyncio.gather(*(store.arun(new()) for _ in range(6)))
                made += len(jobs)
                make(store)
            return made

        together.wait(20)
        return asyncio.run(story())

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(live, range(6))) == [30] * 6
    assert count(trouble) == 6 * 35
    # Loops that have ended leave their sessions to whoever connects next.
    gc.collect()
    asyncio.run(store.arun(Get(1)))
    eventually(lambda: len(trouble.sessions()) <= 2 + 2, within=20)


def test_loops_that_ended_leave_no_sessions_behind(store: PostgresStore, trouble: Trouble) -> None:
    for number in range(1, 30):
        assert asyncio.run(store.arun(new())).id == number
    gc.collect()

    eventually(lambda: len(trouble.sessions()) <= 1, within=20)


def test_a_loop_that_was_never_closed_does_not_hold_up_the_end(
    store: PostgresStore, trouble: Trouble
) -> None:
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(store.arun(new())).id == 1
    assert loop.run_until_complete(store.arun(new())).id == 2
    assert len(trouble.sessions()) == 1
    store.close()
    eventually(lambda: trouble.sessions() == [], within=20)

    assert loop.run_until_complete(store.arun(new())).id == 3
    loop.close()


PROGRAM = """
import asyncio, sys
from yaoki import Yaoki
app = Yaoki(sys.argv[1])
for number in range(1, 6):
    assert asyncio.run(app.aenqueue("mail")).id == number
loop = asyncio.new_event_loop()
loop.run_until_complete(app.aenqueue("mail"))
loop.close()
print("all loops have ended")
"""


def test_programs_that_run_loops_one_after_the_other_see_no_warnings(
    trouble: Trouble, processes: Processes
) -> None:
    program = processes.python("-X", "dev", "-W", "error", "-c", PROGRAM, trouble.url)

    assert program.wait(100) == 0
    assert program.output == "all loops have ended\n"


# Tasks that are cancelled


def test_a_cancelled_write_is_done_although_nobody_waits_for_it(
    store: PostgresStore, trouble: Trouble
) -> None:
    """Whoever was cancelled cannot know whether it was; half of it is never there."""
    make(store)
    update = "UPDATE yaoki.jobs SET priority = priority + 1 WHERE id = 1"

    async def story() -> None:
        writing = asyncio.create_task(store.arun(Asked(update, SLOW, update)))
        await asyncio.sleep(0.1)
        for _ in range(3):
            writing.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await writing
        await until(lambda: read(store, 1).priority == 2)

    asyncio.run(story())


async def until(fact: object, within: float = 5) -> None:
    end = time.monotonic() + within
    while not await asyncio.to_thread(fact):  # type: ignore[arg-type]
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def test_a_cancelled_read_ends_at_once_and_gives_its_connection_back(
    store: PostgresStore, trouble: Trouble
) -> None:
    async def story() -> None:
        await store.arun(new())
        for cancels in (1, 2, 5):
            for _ in range(4):
                reading = asyncio.create_task(store.arun(Reading(SLOW, SLOW, SLOW)))
                await asyncio.sleep(0.05)
                began = time.monotonic()
                for _ in range(cancels):
                    reading.cancel()
                    await asyncio.sleep(0)
                with pytest.raises(asyncio.CancelledError):
                    await reading
                assert time.monotonic() - began < 0.25
        # Both connections, or new ones in their place, are free again.
        assert len(await asyncio.gather(*(store.arun(Get(1)) for _ in range(10)))) == 10
        await until(lambda: len(trouble.sessions()) <= 2)

    asyncio.run(story())


def test_who_is_cancelled_while_waiting_for_a_connection_takes_none(
    store: PostgresStore, trouble: Trouble
) -> None:
    async def story() -> None:
        await store.arun(new())
        holding = [asyncio.create_task(store.arun(Reading(SLOW))) for _ in range(2)]
        await asyncio.sleep(0.05)
        waiting = [asyncio.create_task(store.arun(Get(1))) for _ in range(20)]
        await asyncio.sleep(0.05)
        for task in waiting[::2]:
            task.cancel()
        await asyncio.gather(*holding)
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in ends] == [True, False] * 10
        assert len(await asyncio.gather(*(store.arun(Get(1)) for _ in range(10)))) == 10

    asyncio.run(story())
    eventually(lambda: len(trouble.sessions()) <= 2, within=20)


def test_every_write_that_was_acknowledged_is_there_whoever_was_cancelled(
    store: PostgresStore, trouble: Trouble
) -> None:
    chance = random.Random(5)

    async def story() -> set[int]:
        tasks = [asyncio.create_task(store.arun(new())) for _ in range(300)]
        for task in chance.sample(tasks, 150):
            await asyncio.sleep(chance.uniform(0, 0.002))
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert not [one for one in ends if isinstance(one, Exception)]
        return {one.id for one in ends if not isinstance(one, BaseException)}

    acknowledged = asyncio.run(story())
    there = {number for (number,) in trouble.run("SELECT id FROM yaoki.jobs")}
    assert acknowledged <= there
    assert len(acknowledged) >= 150
    # What was written when the loop ended was cut off, and the server takes a moment to notice.
    eventually(lambda: len(trouble.sessions()) <= 2, within=20)
    idle = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in%%' AND datname = %s"
    assert trouble.admin.execute(idle, [trouble.name]).fetchall() == [(0,)]


def test_a_loop_that_ends_in_the_middle_of_a_write_leaves_no_half_of_it(
    store: PostgresStore, trouble: Trouble
) -> None:
    make(store)
    update = "UPDATE yaoki.jobs SET priority = priority + 1 WHERE id = 1"

    async def story() -> None:
        writing = asyncio.ensure_future(store.arun(Asked(update, "SELECT pg_sleep(5)", update)))
        await asyncio.sleep(0.2)
        writing.cancel()

    began = time.monotonic()
    asyncio.run(story())

    assert time.monotonic() - began < 4
    assert read(store, 1).priority == 0
    eventually(lambda: len(trouble.sessions()) <= 2, within=20)


def test_patience_of_ones_own_ends_the_wait_for_a_busy_database(
    store: PostgresStore, trouble: Trouble
) -> None:
    async def story() -> None:
        await store.arun(new())
        busy = [asyncio.create_task(store.arun(Reading(SLOW))) for _ in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await store.arun(Get(1))
        await asyncio.gather(*busy)
        assert (await store.arun(Get(1))).id == 1

    asyncio.run(story())


def test_a_task_that_waits_in_vain_is_told_in_time_and_what_to_do(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaoki.store.postgres.pool.WAIT_FOR_ONE", 0.1)

    async def story() -> None:
        await store.arun(new())
        busy = [asyncio.create_task(store.arun(Reading(SLOW))) for _ in range(2)]
        await asyncio.sleep(0.05)
        with pytest.raises(StoreBusy, match=r"all 2 connections .*raise pool="):
            await store.arun(new())
        await asyncio.gather(*busy)
        assert (await store.arun(new())).id == 2

    asyncio.run(story())


# Handlers that await


def test_awaiting_handlers_in_transactions_of_their_own_all_enqueue_at_once(
    store: PostgresStore, trouble: Trouble
) -> None:
    app = Yaoki(store.url)
    app.store = store
    inside = 0

    @app.job("parent")
    async def parent(ctx: JobContext, number: int) -> None:
        nonlocal inside
        async with ctx.atransaction() as tx:
            inside += 1
            await app.aenqueue("child", {"number": number})
            while inside < 20:
                await asyncio.sleep(0.01)
            await app.aenqueue("child", {"number": -number})
            tx.result = number

    parents = parent.enqueue_many([{"number": number} for number in range(20)])
    working = Working(app, concurrency=20)
    ended = [app.wait(job, timeout=60) for job in parents]
    working.drain()

    assert [(one.status, one.result, one.attempt) for one in ended] == [
        ("completed", number, 1) for number in range(20)
    ]
    assert trouble.run("SELECT count(*) FROM yaoki.jobs WHERE type = 'child'") == [(40,)]
