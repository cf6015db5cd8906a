"""A server of the tests' own, with which anything may be done, and what is done with it."""

import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from servers.postgres import Server
from tests.support import postgres
from tests.support.eventually import eventually
from yaoki.store import Store
from yaoki.store.op import Op, Statement

Admin = psycopg.Connection[tuple[Any, ...]]


def start_server(**settings: str) -> Server:
    """Of the binaries that the other tests use."""
    return Server(binaries(), **(postgres.FAST | settings))


def binaries() -> Path | None:
    """The folder that was named for all tests; None: those that are found."""
    said = os.environ.get(postgres.VARIABLE, "")
    return None if not said or "://" in said else Path(said)


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """In the block none of its processes moves: it takes everything, and answers nothing."""
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    with psycopg.connect(server.url) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity").fetchall()
    # The first one first, so that it makes no more of the others.
    pids = [postmaster, *(pid for (pid,) in rows)]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in reversed(pids):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class Trouble:
    """One database of that server, and the hand that makes trouble in it."""

    def __init__(self, server: Server, url: str) -> None:
        self.server, self.url = server, url
        self.name = postgres.database_of(url)
        self.admin: Admin = psycopg.connect(
            postgres.with_database(url, "postgres"), autocommit=True
        )
        self._roles: list[str] = []

    def role(self, **settings: str) -> "Role":
        """A role of no privileges but those that are granted in the test."""
        made = Role(self, f"mai_{secrets.token_hex(4)}")
        self._roles.append(made.name)
        self.admin.execute(f"CREATE ROLE {made.name} LOGIN".encode())
        made.set(**settings)
        return made

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """As superuser, in this database."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def sessions(self, user: str | None = None) -> list[int]:
        """The process ids of the sessions in this database, except those that make trouble."""
        return [
            pid
            for (pid,) in self.admin.execute(
                "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid() "
                "AND (%s::text IS NULL OR usename = %s)",
                [self.name, user, user],
            )
        ]

    def terminate_all(self) -> int:
        """End every session in this database, and wait until they are gone."""
        pids = self.sessions()
        for pid in pids:
            self.admin.execute("SELECT pg_terminate_backend(%s)", [pid])
        eventually(lambda: not set(pids) & set(self.sessions()))
        return len(pids)

    def end(self) -> None:
        if self.admin.closed:
            return
        for name in self._roles:
            with suppress(psycopg.Error):
                self.run(f"DROP OWNED BY {name}")
            self.admin.execute(f"DROP ROLE {name}".encode())
        self.admin.close()


class Role:
    """A role, and the URL by which it connects."""

    def __init__(self, trouble: Trouble, name: str) -> None:
        self._trouble, self.name = trouble, name

    @property
    def url(self) -> str:
        return self._trouble.url.replace("//postgres@", f"//{self.name}@")

    def grant_all(self) -> "Role":
        """All that yaoki needs when the tables are there."""
        self._trouble.run(
            f"GRANT USAGE ON SCHEMA yaoki TO {self.name};"
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA yaoki TO {self.name};"
            f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA yaoki TO {self.name}"
        )
        return self

    def set(self, **settings: str) -> None:
        """For the sessions that it begins from now on."""
        for name, value in settings.items():
            self._trouble.admin.execute(f"ALTER ROLE {self.name} SET {name} = {value}".encode())

    def reset(self) -> None:
        self._trouble.admin.execute(f"ALTER ROLE {self.name} RESET ALL".encode())


class Proxy:
    """Between a store and its server: passes everything on, until it is told not to."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self.server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = parts._replace(netloc=f"{parts.username}@127.0.0.1:{port}").geturl()
        self.swallows = self.answers_nobody = False
        self.cut_after: bytes | None = None
        """When a client has said this, its connection is cut as soon as the server answers."""
        self.dark_after: bytes | None = None
        """When a client has said this, all goes dark before the answer gets through."""
        self._passages: list[_Passage] = []
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Break every connection."""
        for passage in list(self._passages):
            passage.end()

    def go_dark(self) -> None:
        """As when a network has lost all it knew: connections are there, and nothing comes through.

        After `heal` new ones work; those that were there then never do again.
        """
        self.dark_after = None
        self.answers_nobody = True
        for passage in list(self._passages):
            passage.mute = True

    @property
    def dark(self) -> bool:
        return self.answers_nobody

    def heal(self) -> None:
        """From now on all is well again, for new connections."""
        self.swallows = self.answers_nobody = False
        self.cut_after = None

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()
        self.cut()
        for passage in self._passages:
            passage.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._passages.append(_Passage(self, client))


class _Passage:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy, self._client = proxy, client
        self._server = socket.create_connection(proxy.server)
        self.mute, self._doomed = proxy.answers_nobody, threading.Event()
        self._threads = [
            threading.Thread(target=carry, name="proxy", daemon=True)
            for carry in (self._to_the_server, self._to_the_client)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        for one in (self._client, self._server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(10)
        self._client.close()
        self._server.close()

    def _to_the_server(self) -> None:
        while data := _received(self._client):
            word = self._proxy.cut_after
            if word is not None and word in data:
                self._doomed.set()
            if not self.mute and not self._proxy.swallows:
                _send(self._server, data)
            if (last := self._proxy.dark_after) is not None and last in data:
                self._proxy.go_dark()
        self.end()

    def _to_the_client(self) -> None:
        while (data := _received(self._server)) and not self._doomed.is_set():
            if not self.mute and not self._proxy.swallows:
                _send(self._client, data)
        self.end()


def _received(one: socket.socket) -> bytes:
    try:
        return one.recv(65_536)
    except OSError:
        return b""


def _send(one: socket.socket, data: bytes) -> None:
    with suppress(OSError):
        one.sendall(data)


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    made = Proxy(url)
    yield made
    made.close()


class Asked(Op[list[tuple[Any, ...]]]):
    """The rows of any statements, in one transaction; `then` is called behind each of them."""

    __slots__ = ("_texts", "_then")

    def __init__(self, *texts: str, then: Callable[[int], object] = lambda place: None) -> None:
        self._texts, self._then = texts, then

    def steps(self) -> Any:
        rows: list[tuple[Any, ...]] = []
        for place, text in enumerate(self._texts):
            rows += (yield Statement("asked", {}, text=text)).rows
            self._then(place)
        return rows


def settle_down(store: Store) -> None:
    """Until the store answers again."""
    eventually(lambda: _answers(store), within=20)


def _answers(store: Store) -> bool:
    try:
        return store.run(Asked("SELECT 1::bigint")) == [(1,)]
    except Exception:
        return False
