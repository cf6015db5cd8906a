"""once(): true the first time a transaction records the key and commits, false ever after."""

import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.databases import ask
from yaoki import (
    InvalidOption,
    NotInTransaction,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    WrongConnection,
    Yaoki,
    once,
)
from yaoki.store.sqlite.once_table import make_once_table

KEY = "order-1001-points"


@pytest.fixture
def mine(app: Yaoki, path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of the caller's, as sqlite3 makes it by default."""
    with closing(sqlite3.connect(path, timeout=20, check_same_thread=False)) as connection:
        connection.execute("CREATE TABLE points (balance INTEGER NOT NULL)")
        connection.execute("INSERT INTO points VALUES (0)")
        connection.commit()
        yield connection


def balance(path: Path) -> int:
    [(points,)] = ask(path, "SELECT balance FROM points")
    return int(points)


def add_points(connection: sqlite3.Connection, key: str = KEY, **how: Any) -> bool:
    first = once(connection, key, **how)
    if first:
        connection.execute("UPDATE points SET balance = balance + 100")
    return first


def test_the_first_time_is_true_and_every_other_is_false(
    mine: sqlite3.Connection, path: Path
) -> None:
    for first in (True, False, False):
        assert add_points(mine) is first
        mine.commit()

    assert balance(path) == 100


def test_it_is_false_already_in_the_same_transaction(mine: sqlite3.Connection) -> None:
    assert [once(mine, KEY), once(mine, KEY)] == [True, False]


def test_a_key_is_free_again_when_its_transaction_rolls_back(
    mine: sqlite3.Connection, path: Path
) -> None:
    """The key is there exactly if the effect beside it is."""
    assert add_points(mine)
    mine.rollback()

    assert add_points(mine)
    mine.commit()
    assert balance(path) == 100


def test_the_key_is_not_stored_before_the_caller_commits(
    mine: sqlite3.Connection, path: Path
) -> None:
    once(mine, KEY)

    assert mine.in_transaction
    assert ask(path, "SELECT key FROM yaoki_once") == []
    mine.commit()
    assert ask(path, "SELECT key FROM yaoki_once") == [(KEY,)]


def test_outside_a_transaction_it_refuses_and_stores_nothing(app: Yaoki, path: Path) -> None:
    """In autocommit the key would be stored before the effect."""
    with closing(sqlite3.connect(path, isolation_level=None)) as mine:
        with pytest.raises(NotInTransaction, match="begin a transaction first"):
            once(mine, KEY)
        mine.execute("BEGIN IMMEDIATE")
        assert once(mine, KEY)
        mine.execute("COMMIT")

    assert len(ask(path, "SELECT key FROM yaoki_once")) == 1


if sys.version_info >= (3, 12):

    def test_the_newer_autocommit_of_the_driver_is_refused_as_well(app: Yaoki, path: Path) -> None:
        mine = sqlite3.connect(path, autocommit=True)
        with closing(mine), pytest.raises(NotInTransaction):
            once(mine, KEY)
        with closing(sqlite3.connect(path, autocommit=False)) as mine:
            assert once(mine, KEY)


def test_scopes_keep_keys_apart(mine: sqlite3.Connection) -> None:
    answers = [once(mine, KEY, scope=scope) for scope in (None, "a", "b", "a", None)]

    assert answers == [True, True, True, False, False]


def test_in_a_handler_the_scope_is_its_type(app: Yaoki, path: Path) -> None:
    answers = []

    def record() -> None:
        with closing(sqlite3.connect(path)) as mine, mine:
            answers.append(once(mine, KEY))

    app.job("a")(record)
    app.job("b")(record)
    for kind in ("a", "b", "a"):
        app.enqueue(kind)
    app.run_worker(concurrency=1, until_empty=True)

    assert answers == [True, True, False]
    assert ask(path, "SELECT scope FROM yaoki_once ORDER BY scope") == [("a",), ("b",)]


def test_keys_are_forgotten_after_they_were_kept_long_enough(mine: sqlite3.Connection) -> None:
    assert once(mine, KEY)
    mine.commit()

    assert not once(mine, KEY, keep=timedelta(days=1))
    assert once(mine, KEY, keep=timedelta(microseconds=0))


def test_old_keys_are_cleared_away_a_few_at_a_time(mine: sqlite3.Connection, path: Path) -> None:
    mine.executemany(
        "INSERT INTO yaoki_once (scope, key, done_at) VALUES ('', ?, 1)", [[n] for n in range(100)]
    )
    mine.commit()

    for number in range(5):
        once(mine, f"new-{number}")
    mine.commit()

    [(left,)] = ask(path, "SELECT count(*) FROM yaoki_once WHERE done_at = 1")
    assert left == 50


@pytest.mark.parametrize("key", ["", "a\0", "\ud83d", "k" * 501, None, 7])
def test_a_key_that_cannot_be_is_refused(mine: sqlite3.Connection, key: Any) -> None:
    with pytest.raises(InvalidOption):
        once(mine, key)


def test_a_negative_time_to_keep_is_refused(mine: sqlite3.Connection) -> None:
    with pytest.raises(InvalidOption, match="keep"):
        once(mine, KEY, keep=timedelta(days=-1))


def test_the_callers_rows_are_left_alone(mine: sqlite3.Connection) -> None:
    mine.row_factory = sqlite3.Row

    assert [once(mine, KEY), once(mine, KEY)] == [True, False]


# Two at once


@pytest.mark.parametrize(("ending", "second"), [("commit", False), ("rollback", True)])
def test_of_two_transactions_with_one_key_the_second_waits_for_the_first(
    mine: sqlite3.Connection, path: Path, ending: str, second: bool
) -> None:
    assert add_points(mine)
    answers: list[bool] = []

    def race() -> None:
        with closing(sqlite3.connect(path, timeout=20)) as other:
            answers.append(add_points(other))
            other.commit()

    racer = threading.Thread(target=race)
    racer.start()
    racer.join(0.1)
    assert answers == []
    getattr(mine, ending)()
    racer.join(20)

    assert answers == [second]
    assert balance(path) == 100


def test_many_at_once_have_one_effect(mine: sqlite3.Connection, path: Path) -> None:
    barrier = threading.Barrier(8)
    answers: list[bool] = []

    def race() -> None:
        with closing(sqlite3.connect(path, timeout=20, isolation_level="IMMEDIATE")) as other:
            barrier.wait(10)
            answers.append(add_points(other))
            other.commit()

    racers = [threading.Thread(target=race) for _ in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()

    assert sorted(answers) == [False] * 7 + [True]
    assert balance(path) == 100


def test_a_transaction_that_read_too_early_gets_a_clear_error(
    mine: sqlite3.Connection, path: Path
) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as early:
        early.execute("BEGIN")
        early.execute("SELECT balance FROM points").fetchone()
        add_points(mine)
        mine.commit()

        with pytest.raises(StoreBusy, match="BEGIN IMMEDIATE"):
            once(early, KEY)


# Where its table is


def test_a_database_of_effects_gets_the_table_and_nothing_else(tmp_path: Path) -> None:
    effects = tmp_path / "shop.db"
    with closing(sqlite3.connect(effects)) as shop:
        shop.execute("CREATE TABLE points (balance INTEGER)")
        url = f"sqlite:///{effects}"
        assert [make_once_table(url), make_once_table(url)] == [True, False]

        assert [once(shop, KEY), once(shop, KEY)] == [True, False]

    tables = ask(effects, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    assert tables == [("points",), ("yaoki_once",)]
    assert ask(effects, "PRAGMA journal_mode") == [("delete",)]


def test_without_the_table_the_error_says_how_to_make_it(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as shop:
        with pytest.raises(StoreError, match="yaoki migrate --once") as missing:
            once(shop, KEY)

        assert "\n" not in str(missing.value)


def test_the_table_is_not_made_in_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="there is no database"):
        make_once_table(f"sqlite:///{tmp_path / 'typo.db'}")

    assert list(tmp_path.iterdir()) == []


def test_the_table_is_not_made_in_memory() -> None:
    with pytest.raises(InvalidOption, match="name the file"):
        make_once_table("sqlite:///:memory:")


def test_a_database_with_the_table_can_become_a_queue(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "jobs.db")) as shop:
        url = f"sqlite:///{tmp_path / 'jobs.db'}"
        make_once_table(url)
        once(shop, KEY)
        shop.commit()

        app = Yaoki(url)
        app.enqueue("mail")
        app.close()

        assert not once(shop, KEY)


# What cannot be used


@pytest.mark.parametrize("thing", [None, "sqlite:///jobs.db", object()])
def test_what_is_no_connection_is_refused(thing: Any) -> None:
    with pytest.raises(WrongConnection):
        once(thing, KEY)


def test_a_connection_of_another_sqlite_library_is_refused() -> None:
    stand_in = type("Connection", (), {"__module__": "apsw"})()

    with pytest.raises(WrongConnection, match="damage"):
        once(stand_in, KEY)


def test_a_text_factory_of_the_callers_own_is_refused(mine: sqlite3.Connection) -> None:
    mine.text_factory = bytes

    with pytest.raises(WrongConnection, match="text_factory"):
        once(mine, KEY)
