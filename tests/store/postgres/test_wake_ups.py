"""Who sleeps is woken at once by whoever enqueues, wherever; who does not is not notified."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from tests.store.postgres.support_bells import Ground
from tests.support.eventually import eventually
from tests.support.pgbouncer import NOT_FOUND, program, through
from tests.worker.support_workers import Working, stays
from yaoki import Yaoki
from yaoki.store.postgres.bell import NotifyBell
from yaoki.worker.exchange import Exchanger

SOON = 0.3
"""Seconds; a look at the table, once a second, seldom comes so soon."""

BY_A_LOOK = 3.0
"""Seconds; it comes every second, and the machine may be busy."""


def but_one(delays: list[float]) -> float:
    """The longest delay but one: the machine may be busy once."""
    return sorted(delays)[-2]


def url_of(ground: Ground) -> str:
    """Of the queue; what listens can be told from the other sessions."""
    return f"{ground.url}?listen={quote(f'{ground.url}?application_name=bell', safe='')}"


@pytest.fixture
def app(ground: Ground) -> Iterator[Yaoki]:
    made = with_handlers(url_of(ground))
    yield made
    made.close()


def with_handlers(url: str) -> Yaoki:
    app = Yaoki(url)

    @app.job("quick")
    def quick() -> None: ...

    @app.job("slow")
    def slow(seconds: float) -> None:
        time.sleep(seconds)

    return app


@pytest.fixture
def workers() -> Iterator[list[Working]]:
    """Those to be drained when the test is over."""
    started: list[Working] = []
    yield started
    for working in started:
        working.drain()


@pytest.fixture
def worker(app: Yaoki, ground: Ground, workers: list[Working]) -> Working:
    """One that has nothing to do and sleeps."""
    return sleeping(app, ground, workers)


def sleeping(app: Yaoki, ground: Ground, workers: list[Working]) -> Working:
    working = Working(app)
    workers.append(working)
    eventually(ground.sleepers)
    return working


class Ear:
    """A session of the test's own that hears every notification."""

    def __init__(self, ground: Ground) -> None:
        self._session = ground.connection(autocommit=True)
        self._session.execute(f'LISTEN "{ground.channel}"'.encode())

    def heard(self) -> int:
        """How many there were since this was last asked."""
        self._session.execute("SELECT 1")
        return len(list(self._session.notifies(timeout=0)))

    def close(self) -> None:
        self._session.close()


@pytest.fixture
def ear(ground: Ground) -> Iterator[Ear]:
    with closing(Ear(ground)) as made:
        yield made


def pickups(app: Yaoki) -> list[float]:
    """Seconds from enqueue to claim of each job that is done, by the database's clock."""
    done = [app.get(job.id) for job in app.jobs(status="completed", limit=1000)]
    return [(job.attempts[-1].claimed_at - job.run_at).total_seconds() for job in done]


def enqueue_elsewhere(url: str, count: int) -> None:
    """In another process, one job after the other."""
    program = f"""
from yaoki import Yaoki
app = Yaoki({url!r})
for _ in range({count}):
    app.wait(app.enqueue("quick"), timeout=20)
app.close()
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.usefixtures("worker")
def test_another_process_wakes_a_worker_at_once(app: Yaoki) -> None:
    enqueue_elsewhere(app.url, 12)

    assert len(pickups(app)) == 12
    assert but_one(pickups(app)) < SOON


@pytest.mark.usefixtures("worker")
def test_a_transaction_held_open_wakes_a_worker_when_it_commits(app: Yaoki, ground: Ground) -> None:
    delays = []
    for _ in range(8):
        with psycopg.connect(ground.url) as mine:
            with app.on(mine):
                job = app.enqueue("quick")
            assert stays(lambda: not list(app.jobs()), during=0.1)
            committed = time.monotonic()
            mine.commit()
        app.wait(job, timeout=5)
        delays.append(time.monotonic() - committed)
        app.discard(job)

    assert but_one(delays) < SOON


@pytest.mark.usefixtures("worker")
def test_a_transaction_that_is_rolled_back_wakes_nobody(
    app: Yaoki, ground: Ground, ear: Ear
) -> None:
    with psycopg.connect(ground.url) as mine:
        with app.on(mine):
            app.enqueue("quick")
        mine.rollback()

    assert ear.heard() == 0


def test_nobody_is_notified_while_nobody_sleeps(
    app: Yaoki, ground: Ground, ear: Ear, workers: list[Working]
) -> None:
    app.migrate()
    job = app.enqueue("quick")
    app.enqueue_many("quick", [{}] * 3)
    app.cancel(job)
    app.retry(job)
    assert ear.heard() == 0

    working = sleeping(app, ground, workers)
    app.wait(app.enqueue("quick"), timeout=5)
    assert ear.heard() > 0, "now there was somebody"

    working.drain()
    eventually(lambda: not ground.sleepers())
    ear.heard()
    app.enqueue("quick")
    assert ear.heard() == 0


def test_a_worker_that_has_enough_to_do_is_not_notified(
    app: Yaoki, ground: Ground, ear: Ear, worker: Working
) -> None:
    app.enqueue_many("slow", [{"seconds": 0.01}] * 3_000)
    eventually(lambda: not ground.sleepers())
    ear.heard()

    for _ in range(50):
        app.enqueue("quick")

    assert list(app.jobs(status="pending")), "it had enough to do all the while"
    assert ear.heard() == 0
    assert not worker.ended


def test_a_worker_whose_slots_are_all_taken_is_not_notified_until_one_is_free(
    app: Yaoki, ground: Ground, ear: Ear, workers: list[Working]
) -> None:
    workers.append(Working(app, concurrency=1))
    eventually(ground.sleepers)
    long = app.enqueue("slow", {"seconds": 2.5})
    eventually(lambda: not ground.sleepers())
    ear.heard()

    app.enqueue("quick")

    assert ear.heard() == 0
    assert not app.get(long).is_final
    eventually(ground.sleepers)
    assert but_one([started_after(app, ground) for _ in range(8)]) < SOON


@pytest.mark.parametrize("times", [1, 3])
def test_a_worker_whose_session_is_ended_works_on_and_is_woken_again(
    app: Yaoki, ground: Ground, worker: Working, times: int
) -> None:
    for _ in range(times):
        assert eventually(ground.terminate) == 1
        assert started_after(app, ground) < BY_A_LOOK, "its own look is behind every notification"

    eventually(lambda: len(ground.sessions()) == 1 and ground.sleepers())
    assert but_one([started_after(app, ground) for _ in range(8)]) < SOON
    assert not worker.ended


def started_after(app: Yaoki, ground: Ground) -> float:
    """Seconds until a job was claimed that somebody else made, by the database's clock."""
    job = app.wait(enqueued_elsewhere(ground), timeout=10)
    claimed_at = job.attempts[-1].claimed_at
    return (claimed_at - job.run_at).total_seconds()


def enqueued_elsewhere(ground: Ground) -> int:
    """A job whose enqueue rings no bell of this process."""
    with closing(Yaoki(ground.url)) as other:
        return other.enqueue("quick").id


def test_without_notifications_a_worker_looks_every_second(
    ground: Ground, ear: Ear, workers: list[Working]
) -> None:
    with closing(with_handlers(f"{url_of(ground)}&wake=poll")) as app:
        workers.append(Working(app))
        eventually(app.workers)
        with psycopg.connect(ground.url) as mine, app.on(mine):
            app.enqueue("quick")
        enqueue_elsewhere(app.url, 2)

        assert max(pickups(app)) < BY_A_LOOK
        assert ear.heard() == 0
        assert ground.sessions() == []
        assert ground.announcements() == []
        workers.pop().drain()


@pytest.mark.skipif(program() is None, reason=NOT_FOUND)
def test_behind_a_pooler_workers_listen_on_a_connection_of_their_own(
    ground: Ground, workers: list[Working]
) -> None:
    with (
        through(ground.url) as pooled,
        closing(with_handlers(url_of(ground).replace(ground.url, pooled, 1))) as app,
    ):
        sleeping(app, ground, workers)
        enqueue_elsewhere(app.url, 12)

        assert but_one(pickups(app)) < SOON
        assert len(ground.sessions()) == 1
        workers.pop().drain()


@pytest.mark.parametrize("answers", ["by refusing", "nothing"])
def test_a_direct_connection_that_cannot_be_had_costs_no_more_than_the_wake_ups(
    ground: Ground, workers: list[Working], answers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = 1 if answers == "by refusing" else nobody.getsockname()[1]
        direct = quote(f"postgresql://nobody@127.0.0.1:{port}/nowhere", safe="")
        with closing(with_handlers(f"{ground.url}?listen={direct}")) as app:
            workers.append(Working(app))
            eventually(app.workers)
            for _ in range(8):
                app.wait(app.enqueue("quick"), timeout=10)
            assert but_one(pickups(app)) < SOON, "within the process nobody needs a server"
            assert started_after(app, ground) < BY_A_LOOK
            turns = counted(monkeypatch, NotifyBell, "_tend")
            rounds = counted(monkeypatch, Exchanger, "once")
            threading.Event().wait(1.2)
            assert 1 <= len(rounds) < 6
            assert 1 <= len(turns) < 12, "nobody spins because a listener is dead"
            workers.pop().drain()


def counted(monkeypatch: pytest.MonkeyPatch, kind: type, name: str) -> list[None]:
    """One more for each call of this method, from now on."""
    calls: list[None] = []
    method = getattr(kind, name)

    def count(self: Any) -> Any:
        calls.append(None)
        return method(self)

    monkeypatch.setattr(kind, name, count)
    return calls


@pytest.mark.slow
def test_a_sleeping_worker_costs_next_to_nothing(worker: Working, ground: Ground) -> None:
    asked = ground.sessions()
    before = time.process_time()
    threading.Event().wait(3)

    assert time.process_time() - before < 0.09
    assert ground.sessions() == asked
    assert not worker.ended
