"""Many writers of one process: each returns after the commit that holds its work, none in vain."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.databases import ask, assert_intact
from tests.support.eventually import eventually
from yaoki import InvalidPayload, KeyConflict, StoreError, WrongStatus, Yaoki
from yaoki.store.op import Op, Statement, Steps
from yaoki.store.op import ask as statement

THREADS = 32


def together(count: int, act: Callable[[int], object]) -> list[object]:
    """What `act` answers, or raises, in so many threads that begin at once."""
    barrier = threading.Barrier(count)

    def run(number: int) -> object:
        barrier.wait(20)
        try:
            return act(number)
        except Exception as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_every_caller_returns_after_its_own_commit(app: Yaoki, path: Path) -> None:
    """Seen through a connection of another library user: what was returned is there."""

    def enqueue_and_look(number: int) -> bool:
        with closing(sqlite3.connect(path, timeout=20)) as mine:
            for step in range(10):
                job = app.enqueue("mail", {"n": number, "step": step})
                found = mine.execute("SELECT type FROM yaoki_jobs WHERE id = ?", [job.id])
                if found.fetchone() != ("mail",):
                    return False
        return True

    assert together(THREADS, enqueue_and_look) == [True] * THREADS

    [(count,)] = ask(path, "SELECT count(DISTINCT id) FROM yaoki_jobs")
    assert count == THREADS * 10
    assert_intact(path)


def test_one_that_is_refused_does_not_undo_its_neighbours(app: Yaoki) -> None:
    app.enqueue("invoice", idempotency_key="taken")
    done = app.enqueue("done")
    app.complete(app.claim("w1", types=["done"])[0])

    def act(number: int) -> object:
        match number % 4:
            case 0:
                return app.enqueue("mail", idempotency_key="taken")
            case 1:
                return app.cancel(done)
            case 2:
                return app.enqueue("mail", {"bad": "\0"})
            case _:
                return app.enqueue("mail", {"n": number}).id

    answers = [answer for _ in range(5) for answer in together(THREADS, act)]

    kinds = [KeyConflict, WrongStatus, InvalidPayload, int]
    assert [type(answer) for answer in answers] == kinds * (5 * THREADS // 4)
    assert len(app.jobs(type="mail", limit=1_000)) == 5 * THREADS // 4


@dataclass(frozen=True)
class Broken(Op[None]):
    """An operation that the database refuses half way."""

    text: str

    def steps(self) -> Steps[None]:
        yield statement("pause", kind="queue", name="half way")
        yield Statement("composed", {}, text=self.text)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO yaoki.paused (kind, name, paused_at) VALUES ('neither', 'x', 1)",
        "INSERT INTO yaoki.nowhere VALUES (1)",
        "SELECT no_such_function()",
        "this is no SQL",
    ],
)
def test_one_that_the_database_refuses_leaves_nothing_and_harms_nobody(
    app: Yaoki, text: str
) -> None:
    """A failed batch is done again one by one (design 8.9)."""

    def act(number: int) -> object:
        if number % 8 == 0:
            return app.store.run(Broken(text))
        return app.enqueue("mail", {"n": number}).id

    answers = [answer for _ in range(4) for answer in together(THREADS, act)]

    errors = [answer for answer in answers if not isinstance(answer, int)]
    assert len(errors) == 4 * THREADS // 8
    assert all(isinstance(error, StoreError) for error in errors)
    assert app.paused() == []
    assert len(app.jobs(limit=1_000)) == len(answers) - len(errors)


class Stop(BaseException):
    pass


@dataclass(frozen=True)
class Stopping(Op[None]):
    """An operation in the middle of which something raises that is no Exception."""

    def steps(self) -> Steps[None]:
        yield statement("pause", kind="queue", name="half way")
        raise Stop


def test_an_operation_that_is_broken_off_leaves_nothing_and_nobody_waiting(app: Yaoki) -> None:
    def act(number: int) -> object:
        try:
            if number % 8 == 0:
                return app.store.run(Stopping())
        except Stop:
            return "stopped"
        try:
            return app.enqueue("mail").id
        except Stop:
            return "stopped with its neighbour"

    for _ in range(3):
        together(THREADS, act)

    assert app.paused() == []
    assert app.enqueue("mail").status == "pending"


def test_awaiting_and_blocking_callers_share_commits(app: Yaoki) -> None:
    async def awaiting() -> list[int]:
        return [job.id for job in await asyncio.gather(*(app.aenqueue("a") for _ in range(200)))]

    with ThreadPoolExecutor(9) as pool:
        one = pool.submit(asyncio.run, awaiting())
        others = [pool.submit(lambda: [app.enqueue("b").id for _ in range(50)]) for _ in range(8)]
        ids = one.result() + [job_id for other in others for job_id in other.result()]

    assert len(set(ids)) == 600
    assert len(app.jobs(limit=1_000)) == 600


def test_who_is_cancelled_while_waiting_does_not_undo_the_job(app: Yaoki) -> None:
    async def story() -> None:
        shared = app.store.transaction()
        waiting = asyncio.create_task(app.aenqueue("mail"))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.to_thread(shared.commit)
        await app.aenqueue("after")

    asyncio.run(story())

    assert [job.type for job in app.jobs()] == ["after", "mail"]


def test_a_loop_that_ends_before_its_write_harms_nobody(app: Yaoki) -> None:
    shared = app.store.transaction()

    async def leave() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(app.aenqueue("mail"), 0.05)

    asyncio.run(leave())
    shared.commit()
    app.enqueue("after")

    eventually(lambda: {job.type for job in app.jobs()} == {"mail", "after"})


def test_a_batch_of_thousands_beside_small_writes(app: Yaoki) -> None:
    def act(number: int) -> object:
        if number == 0:
            return len(app.enqueue_many("many", [{"n": n} for n in range(5_000)]))
        return [app.enqueue("one").id for _ in range(20)] and 20

    answers = together(9, act)

    assert answers == [5_000] + [20] * 8
    ids = [job.id for job in app.jobs(type="many", limit=1_000)]
    assert ids == list(range(ids[0], ids[0] - 1_000, -1))


def test_closing_writes_what_waits(app: Yaoki, path: Path) -> None:
    shared = app.store.transaction()
    with ThreadPoolExecutor(10) as pool:
        waiting = [pool.submit(app.enqueue, "mail") for _ in range(10)]
        threading.Timer(0.2, shared.commit).start()
        app.close()
        ids = {one.result(20).id for one in waiting}

    assert len(ids) == 10
    assert len(app.jobs()) == 10
    assert_intact(path)
