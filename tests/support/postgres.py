"""Databases on PostgreSQL for the tests: a fresh one for whoever asks.

The server is one of this process's own, started when it is first needed; with YAOKI_TEST_POSTGRES
it is another: the URL of a role that may create databases, or the folder of the binaries to start.
"""

import itertools
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

import psycopg

from servers.postgres import Installation, Server, installation
from yaoki.store.postgres.store import PostgresStore

VARIABLE = "YAOKI_TEST_POSTGRES"
NAME_ONE = f"name a server, or the folder of its binaries, in {VARIABLE}"

OURS = {"schema", "wake", "listen", "pool", "prepared", "durability"}
"""Parameters of a URL that are yaoki's; the others are libpq's."""

FAST = {"fsync": "off", "full_page_writes": "off", "max_wal_size": "256MB"}
"""Safe as long as the machine stays up: what is lost in a crash of the server is not lost by it."""


class Databases:
    """Makes databases on a server, and drops them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = f"yaoki_test_{secrets.token_hex(4)}"
        self._numbers = itertools.count(1)
        self._there: set[str] = set()
        self._left: list[str] = []
        self._connection = psycopg.connect(url, autocommit=True)
        self._template: str | None = None

    def fresh(self) -> str:
        """The URL of a new database that has our tables and nothing in them."""
        if self._template is None:
            template = self.empty()
            store = PostgresStore(template)
            store.migrate()
            store.close()
            self._template = template
        return self.copy(self._template)

    def empty(self) -> str:
        """The URL of a new database with nothing in it."""
        return self.copy(with_database(self._url, "template0"))

    def copy(self, url: str, to: str | None = None) -> str:
        """A copy of a database that nobody is connected to; in the place of `to`, if given."""
        self._drop_those_left()
        if to is None:
            to = with_database(self._url, f"{self._prefix}_{next(self._numbers)}")
        else:
            self._drop(to)
        self._execute(f'CREATE DATABASE "{database_of(to)}" TEMPLATE "{database_of(url)}"')
        self._there.add(to)
        return to

    def leave(self, url: str) -> None:
        """It is not needed any more.

        It is dropped when the next one is made: PostgreSQL waits 100 ms for a connection that is
        just being closed, and by then all of them are.
        """
        self._left.append(url)

    def close(self) -> None:
        """Drop all that is there."""
        for url in list(self._there):
            self._drop(url)
        self._connection.close()

    def _drop_those_left(self) -> None:
        while self._left:
            self._drop(self._left.pop())

    def _drop(self, url: str) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{database_of(url)}" WITH (FORCE)')
        self._there.discard(url)

    def _execute(self, statement: str) -> None:
        if self._connection.closed:
            self._connection = psycopg.connect(self._url, autocommit=True)
        self._connection.execute(statement.encode())


def database_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def with_database(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    return _joined(urlsplit(url)._replace(path=f"/{name}"))


def for_libpq(url: str) -> str:
    """The URL of a store without what only yaoki understands."""
    parts = urlsplit(url)
    left = [pair for pair in parse_qsl(parts.query) if pair[0] not in OURS]
    return _joined(parts._replace(query=urlencode(left, quote_via=quote)))


def _is_url(text: str) -> bool:
    return text.startswith(("postgresql://", "postgres://"))


def _joined(parts: SplitResult) -> str:
    """With its two slashes although no host follows them, which geturl() leaves out."""
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}"


class _Running(NamedTuple):
    databases: Databases
    server: Server | None


_running: _Running | None = None


def description() -> str:
    """Which server the tests use, in one line and without its password."""
    said = os.environ.get(VARIABLE, "")
    if _is_url(said):
        parts = urlsplit(said)
        return f"PostgreSQL at {parts.hostname or 'a socket'}, port {parts.port or 5432}"
    try:
        found = Installation(Path(said), said) if said else installation()
        return f"PostgreSQL {found.version} of {found.origin}"
    except OSError as error:
        return f"{error}; or {NAME_ONE}"


def databases() -> Databases:
    """Those of this process's server, which is started when it is first asked for."""
    global _running
    if _running is None:
        said = os.environ.get(VARIABLE, "")
        if _is_url(said):
            _running = _Running(Databases(said), None)
        else:
            try:
                server = Server(Path(said) if said else None, **FAST)
            except FileNotFoundError as error:
                raise RuntimeError(f"{error}; or {NAME_ONE}") from error
            _running = _Running(Databases(server.url), server)
    return _running.databases


def end() -> None:
    """End what `databases` began."""
    global _running
    if _running is not None:
        _running.databases.close()
        if _running.server is not None:
            _running.server.delete()
        _running = None


@contextmanager
def fresh_database(*, migrated: bool = True) -> Iterator[str]:
    """The URL of a database of the test's own: with our tables, or with nothing in it."""
    made = databases()
    url = made.fresh() if migrated else made.empty()
    try:
        yield url
    finally:
        made.leave(url)
