"""A bell whose server cannot be heard falls back to its owner's looks, and gets up again."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from tests.store.postgres.support_bells import Ground, Sleep, wire_to
from tests.support.eventually import eventually
from tests.support.postgres import Server
from yaoki.core.errors import StoreUnavailable
from yaoki.store.postgres.bell import NotifyBell
from yaoki.store.postgres.listener import Pace


@pytest.mark.parametrize("times", [1, 3])
def test_a_terminated_session_is_replaced(
    ground: Ground, bell: NotifyBell, caplog: pytest.LogCaptureFixture, times: int
) -> None:
    caplog.set_level(logging.INFO, "yaoki.store")
    for _ in range(times):
        assert ground.terminate() == 1
        rung = eventually(lambda: bell.wait(0.01) and ground.sessions())
        assert len(rung) == 1, "after the outage it asks for a look"

    eventually(ground.notify_sleepers)
    assert bell.wait(5)
    sleep, notified = Sleep(bell), time.monotonic()
    assert ground.notify_sleepers()
    assert sleep.delay_after(notified) < 0.5
    levels = [record.levelname for record in caplog.records if record.name == "yaoki.store"]
    assert levels == ["WARNING", "INFO"] * times


def test_a_session_that_is_doubted_is_replaced_without_being_asked_first(
    ground: Ground, bell: NotifyBell
) -> None:
    """Others were not answered, so this one may hear nothing either, and nothing would tell."""
    [[before, *_]] = ground.sessions()

    bell.doubt()

    assert bell.wait(5), "after the outage it asks for a look"
    [[after, *_]] = eventually(lambda: [one for one in ground.sessions() if one[0] != before])
    assert after != before
    sleep, notified = Sleep(bell), time.monotonic()
    assert ground.notify_sleepers()
    assert sleep.delay_after(notified) < 0.5


def test_a_ring_in_an_outage_is_heard(ground: Ground) -> None:
    with closing(NotifyBell(refused, ground.schema, lambda: None)) as bell:
        assert not bell.wait(0.05)
        sleep, rung = Sleep(bell), time.monotonic()

        bell.ring()

        assert sleep.delay_after(rung) < 0.5


def refused() -> psycopg.Connection[Any]:
    raise StoreUnavailable("nobody there")


@pytest.mark.parametrize(
    "error", [StoreUnavailable("gone"), psycopg.OperationalError("gone"), OSError("gone")]
)
def test_who_cannot_connect_sleeps_tries_seldom_and_says_so_once(
    ground: Ground, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    tries: list[float] = []

    def connect() -> psycopg.Connection[Any]:
        tries.append(time.monotonic())
        if len(tries) < 5:
            raise error
        return ground.connect()

    caplog.set_level(logging.INFO, "yaoki.store")
    with closing(NotifyBell(connect, ground.schema, lambda: None)) as bell:
        began, busy = time.monotonic(), time.process_time()
        assert bell.wait(20)
        lasted, busy = time.monotonic() - began, time.process_time() - busy

    assert len(tries) == 5
    assert 0.7 < lasted < 3
    assert busy < 0.2
    gaps = [later - sooner for sooner, later in pairwise(tries)]
    assert gaps == sorted(gaps)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "gone" in caplog.records[0].getMessage()


def test_a_database_without_our_tables_is_an_outage(
    ground: Ground, caplog: pytest.LogCaptureFixture
) -> None:
    ground.ask("ALTER TABLE yaoki.sleepers RENAME TO elsewhere")
    with closing(ground.bell()) as bell:
        assert not bell.wait(0.3)
        ground.ask("ALTER TABLE yaoki.elsewhere RENAME TO sleepers")
        assert bell.wait(10)

    assert "sleepers" in caplog.text


def test_a_server_that_ends_every_session_at_once_is_not_asked_in_a_frenzy(
    ground: Ground,
) -> None:
    made: list[int] = []

    def connect() -> psycopg.Connection[Any]:
        connection = ground.connect()
        made.append(connection.info.backend_pid)
        ground.ask("SELECT pg_terminate_backend($1, 5000)", made[-1])
        return connection

    with closing(NotifyBell(connect, ground.schema, lambda: None)) as bell:
        busy = time.process_time()
        assert not bell.wait(2)
        busy = time.process_time() - busy

    assert 3 <= len(made) <= 7
    assert busy < 0.2


@pytest.fixture
def server() -> Iterator[Server]:
    started = Server()
    yield started
    started.delete()


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("how", ["INT", "QUIT"])
def test_a_server_that_is_gone_for_a_while_is_listened_to_again(
    server: Server, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "yaoki.store")
    ground = Ground(server.url)
    with closing(ground.bell()) as bell:
        assert bell.wait(10)
        ground.other.close()
        server.stop(how)
        busy = time.process_time()
        assert not bell.wait(3), "in the dark nothing can ring"
        assert time.process_time() - busy < 0.09
        server.start()

        assert bell.wait(10), "after the outage it asks for a look"

        ground.other = ground.connection(autocommit=True)
        with closing(ground.other):
            sleep, notified = Sleep(bell), time.monotonic()
            assert ground.notify_sleepers()
            assert sleep.delay_after(notified) < 0.5
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


def test_a_connection_that_fell_silent_is_noticed_and_replaced(ground: Ground) -> None:
    """Half-open TCP: nothing fails, and nothing ever comes (faults: alive but deaf)."""
    pace = Pace(check_after=0.2, patience=0.3)
    with wire_to(ground) as wire:
        bell = ground.bell(wire.port, pace)
        with closing(bell):
            assert bell.wait(10)
            assert not bell.wait(0.5), "a server that answers is no news"
            assert wire.connections == 1
            wire.silence()
            assert not bell.wait(0.3), "nothing is lost until it has had time to answer"
            began = time.monotonic()
            bell.ring()
            assert bell.wait(5)
            assert time.monotonic() - began < 0.25, "silence keeps nobody from his work"

            assert bell.wait(10), "after the outage it asks for a look"

            assert wire.connections == 2
            assert ground.notify_sleepers()
            assert bell.wait(5)


def test_a_server_that_takes_connections_and_says_nothing_blocks_nobody(ground: Ground) -> None:
    pace = Pace(patience=0.2)
    with wire_to(ground) as wire:

        def connect() -> psycopg.Connection[Any]:
            connection = ground.connect(wire.port)
            wire.silence()
            return connection

        bell = NotifyBell(connect, ground.schema, lambda: None, pace=pace)
        with closing(bell):
            began = time.monotonic()
            assert not bell.wait(0.05)
            assert time.monotonic() - began < 0.19
            assert not bell.wait(1)
            assert wire.connections >= 2


def test_an_answer_that_came_while_nobody_listened_counts(ground: Ground) -> None:
    pace = Pace(check_after=0.1, patience=0.1)
    with closing(ground.bell(pace=pace)) as bell:
        assert bell.wait(10)
        [[first, *_]] = ground.sessions()
        for _ in range(6):
            # Its owner is away: for long enough to ask, then for longer than an answer may take.
            ground.ask("SELECT pg_sleep(0.15)")
            bell.wait(0)

        assert [pid for pid, _ in ground.sessions()] == [first]


def test_what_came_with_an_answer_while_nobody_listened_rings_at_once(ground: Ground) -> None:
    pace = Pace(announced_for=4, patience=0.1)
    with ground.connection() as blocker, closing(ground.bell(pace=pace)) as bell:
        assert bell.wait(10)
        assert not bell.wait(1.9)
        ground.ask("LOCK TABLE yaoki.sleepers IN EXCLUSIVE MODE", on=blocker)
        ground.ask("SELECT pg_sleep(0.2)")
        assert not bell.wait(0), "it wants to renew its announcement, which now takes long"
        ground.notify()
        blocker.rollback()
        ground.ask("SELECT pg_sleep(0.2)")
        began = time.monotonic()

        assert bell.wait(5)

        assert time.monotonic() - began < 0.5


def parameter_status(name: bytes, value: bytes) -> bytes:
    return message(b"S", name + b"\0" + value + b"\0")


def message(kind: bytes, body: bytes) -> bytes:
    return kind + (len(body) + 4).to_bytes(4, "big") + body


NOISE = [
    parameter_status(b"TimeZone", b"Asia/Tokyo"),
    message(b"N", b"SNOTICE\0C00000\0Mhello\0\0"),
]


@pytest.mark.parametrize("noise", NOISE, ids=["parameter", "notice"])
def test_what_is_no_notification_neither_rings_nor_keeps_it_busy(
    ground: Ground, noise: bytes
) -> None:
    with wire_to(ground) as wire:
        bell = ground.bell(wire.port)
        with closing(bell):
            assert bell.wait(10)
            over = threading.Event()

            def chatter() -> None:
                while not over.wait(0.000_1):
                    wire.say(noise)

            threading.Thread(target=chatter, daemon=True).start()
            busy = time.thread_time()
            assert not bell.wait(1)
            busy = time.thread_time() - busy
            over.set()

            assert busy < 0.1
            assert ground.notify_sleepers()
            assert bell.wait(5)
            assert wire.connections == 1
