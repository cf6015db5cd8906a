"""Checkpoints run beside no other writer: older SQLites lose commits then (the WAL-reset flaw)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.sqlite.test_log_length import SHORT, log_of, write_much
from tests.support.databases import ask, assert_intact
from tests.support.eventually import eventually
from tests.support.processes import Processes
from yaoki import Yaoki
from yaoki.store.sqlite import callers
from yaoki.store.sqlite.checkpoint import Checkpoints
from yaoki.store.sqlite.connection import connect
from yaoki.store.sqlite.place import Place
from yaoki.store.sqlite.wal import CHECKPOINT_AT, FAR_BEHIND, frames_in, wal_reset_flaw

FIXED = [(3, 44, 6), (3, 44, 9), (3, 50, 7), (3, 51, 3), (3, 52, 0), (3, 53, 4), (4, 0, 0)]
FLAWED = [(3, 34, 0), (3, 40, 1), (3, 44, 5), (3, 45, 0), (3, 50, 6), (3, 51, 0), (3, 51, 2)]


@pytest.mark.parametrize("version", FIXED)
def test_a_fixed_sqlite_is_known(version: tuple[int, int, int]) -> None:
    assert wal_reset_flaw(version) is None


@pytest.mark.parametrize("version", FLAWED)
def test_an_sqlite_with_the_flaw_is_told_with_what_to_do(version: tuple[int, int, int]) -> None:
    told = wal_reset_flaw(version)

    assert told is not None
    assert told.startswith(f"SQLite {'.'.join(map(str, version))} can lose commits")
    assert "wal_autocheckpoint=0" in told
    assert "3.51.3" in told
    assert "\n" not in told


@pytest.fixture
def writer(app: Yaoki, path: Path) -> Yaoki:
    """An app with something in the log, and no checkpoint due."""
    write_much(app, 4)
    assert 100 < frames_in(log_of(path)) < CHECKPOINT_AT
    return app


def test_nothing_is_written_back_while_another_program_has_the_write_lock(
    writer: Yaoki, path: Path, processes: Processes
) -> None:
    """SQLite's RESTART would go on without the lock, as PASSIVE: that is what may lose commits."""
    program = processes.python("-m", "tests.store.sqlite.hold_the_lock", str(path), "60")
    program.wait_for_line("holding")
    before = path.read_bytes()

    with closing(connect(path, Place(path))) as connection:
        Checkpoints(path, Place(path)).run(connection)

    assert path.read_bytes() == before


def test_a_commit_that_comes_between_is_left_to_the_next_checkpoint(
    writer: Yaoki, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When all is written back and somebody is faster than the wait for readers."""
    checkpoints = Checkpoints(path, Place(path))
    modes = []
    checkpoint = checkpoints._checkpoint

    def noted(mode: str) -> tuple[int, int, int]:
        modes.append(mode)
        return checkpoint(mode)

    monkeypatch.setattr(checkpoints, "_checkpoint", noted)
    with closing(connect(path, Place(path))) as connection:
        length = checkpoints._write_back(connection)
        writer.enqueue("mail", {"text": "x" * 3_000})
        assert length is not None
        assert not checkpoints._start_anew(connection, length)
    checkpoints.close()

    assert modes == ["PASSIVE"]


def test_a_checkpoint_that_has_lost_the_write_lock_copies_nothing(
    writer: Yaoki, path: Path, processes: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody writes at the last moment, another keeps the lock: RESTART goes on as PASSIVE."""
    checkpoints = Checkpoints(path, Place(path))
    checkpoint, answers = checkpoints._checkpoint, []

    def disturbed(mode: str) -> tuple[int, int, int]:
        if mode == "RESTART":
            writer.enqueue("mail", {"text": "x" * 9_000})
            program = processes.python("-m", "tests.store.sqlite.hold_the_lock", str(path), "60")
            program.wait_for_line("holding")
        answers.append(checkpoint(mode))
        return answers[-1]

    monkeypatch.setattr(checkpoints, "_checkpoint", disturbed)
    with closing(connect(path, Place(path))) as connection:
        checkpoints.run(connection)
    checkpoints.close()

    [_, length, written] = answers[-1]
    assert length > 0
    assert written == 0


def test_nothing_is_lost_while_four_programs_write_the_log_back_all_the_time(
    app: Yaoki, path: Path, processes: Processes
) -> None:
    program = ("-m", "tests.store.sqlite.checkpoint_often", app.url)
    programs = [processes.python(*program) for _ in range(4)]
    assert [one.wait() for one in programs] == [0] * 4, [one.output for one in programs]

    made = sum(int(one.lines[-1]) for one in programs)
    assert ask(path, "SELECT count(*) FROM yaoki_jobs") == [(made,)]
    assert_intact(path)


def test_the_log_of_callers_who_only_use_their_own_connection_stays_short(
    app: Yaoki, path: Path
) -> None:
    """Theirs checkpoint no more, or late; so the process's own does it for them."""
    longest = 0
    with closing(sqlite3.connect(path, timeout=20)) as mine:
        for _ in range(30):
            with app.on(mine):
                app.enqueue_many("mail", [{"text": "x" * 3_000}] * 250)
            mine.commit()
            longest = max(longest, log_of(path).stat().st_size)

    assert longest < SHORT


@pytest.mark.parametrize("flaw", ["it has it", None])
def test_a_callers_connection_checkpoints_late_where_that_can_lose_commits(
    app: Yaoki, path: Path, flaw: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "wal_reset_flaw", lambda: flaw)

    def pages(connection: sqlite3.Connection) -> int:
        [pages] = connection.execute("PRAGMA wal_autocheckpoint").fetchone()
        return int(pages)

    with closing(sqlite3.connect(path)) as mine, closing(sqlite3.connect(path)) as without:
        without.execute("PRAGMA wal_autocheckpoint = 0")
        before = pages(mine)
        for connection in (mine, without):
            with app.on(connection):
                app.enqueue("mail")
            connection.commit()

        assert pages(mine) == (before if flaw is None else FAR_BEHIND)
        assert pages(without) == 0


def test_a_log_is_started_anew_although_there_is_always_somebody_who_reads(
    app: Yaoki, path: Path, processes: Processes
) -> None:
    """Readers that overlap, in another process, as those of a dashboard."""
    program = processes.python("-m", "tests.store.sqlite.read_all_the_time", app.url)
    program.wait_for_line("reading")
    write_much(app, 12)

    def started_anew() -> bool:
        app.enqueue("mail")
        return frames_in(log_of(path)) < CHECKPOINT_AT

    eventually(started_anew, within=20)
