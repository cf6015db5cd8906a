"""The write-ahead log stays short: nobody else writes it back (fault 129)."""

import sqlite3
from pathlib import Path

from tests.support.eventually import eventually
from yaoki import Yaoki
from yaoki.store.sqlite.wal import CHECKPOINT_AT, LONGEST_LOG, frames_in

PAGE = 4_096
SHORT = 4 * CHECKPOINT_AT * PAGE
"""Bytes: a log at which a checkpoint is due, and what may come while it is on its way."""


def write_much(app: Yaoki, times: int = 30) -> None:
    """About 30 MB in the log, if nobody wrote it back."""
    for _ in range(times):
        app.enqueue_many("mail", [{"text": "x" * 3_000}] * 250)


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def test_the_log_stays_short_while_much_is_written(app: Yaoki, path: Path) -> None:
    longest = 0
    for _ in range(30):
        write_much(app, 1)
        longest = max(longest, log_of(path).stat().st_size)

    assert longest < SHORT
    assert path.stat().st_size > 10 * 2**20


def test_the_log_stays_short_when_each_commit_is_small(app: Yaoki, path: Path) -> None:
    for _ in range(1_500):
        app.enqueue("mail", {"text": "x" * 30_000})

    assert path.stat().st_size > 40 * 10**6
    assert log_of(path).stat().st_size < SHORT


def test_the_log_of_a_file_that_is_named_by_a_link_stays_short(tmp_path: Path) -> None:
    """SQLite follows the link, and keeps the log beside the file itself."""
    (tmp_path / "data").mkdir()
    (tmp_path / "jobs.db").symlink_to(tmp_path / "data" / "real.db")
    app = Yaoki(f"sqlite:///{tmp_path / 'jobs.db'}")

    write_much(app)

    assert log_of(tmp_path / "data" / "real.db").stat().st_size < SHORT
    app.close()


def test_a_slow_reader_makes_the_log_grow_and_then_it_is_started_anew(
    app: Yaoki, path: Path
) -> None:
    """An open transaction of somebody else's stops every checkpoint, but no writer (fact F13)."""
    app.enqueue("mail")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM yaoki_jobs").fetchone()
    write_much(app, 20)
    grown = frames_in(log_of(path))
    assert grown > 2 * CHECKPOINT_AT

    reader.execute("COMMIT")
    reader.close()

    def started_anew() -> bool:
        app.enqueue("mail")
        return frames_in(log_of(path)) < CHECKPOINT_AT

    eventually(started_anew, within=10)


def test_a_log_that_had_to_grow_is_cut_when_it_starts_anew(app: Yaoki, path: Path) -> None:
    app.enqueue("mail")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM yaoki_jobs").fetchone()
    while log_of(path).stat().st_size < LONGEST_LOG + 8 * 2**20:
        app.enqueue_many("mail", [{"text": "x" * 100_000}] * 100)
    reader.close()

    def cut() -> bool:
        app.enqueue("mail")
        return log_of(path).stat().st_size <= LONGEST_LOG

    eventually(cut, within=10)


def test_our_own_readers_keep_no_transaction_open(app: Yaoki, path: Path) -> None:
    app.enqueue_many("mail", [{"text": "x" * 3_000}] * 1_000)

    app.jobs(limit=500)
    app.queues()
    bell = app.store.bell()
    bell.wait(0.01)

    mine = sqlite3.connect(path, timeout=5)
    [busy, _, _] = mine.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert busy == 0
    mine.close()
    bell.close()
