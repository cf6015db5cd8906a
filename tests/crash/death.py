"""Dying at one moment of what a process does with its database: the moments are numbered.

On SQLite they are before and after each statement, BEGIN and COMMIT included. On PostgreSQL several
statements may travel together: a moment is before each of them, when those before it have reached
the server; behind the last one, when there is no answer yet; and when the answers are there.
"""

import os
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from typing import Any

import psycopg

from yaoki.store.postgres.connection import bounded
from yaoki.store.postgres.wire import Wire


class Death:
    """Comes at the moment of this number; none is counted while it sleeps."""

    def __init__(self, fatal: int, log: int) -> None:
        self._fatal, self._log, self._moments = fatal, log, count(1)
        self.sleeps = False

    def around(self, run: Callable[..., Any], statement: str, *rest: Any) -> Any:
        self.moment("before", statement)
        answer = run(statement, *rest)
        self.moment("after", statement)
        return answer

    def among(self, statement: str, many: Iterable[Any]) -> Iterator[Any]:
        """The parameters of many runs of a statement, with a moment before each run."""
        for params in many:
            self.moment("amid", statement)
            yield params

    def moment(self, when: str, statement: str, pause: float = 0) -> None:
        if not self.sleeps and next(self._moments) == self._fatal:
            if threading.active_count() > 1:
                # What another thread knows by now, it may tell.
                pause = max(pause, 0.02)
            threading.Event().wait(pause)
            os.write(self._log, f"{when} {statement}".encode())
            os.kill(os.getpid(), signal.SIGKILL)


def make_mortal(death: Death) -> None:
    """Whatever this process does with a database from now on may be the last."""
    sqlite3.connect = partial(sqlite3.connect, factory=_mortal_sqlite(death))
    _make_psycopg_mortal(death)
    _make_wires_mortal(death)


def _mortal_sqlite(death: Death) -> type[sqlite3.Connection]:
    class Mortal:
        def execute(self, statement: str, *rest: Any) -> Any:
            return death.around(super().execute, statement, *rest)  # type: ignore[misc]

        def executemany(self, statement: str, many: Iterable[Any]) -> Any:
            among = death.among(statement, many)
            return death.around(super().executemany, statement, among)  # type: ignore[misc]

    class Cursor(Mortal, sqlite3.Cursor):
        pass

    class Connection(Mortal, sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

    return Connection


def _make_psycopg_mortal(death: Death) -> None:
    wait, await_ = psycopg.Connection.wait, psycopg.AsyncConnection.wait

    def mortal(self: Any, gen: Any, *rest: Any, **more: Any) -> Any:
        words = _words(gen)
        if words:
            death.moment("before", words)
        answer = wait(self, gen, *rest, **more)
        death.moment("after", words or "the answers")
        return answer

    async def mortal_too(self: Any, gen: Any, *rest: Any, **more: Any) -> Any:
        words = _words(gen)
        if words:
            death.moment("before", words)
        answer = await await_(self, gen, *rest, **more)
        death.moment("after", words or "the answers")
        return answer

    psycopg.Connection.wait = mortal  # type: ignore[method-assign]
    psycopg.AsyncConnection.wait = mortal_too  # type: ignore[method-assign]


def _words(gen: Any) -> str:
    """What a conversation is about; "" for one of a Wire, whose statements are moments already."""
    inner = gen.gi_frame.f_locals["gen"] if gen.__name__ == bounded.__name__ else gen
    if inner.__qualname__.startswith(Wire.__name__):
        return ""
    given = inner.gi_frame.f_locals
    said = given.get("query") or given.get("command")
    return said.decode() if isinstance(said, bytes) else str(said or inner.__name__)


def _make_wires_mortal(death: Death) -> None:
    made = Wire.__init__

    def mortal(self: Wire, *rest: Any, **more: Any) -> None:
        made(self, *rest, **more)
        self._pgconn = _MortalLine(self._pgconn, death)  # type: ignore[assignment]

    Wire.__init__ = mortal  # type: ignore[method-assign]


class _MortalLine:
    """libpq's connection; what is sent goes at once, so a moment is between two statements."""

    def __init__(self, pgconn: Any, death: Death) -> None:
        self._pgconn, self._death = pgconn, death
        self._texts: dict[bytes, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pgconn, name)

    def send_prepare(self, name: bytes, text: bytes) -> None:
        self._texts[name] = text.decode()
        self._pgconn.send_prepare(name, text)

    def send_query_params(self, text: bytes, *rest: Any) -> None:
        self._sent(text.decode(), self._pgconn.send_query_params, text, *rest)

    def send_query_prepared(self, name: bytes, *rest: Any) -> None:
        self._sent(self._texts[name], self._pgconn.send_query_prepared, name, *rest)

    def pipeline_sync(self) -> None:
        self._sent("SYNC", self._pgconn.pipeline_sync)
        self._death.moment("after", "SYNC", IN_TRANSIT)

    def _sent(self, words: str, send: Callable[..., None], *rest: Any) -> None:
        self._death.moment("before", words, IN_TRANSIT)
        send(*rest)
        self._pgconn.flush()


IN_TRANSIT = 0.01
"""Seconds in which a server does what has reached it, before the line breaks."""
