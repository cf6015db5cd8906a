"""The PostgreSQL that tests and measurements run on: it ends when they do, and is theirs alone."""

import tempfile
from pathlib import Path

import psycopg
import pytest

from servers.postgres import Server
from tests.support.eventually import eventually
from tests.support.postgres import fresh_database
from tests.support.processes import Processes

STARTS_ONE = """
import sys, time
from servers.postgres import Server
server = Server()
print("at", server.url, server.folder, flush=True)
time.sleep(60)
"""


@pytest.mark.crash
def test_a_server_ends_with_the_process_that_started_it_and_leaves_nothing(
    processes: Processes,
) -> None:
    process = processes.python("-c", STARTS_ONE)
    _, url, folder = process.wait_for_line("at ").split()
    with psycopg.connect(url) as connection:
        process.kill()

        eventually(lambda: not Path(folder).exists(), within=20)

        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


@pytest.mark.parametrize("signal", ["INT", "QUIT"])
def test_a_server_that_was_stopped_or_crashed_starts_again_with_what_it_had(signal: str) -> None:
    server = Server()
    try:
        with psycopg.connect(server.url) as connection:
            connection.execute("CREATE TABLE kept (n int)")
        server.stop(signal)
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(server.url)
        server.start()

        with psycopg.connect(server.url) as connection:
            assert connection.execute("SELECT count(*) FROM kept").fetchall() == [(0,)]
    finally:
        server.delete()


def test_a_server_that_cannot_start_says_why_and_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)

        with pytest.raises(RuntimeError, match="nonsense"):
            Server(folder=Path(folder), nonsense="1")

        assert list(Path(folder).iterdir()) == []


def test_every_fresh_database_has_our_tables_and_nothing_else_in_it() -> None:
    for _ in range(2):
        with fresh_database() as url, psycopg.connect(url) as connection:
            assert connection.execute("SELECT count(*) FROM yaoki.jobs").fetchall() == [(0,)]
            connection.execute("INSERT INTO yaoki.paused VALUES ('queue', 'a', 1)")
