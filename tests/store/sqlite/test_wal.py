"""The length of the write-ahead log, read from the log itself."""

import sqlite3
from pathlib import Path

from yaoki.store.sqlite.wal import frames_in


def opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    connection.execute("CREATE TABLE t (x)")
    return connection


def frames_by_sqlite(connection: sqlite3.Connection) -> int:
    """What a checkpoint says was in the log."""
    [_, frames, _] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    return int(frames)


def test_a_log_that_is_not_there_has_no_frames(tmp_path: Path) -> None:
    assert frames_in(tmp_path / "none-wal") == 0


def test_the_frames_of_a_growing_log_are_counted_as_sqlite_counts_them(tmp_path: Path) -> None:
    connection = opened(tmp_path / "a.db")
    for size in (1, 5_000, 300_000):
        connection.execute("INSERT INTO t VALUES (zeroblob(?))", (size,))

    counted = frames_in(tmp_path / "a.db-wal")

    assert counted == frames_by_sqlite(connection) > 70
    connection.close()


def test_only_the_current_round_of_a_log_that_is_used_again_counts(tmp_path: Path) -> None:
    connection = opened(tmp_path / "a.db")
    connection.execute("INSERT INTO t VALUES (zeroblob(1000000))")
    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    length = (tmp_path / "a.db-wal").stat().st_size

    connection.execute("INSERT INTO t VALUES (1)")

    assert (tmp_path / "a.db-wal").stat().st_size == length
    assert frames_in(tmp_path / "a.db-wal") == frames_by_sqlite(connection) < 5
    connection.close()


def test_a_log_that_was_just_restarted_still_shows_its_old_round(tmp_path: Path) -> None:
    """Nothing new is written until the next commit, so a look in between finds what was."""
    connection = opened(tmp_path / "a.db")
    connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
    before = frames_in(tmp_path / "a.db-wal")

    connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    assert frames_in(tmp_path / "a.db-wal") == before
    connection.close()
