"""The databases that are used up: looked at behind yaoki's back, stopped, locked, cut off."""

import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg

from servers.postgres import Server
from yaoki import Yaoki

Rows = list[tuple[Any, ...]]

OWN_TABLES = (
    "CREATE TABLE chaos_effects (job BIGINT NOT NULL, name TEXT NOT NULL)",
    "CREATE TABLE chaos_pulse (beats BIGINT NOT NULL)",
    "INSERT INTO chaos_pulse VALUES (0)",
)

MOVES = "job BIGINT, old TEXT, new TEXT, held BIGINT, lease BIGINT"

WATCH = {
    "sqlite": (
        f"CREATE TABLE chaos_moves (number INTEGER PRIMARY KEY, {MOVES})",
        """
        CREATE TRIGGER chaos_moved AFTER UPDATE ON yaoki_jobs
        WHEN OLD.status <> NEW.status OR OLD.lease <> NEW.lease OR NEW.status = 'completed'
        BEGIN
            INSERT INTO chaos_moves (job, old, new, held, lease)
            VALUES (OLD.id, OLD.status, NEW.status, OLD.lease, NEW.lease);
        END
        """,
    ),
    "postgres": (
        f"CREATE TABLE chaos_moves (number BIGSERIAL PRIMARY KEY, {MOVES})",
        """
        CREATE FUNCTION chaos_moved() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO public.chaos_moves (job, old, new, held, lease)
            VALUES (OLD.id, OLD.status, NEW.status, OLD.lease, NEW.lease);
            RETURN NULL;
        END $$
        """,
        """
        CREATE TRIGGER chaos_moved AFTER UPDATE ON yaoki.jobs FOR EACH ROW
        WHEN (OLD.status <> NEW.status OR OLD.lease <> NEW.lease OR NEW.status = 'completed')
        EXECUTE FUNCTION chaos_moved()
        """,
    ),
}
"""Writes down every move of a job, whoever makes it, and every completion of a completed one."""


IMPOSSIBLE = {
    "it runs without what a rescue needs": """
        SELECT id FROM yaoki.jobs WHERE status = 'running'
            AND (lease_expires_at IS NULL OR lease_for IS NULL OR worker_id IS NULL OR attempt < 1)
    """,
    "it waits with somebody's name on it": """
        SELECT id FROM yaoki.jobs WHERE status = 'pending'
            AND (worker_id IS NOT NULL OR claimed_at IS NOT NULL OR lease_expires_at IS NOT NULL)
    """,
    "it waits without an attempt left": """
        SELECT id FROM yaoki.jobs WHERE status = 'pending' AND attempt >= max_attempts
    """,
    "it completed with an error, or without a result": """
        SELECT id FROM yaoki.jobs WHERE status = 'completed'
            AND (error IS NOT NULL OR result IS NULL)
    """,
    "an attempt of a job that is not there": """
        SELECT job_id FROM yaoki.attempts WHERE job_id NOT IN (SELECT id FROM yaoki.jobs)
    """,
    "an attempt that completed is told twice": """
        SELECT job_id FROM yaoki.attempts AS ended JOIN yaoki.jobs AS job ON job.id = job_id
        WHERE job.status = 'completed' AND ended.lease = job.lease - 1
    """,
}


class Database(ABC):
    """One database with yaoki's tables, and ours beside them."""

    store: str
    url: str

    def prepare(self) -> None:
        app = Yaoki(self.url)
        app.migrate()
        app.close()
        for statement in (*OWN_TABLES, *WATCH[self.store]):
            self.ask(statement)

    @abstractmethod
    def ask(self, statement: str) -> Rows:
        """The rows of one statement, if it has any."""

    @abstractmethod
    def beats(self) -> Iterator[bool]:
        """Write something, each time it is asked: was it possible soon?"""

    @abstractmethod
    def damage(self) -> list[str]:
        """What is broken in it."""

    @abstractmethod
    def suffer(self, what: str, length: float) -> None:
        """Let it have this trouble, for so many seconds."""

    def of(self, statement: str) -> str:
        """The statement with the names that yaoki's tables have here."""
        return statement

    def inconsistencies(self) -> list[str]:
        """What is in the rows that cannot be."""
        return [
            f"{what}: job {job_id}"
            for what, statement in IMPOSSIBLE.items()
            for (job_id,) in self.ask(self.of(statement))
        ]


class SQLiteDatabase(Database):
    store = "sqlite"

    def __init__(self, folder: Path) -> None:
        self._path = folder / "jobs.db"
        self.url = f"sqlite:///{self._path}"

    def ask(self, statement: str) -> Rows:
        with closing(self._connected()) as connection:
            return connection.execute(statement).fetchall()

    def beats(self) -> Iterator[bool]:
        with closing(self._connected(timeout=0.25)) as connection:
            while True:
                try:
                    connection.execute("UPDATE chaos_pulse SET beats = beats + 1")
                    yield True
                except sqlite3.OperationalError:
                    yield False

    def damage(self) -> list[str]:
        return [str(said) for (said,) in self.ask("PRAGMA integrity_check") if said != "ok"]

    def suffer(self, what: str, length: float) -> None:
        """lock: nobody else can write. hold: nothing that is written from now on can be moved from
        the log into the file."""
        with closing(self._connected()) as connection:
            connection.execute({"lock": "BEGIN IMMEDIATE", "hold": "BEGIN"}[what])
            connection.execute("SELECT beats FROM chaos_pulse").fetchall()
            time.sleep(length)
            connection.execute("ROLLBACK")

    def of(self, statement: str) -> str:
        return statement.replace("yaoki.", "yaoki_")

    def _connected(self, timeout: float = 60) -> sqlite3.Connection:
        return sqlite3.connect(
            self._path, isolation_level=None, timeout=timeout, check_same_thread=False
        )


class PostgresDatabase(Database):
    store = "postgres"

    def __init__(self, server: Server) -> None:
        self._server, self.url = server, server.url
        self._turn = threading.Lock()

    def ask(self, statement: str) -> Rows:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def beats(self) -> Iterator[bool]:
        connection = None
        while True:
            try:
                connection = connection or psycopg.connect(
                    self.url, autocommit=True, connect_timeout=2
                )
                connection.execute("UPDATE chaos_pulse SET beats = beats + 1")
                yield True
            except psycopg.OperationalError:
                connection = None
                yield False

    def damage(self) -> list[str]:
        """Of the indexes, where the extension for that is there; and of what rows refer to."""
        problems = []
        with suppress(psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile):
            self.ask("CREATE EXTENSION IF NOT EXISTS amcheck")
            for (name,) in self.ask(_BTREES):
                try:
                    self.ask(f"SELECT bt_index_check('{name}', true)")
                except psycopg.Error as error:
                    problems.append(str(error))
        return problems

    def suffer(self, what: str, length: float) -> None:
        """restart: as after a crash, and down so long. hang-up: all sessions end."""
        if what == "hang-up":
            with suppress(psycopg.OperationalError):
                self.ask(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
                )
            return
        with self._turn:
            self._server.stop("QUIT")
            time.sleep(length)
            self._server.start()


_BTREES = """
    SELECT c.oid::regclass FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indexrelid
    JOIN pg_am AS a ON a.oid = c.relam AND a.amname = 'btree'
    JOIN pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = 'yaoki'
    WHERE c.relpersistence = 'p'
"""


@contextmanager
def open_database(store: str, folder: Path) -> Iterator[Database]:
    """A database of this kind, gone afterwards."""
    if store == "sqlite":
        yield SQLiteDatabase(folder)
        return
    server = Server(max_connections="300")
    try:
        yield PostgresDatabase(server)
    finally:
        server.delete()
