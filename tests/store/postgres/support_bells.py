"""What tests of wake-ups share: a database, who sleeps on it, and a line that can be cut."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import psycopg

from yaoki.store.base import Bell
from yaoki.store.postgres import place
from yaoki.store.postgres.bell import NOTIFY_SLEEPERS, NotifyBell, channel_of
from yaoki.store.postgres.connection import Line, connect
from yaoki.store.postgres.listener import Pace
from yaoki.store.postgres.migrate import migrate
from yaoki.store.postgres.statements import Dialect, quoted
from yaoki.store.sql import qualified


class Ground:
    """A database with our tables in a schema, and what others do there."""

    def __init__(self, url: str, schema: str = "yaoki") -> None:
        self.url, self.schema, self.channel = url, schema, channel_of(schema)
        with closing(self.connect()) as line:
            migrate(line, Dialect(schema))
        self.other = self.connection(autocommit=True)

    def connection(self, **options: Any) -> psycopg.Connection[Any]:
        """Somebody else's."""
        return psycopg.connect(self.url, cursor_factory=psycopg.RawCursor, **options)

    def connect(self, port: int | None = None) -> Line:
        """What a bell listens on, maybe through another port."""
        parts = urlsplit(self.url)
        login, _, _ = parts.netloc.rpartition("@")
        url = parts._replace(
            netloc=f"{login}@{parts.hostname}:{port or parts.port}",
            query="application_name=bell",
        )
        return connect(place.parse(url.geturl()), listening=True)

    def bell(self, port: int | None = None, pace: Pace = Pace()) -> NotifyBell:  # noqa: B008
        return NotifyBell(lambda: self.connect(port), self.schema, lambda: None, pace=pace)

    def ask(self, text: str, *params: Any, on: psycopg.Connection[Any] | None = None) -> list[Any]:
        text = qualified(text, f"{quoted(self.schema)}.")
        cursor = (on or self.other).execute(text.encode(), params)
        return cursor.fetchall() if cursor.description else []

    def notify(self, on: psycopg.Connection[Any] | None = None) -> None:
        """What an enqueue does inside a caller's transaction."""
        self.ask(f"NOTIFY {quoted(self.channel)}", on=on)

    def notify_sleepers(self) -> bool:
        """What an enqueue does after its own commit; was there anybody to wake?"""
        return bool(self.ask(NOTIFY_SLEEPERS.replace(":channel", "$1"), self.channel))

    def sleepers(self) -> int:
        """How many an enqueue would find, without waking them."""
        exists = NOTIFY_SLEEPERS.partition("EXISTS")[2]
        [[sleepers]] = self.ask(exists.replace("SELECT", "SELECT count(*)", 1))
        return int(sleepers)

    def announcements(self) -> list[Any]:
        """Every row of a sleeper, with what differs after each write to it."""
        return self.ask("SELECT sleeper, until, xmin::text, ctid::text FROM yaoki.sleepers")

    def sessions(self) -> list[Any]:
        """Those that listen, and when each was last asked something."""
        return self.ask(
            "SELECT pid, query_start FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name = 'bell'"
        )

    def terminate(self) -> int:
        """Ends every session that listens; how many there were."""
        pids = [pid for pid, _ in self.sessions()]
        for pid in pids:
            self.ask("SELECT pg_terminate_backend($1)", pid)
        return len(pids)


class Sleep:
    """A thread that waits, and says when it was woken."""

    def __init__(self, bell: Bell, timeout: float = 10) -> None:
        self._bell, self._timeout = bell, timeout
        self.rung: bool | None = None
        self.woken_at = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.rung = self._bell.wait(self._timeout)
        self.woken_at = time.monotonic()

    @property
    def lasts(self) -> bool:
        return self._thread.is_alive()

    def delay_after(self, instant: float) -> float:
        """The seconds from then until it was woken."""
        self._thread.join(20)
        assert self.rung, "it was not woken"
        return self.woken_at - instant


class Wire:
    """A way to the server that can fall silent with nobody told, or carry words of its own."""

    def __init__(self, port: int | None) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections = 0
        self._silent_up_to = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def silence(self) -> None:
        """From now on nothing comes through on the connections that there are."""
        self._silent_up_to = self.connections

    def say(self, words: bytes) -> None:
        """To the last client, as if the server had said it."""
        self._sockets[-2].sendall(words)

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with closing(each), suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            server = socket.create_connection(("127.0.0.1", self._port))
            self._sockets += [client, server]
            for ends in ((client, server), (server, client)):
                threading.Thread(
                    target=self._carry, args=(self.connections, *ends), daemon=True
                ).start()

    def _carry(self, number: int, source: socket.socket, target: socket.socket) -> None:
        try:
            while words := source.recv(65_536):
                if number > self._silent_up_to:
                    target.sendall(words)
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


@contextmanager
def wire_to(ground: Ground) -> Iterator[Wire]:
    wire = Wire(urlsplit(ground.url).port)
    yield wire
    wire.close()


def in_child(act: Callable[[], bool]) -> bool:
    """Runs `act` in a forked child; what it said."""
    pid = os.fork()
    if pid == 0:
        code = 2
        signal.alarm(30)
        try:
            code = 0 if act() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
