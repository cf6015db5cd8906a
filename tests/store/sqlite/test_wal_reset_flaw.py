"""The WAL-reset flaw itself: what our checkpoints must not meet (docs/decisions/0027).

A checkpoint is stopped between the header and the pages, and another program commits.
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.processes import ROOT
from yaoki.store.sqlite.wal import wal_reset_flaw

COMPILER = shutil.which("cc")
HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or (COMPILER is None and "CI" not in os.environ),
    reason="a library is put before munmap(), with the C compiler, as Linux has it",
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("library") / "stopping.so"
    command = [str(COMPILER), "-shared", "-fPIC", "-o", str(made), str(HERE / "stopping.c")]
    subprocess.run([*command, "-ldl"], check=True)
    return made


class Other:
    """Another program on the file, and what it was told is committed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.connection = self._connect()
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x)")
        self.committed = 0

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    def write(self, rows: int) -> None:
        """Many pages, in one transaction."""
        self.connection.execute("BEGIN IMMEDIATE")
        self.insert_and_commit(rows)

    def insert_and_commit(self, rows: int) -> None:
        for _ in range(rows):
            self.connection.execute("INSERT INTO t (x) VALUES (?)", ["x" * 3_000])
        self.connection.execute("COMMIT")
        self.committed += rows

    def checkpoint(self) -> None:
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()

    def is_sound(self) -> bool:
        """All that was committed is in the file, for one who opens it."""
        with closing(self._connect()) as fresh:
            try:
                ids = fresh.execute("SELECT id FROM t ORDER BY id").fetchall()
                [whole] = fresh.execute("PRAGMA integrity_check(1)").fetchone()
            except sqlite3.DatabaseError:
                return False
        return whole == "ok" and ids == [(number + 1,) for number in range(self.committed)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.db"


@pytest.fixture
def other(path: Path) -> Iterator[Other]:
    made = Other(path)
    made.write(300)
    made.checkpoint()
    yield made
    made.connection.close()


def damaged_by(way: str, other: Other, path: Path, library: Path) -> bool:
    """Is the file damaged when this checkpoint is stopped, and `other` commits meanwhile?"""
    stop = path.with_name("stop")
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.store.sqlite.stopped_checkpoint", way, str(path), str(stop)],
        cwd=ROOT,
        env=os.environ | {"LD_PRELOAD": str(library), "STOP": str(stop)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert program.stdout is not None
        assert program.stdin is not None
        assert program.stdout.readline() == "ready\n"
        other.write(300)
        other.checkpoint()
        if way == "RESTART":
            other.connection.execute("BEGIN IMMEDIATE")
        program.stdin.write("go\n")
        program.stdin.flush()
        eventually(stop.with_suffix(".stopped").exists, within=20)
        # "database is locked" is how it is excluded.
        with suppress(sqlite3.OperationalError):
            other.insert_and_commit(3) if way == "RESTART" else other.write(3)
        stop.with_suffix(".go").touch()
        assert program.stdout.readline() == "done\n"
    finally:
        program.kill()
        program.communicate()
    try:
        for _ in range(300):
            other.write(3)
        other.checkpoint()
        other.write(3)
    except sqlite3.DatabaseError:
        return True
    return not other.is_sound()


def test_a_restart_that_cannot_have_the_lock_meets_it_where_it_is(
    other: Other, path: Path, library: Path
) -> None:
    """So that the next test shows something."""
    assert damaged_by("RESTART", other, path, library) == (wal_reset_flaw() is not None)


def test_ours_do_not(other: Other, path: Path, library: Path) -> None:
    assert not damaged_by("ours", other, path, library)
