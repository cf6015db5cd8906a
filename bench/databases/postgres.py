"""PostgreSQL: databases of one server, which waits for the disk as it does by default."""

import os
import secrets
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import ClassVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit

import psycopg

from bench.figures import NotMeasured
from servers.postgres import Installation, Server, installation

VARIABLE = "YAOKI_TEST_POSTGRES"

_SETTINGS = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers")


class PostgresDatabases:
    """Databases of the server that a URL leads to, as a role that may make them."""

    store: ClassVar[str] = "postgres"
    writers: ClassVar[int] = 2

    def __init__(self, url: str, origin: str) -> None:
        self._url = url
        self._prefix = f"yaoki_bench_{secrets.token_hex(4)}"
        self._numbers = count(1)
        self._there: set[str] = set()
        self._connection = psycopg.connect(conninfo_of(url), autocommit=True)
        self.facts: dict[str, object] = {
            "postgres": self._setting("server_version"),
            "of": origin,
            "psycopg": f"{psycopg.__version__} {psycopg.pq.__impl__}",
            **{name: self._setting(name) for name in _SETTINGS},
        }

    def new(self) -> str:
        return self._create("template0")

    def drop(self, url: str) -> None:
        self._execute(f'DROP DATABASE "{_name_of(url)}" WITH (FORCE)')
        self._there.discard(url)

    def settle(self, url: str) -> None:
        """Dead rows away, statistics true, and written where the next checkpoint would."""
        with psycopg.connect(conninfo_of(url), autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")
        self._checkpoint()

    @contextmanager
    def copied(self, original: str) -> Iterator[str]:
        url = self._create(_name_of(original))
        self._checkpoint()
        try:
            yield url
        finally:
            self.drop(url)

    def close(self) -> None:
        for url in list(self._there):
            self.drop(url)
        self._connection.close()

    def transactions(self, url: str) -> int:
        [(ended,)] = self._connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = %s",
            (_name_of(url),),
        )
        return int(ended)

    def _create(self, template: str) -> str:
        url = _with_database(self._url, f"{self._prefix}_{next(self._numbers)}")
        self._execute(f'CREATE DATABASE "{_name_of(url)}" TEMPLATE "{template}"')
        self._there.add(url)
        return url

    def _checkpoint(self) -> None:
        # Not every role may; then a checkpoint may come while something is measured.
        with suppress(psycopg.errors.InsufficientPrivilege):
            self._execute("CHECKPOINT")

    def _setting(self, name: str) -> str:
        [(value,)] = self._connection.execute("SELECT current_setting(%s)", (name,))
        return str(value)

    def _execute(self, statement: str) -> None:
        self._connection.execute(statement.encode())


@contextmanager
def postgres_databases(folder: Path) -> Iterator[PostgresDatabases]:
    """Of the server that YAOKI_TEST_POSTGRES names, or of one of our own, whose files are here.

    That variable is the URL of a server, or a folder of binaries to start one from.
    """
    said = os.environ.get(VARIABLE, "")
    if "://" in said:
        with closing(PostgresDatabases(said, VARIABLE)) as databases:
            yield databases
        return
    # A server that may not run as root runs as somebody else, who must come this far.
    folder.chmod(0o711)
    try:
        found = Installation(Path(said), said) if said else installation()
        server = Server(found.binaries, folder)
    except (OSError, RuntimeError) as problem:
        raise NotMeasured(str(problem)) from problem
    try:
        with closing(PostgresDatabases(server.url, found.origin)) as databases:
            yield databases
    finally:
        server.delete()


def conninfo_of(url: str) -> str:
    """The URL as libpq takes it: without what only yaoki understands."""
    parts = urlsplit(url)
    theirs = [(name, value) for name, value in parse_qsl(parts.query) if name != "durability"]
    return _joined(parts._replace(query=urlencode(theirs)))


def _name_of(url: str) -> str:
    return urlsplit(url).path.removeprefix("/")


def _with_database(url: str, name: str) -> str:
    return _joined(urlsplit(url)._replace(path=f"/{name}"))


def _joined(parts: SplitResult) -> str:
    """With its two slashes although no host may follow them, which urlunsplit leaves out."""
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{parts.netloc}{parts.path}{query}"
