"""The second experiment: 100 points, and a worker that dies before it can say that it is done."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.databases import ask, execute_all
from tests.support.eventually import eventually
from yaoki import Yaoki

ROOT = Path(__file__).parents[2]


def run_program(app: Yaoki, way: str) -> int:
    command = [sys.executable, "-m", "tests.experiments.points", app.url, way]
    return subprocess.run(command, cwd=ROOT, timeout=30).returncode


@pytest.fixture(autouse=True)
def points(app: Yaoki) -> None:
    """A table in the queue's own database."""
    app.migrate()
    statements = (
        "CREATE TABLE points (account TEXT PRIMARY KEY, balance INTEGER NOT NULL)",
        "INSERT INTO points VALUES ('mai', 0)",
    )
    execute_all(app.store, statements)


def balance(app: Yaoki) -> int:
    [(points,)] = ask(app.store, "SELECT balance FROM points")
    return int(points)


@pytest.mark.parametrize(
    ("way", "total"),
    [("without protection", 200), ("with once", 100), ("with transaction", 100)],
)
def test_points_are_added_once_only_where_they_are_protected(
    app: Yaoki, way: str, total: int
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
    assert balance(app) == total


def test_a_worker_that_dies_after_the_transaction_has_completed_the_job(app: Yaoki) -> None:
    job = app.enqueue("add-points", {"account": "mai"})

    killed = run_program(app, "after transaction")

    done = app.get(job)
    assert killed == -signal.SIGKILL
    assert (done.status, done.attempt, done.errors) == ("completed", 1, ())
    assert balance(app) == 100
