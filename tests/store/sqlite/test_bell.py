"""The bell rings when somebody has committed: this process, another, or a caller himself."""

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.processes import Processes
from yaoki import Yaoki
from yaoki.store.sqlite.bell import DataVersionBell
from yaoki.store.sqlite.connection import connect
from yaoki.store.sqlite.place import Place


@pytest.fixture(params=[True, False], ids=["watched", "asking"])
def bell(request: pytest.FixtureRequest, app: Yaoki, path: Path) -> Iterator[DataVersionBell]:
    """On Linux it watches the log; elsewhere it asks."""
    log = path.with_name(path.name + "-wal")
    made = DataVersionBell(
        log,
        lambda: connect(path, Place(path), read_only=True),
        lambda: None,
        watched=request.param,
    )
    while made.wait(0.05):
        continue
    yield made
    made.close()


def test_a_bell_rings_at_once_for_another_connection(
    bell: DataVersionBell, app: Yaoki, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        rung: list[float] = []
        waiting = threading.Thread(target=lambda: rung.append(waited(bell)))
        waiting.start()
        assert waiting.is_alive()
        written = time.monotonic()
        other.execute("INSERT INTO yaoki_paused VALUES ('queue', 'x', 1)")
        waiting.join(10)

    assert rung[0] - written < 0.5


def waited(bell: DataVersionBell) -> float:
    assert bell.wait(10)
    return time.monotonic()


def test_a_bell_that_nobody_rings_is_silent(bell: DataVersionBell) -> None:
    began = time.monotonic()

    assert not bell.wait(0.2)

    assert 0.19 <= time.monotonic() - began < 1


def test_a_commit_before_the_wait_is_not_missed(bell: DataVersionBell, app: Yaoki) -> None:
    """Announce, commit, look once more, sleep: a ring in between must not be lost (8.16)."""
    app.enqueue("mail")

    assert bell.wait(5)
    assert not bell.wait(0.05)


def test_what_is_rolled_back_rings_no_bell(bell: DataVersionBell, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT INTO yaoki_paused VALUES ('queue', 'x', 1)")
        assert not bell.wait(0.2)
        other.execute("ROLLBACK")

    assert not bell.wait(0.2)


def test_a_bell_can_be_rung_from_any_thread(bell: DataVersionBell) -> None:
    threading.Timer(0.1, bell.ring).start()
    began = time.monotonic()

    assert bell.wait(10)

    assert time.monotonic() - began < 2


def test_a_bell_rung_before_the_wait_rings_once(bell: DataVersionBell) -> None:
    bell.ring()
    bell.ring()

    assert bell.wait(5)
    assert not bell.wait(0.05)


def test_a_bell_that_forgot_its_connection_opens_another(bell: DataVersionBell, app: Yaoki) -> None:
    bell.forget()
    assert bell.wait(5)
    while bell.wait(0.05):
        continue

    app.enqueue("mail")

    assert bell.wait(5)


def test_a_bell_rings_for_another_process(
    bell: DataVersionBell, app: Yaoki, processes: Processes
) -> None:
    processes.yaoki("--url", app.url, "enqueue", "mail", "{}")

    assert bell.wait(20)


def test_a_bell_rings_for_the_commit_of_a_callers_connection(
    bell: DataVersionBell, app: Yaoki, path: Path
) -> None:
    with closing(sqlite3.connect(path)) as mine:
        with app.on(mine):
            app.enqueue("mail")
        assert not bell.wait(0.1)
        mine.commit()

    assert bell.wait(5)


def test_a_bell_whose_database_cannot_be_opened_says_that_something_may_have_happened(
    tmp_path: Path,
) -> None:
    """So its owner looks at the table, with a pause between, instead of sleeping for ever."""

    def fail() -> sqlite3.Connection:
        raise sqlite3.OperationalError("unable to open database file")

    bell = DataVersionBell(tmp_path / "none-wal", fail, lambda: None)

    began = time.monotonic()
    assert bell.wait(5)
    assert bell.wait(5)
    assert 0.1 < time.monotonic() - began < 3
    bell.close()


def test_the_store_rings_its_own_bells_for_work_and_not_for_readers(app: Yaoki) -> None:
    with closing(app.store.bell()) as own:
        while own.wait(0.05):
            continue
        app.jobs()
        assert not own.wait(0.05)
        app.enqueue("mail")
        assert own.wait(5)


def test_closed_bells_are_not_rung(app: Yaoki) -> None:
    for _ in range(20):
        app.store.bell().close()

    app.enqueue("mail")
