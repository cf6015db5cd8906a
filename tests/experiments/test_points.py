"""The second experiment: 100 points, and a worker that dies before it can say that it is done."""

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from yaoki import Yaoki

ROOT = Path(__file__).parents[2]


def run_program(app: Yaoki, way: str) -> int:
    command = [sys.executable, "-m", "tests.experiments.points", app.url, way]
    return subprocess.run(command, cwd=ROOT, timeout=30).returncode


@pytest.fixture
def balance_file(app: Yaoki, tmp_path: Path) -> Path:
    file = tmp_path / "jobs.db"
    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE points (account TEXT PRIMARY KEY, balance INTEGER NOT NULL)")
    connection.execute("INSERT INTO points VALUES ('mai', 0)")
    connection.commit()
    connection.close()
    return file


def balance_in(file: Path) -> int:
    connection = sqlite3.connect(file)
    try:
        [balance] = connection.execute("SELECT balance FROM points").fetchone()
        return int(balance)
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("way", "points"),
    [("without protection", 200), ("with once", 100), ("with transaction", 100)],
)
def test_points_are_added_once_only_where_they_are_protected(
    app: Yaoki, balance_file: Path, way: str, points: int
) -> None:
    job = app.enqueue("add-points", {"account": "mai"})

    killed = run_program(app, way)
    held = app.get(job)
    eventually(app.rescue, within=5)
    ended = run_program(app, way)

    done = app.get(job)
    assert (killed, ended) == (-signal.SIGKILL, 0)
    assert held.status == "running"
    assert (done.status, done.attempt) == ("completed", 2)
    assert [one.error for one in done.errors] == [f"lease lost (worker {held.worker_id})"]
    assert balance_in(balance_file) == points


def test_a_worker_that_dies_after_the_transaction_has_completed_the_job(
    app: Yaoki, balance_file: Path
) -> None:
    job = app.enqueue("add-points", {"account": "mai"})

    killed = run_program(app, "after transaction")

    done = app.get(job)
    assert killed == -signal.SIGKILL
    assert (done.status, done.attempt, done.errors) == ("completed", 1, ())
    assert balance_in(balance_file) == 100
