"""A proxy that speaks PostgreSQL's protocol, and breaks each journey to the server once.

A journey is what a client sends before it waits: the words up to a Sync, or a simple query; and
the beginning of a session is one. So what fails here fails as it does with a real server: between
two statements, behind a COMMIT, with a farewell or without.
"""

import itertools
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Literal
from urllib.parse import urlsplit

Way = Literal[
    "cut before",
    "answer lost",
    "shut down",
    "idle for too long",
    "read-only",
    "deadlock",
    "cancelled",
    "starting up",
]
"""How a journey fails. Of "answer lost" the server has done it all; of the others nothing."""

FAREWELLS: dict[Way, tuple[bytes, bytes]] = {
    "shut down": (b"57P01", b"terminating connection due to administrator command"),
    "idle for too long": (b"25P03", b"terminating connection due to idle-in-transaction timeout"),
    "starting up": (b"57P03", b"the database system is starting up"),
}
REFUSALS: dict[Way, tuple[bytes, bytes]] = {
    "read-only": (b"25006", b"cannot execute UPDATE in a read-only transaction"),
    "deadlock": (b"40P01", b"deadlock detected"),
    "cancelled": (b"57014", b"canceling statement due to user request"),
}
BEGINNING = ("the beginning of a session",)
AT_THE_BEGINNING: tuple[Way, ...] = ("cut before", "answer lost", "starting up")
OTHERS: tuple[Way, ...] = ("cut before", "shut down", *REFUSALS)
LATER: tuple[Way, ...] = ("answer lost", *OTHERS)

Texts = tuple[str, ...]


class Saboteur:
    """Nothing fails before `begin`; and between two failures of a journey it succeeds once.

    Each journey loses its answer once, and is broken in one of the other ways, by turns; or once in
    each of them, if it is to be broken in `every_way`.
    """

    def __init__(self, url: str, *, every_way: bool = False) -> None:
        parts = urlsplit(url)
        self.server = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = parts._replace(
            netloc=f"{parts.username}@127.0.0.1:{port}",
            query="sslmode=disable&gssencmode=disable",
        ).geturl()
        self.met: Counter[Way] = Counter()
        """How many have failed in which way."""
        self._every_way = every_way
        self._turns = itertools.cycle(OTHERS)
        self._lock = threading.Lock()
        self._begun = False
        self._to_come: dict[Texts, list[Way]] = {}
        self._resting: set[Texts] = set()
        self._passages: list[_Passage] = []
        self._thread = threading.Thread(target=self._accept, name="saboteur", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._begun = True

    def end(self) -> None:
        """From now on nothing fails."""
        self._begun = False

    @property
    def seen(self) -> str:
        """The texts of all that was under way since the beginning."""
        with self._lock:
            return "\n".join(text for journey in self._to_come for text in journey)

    @property
    def left(self) -> int:
        """How much is still to happen to the journeys that were seen."""
        with self._lock:
            return sum(map(len, self._to_come.values()))

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._listener.close()
        for passage in self._passages:
            passage.end()
        for passage in self._passages:
            passage.join()

    def decide(self, journey: Texts) -> Way | None:
        """How this journey is to fail; None: it passes."""
        with self._lock:
            if not self._begun:
                return None
            if journey not in self._to_come:
                self._to_come[journey] = self._ways(journey)
            ways = self._to_come[journey]
            if not ways or journey in self._resting:
                self._resting.discard(journey)
                return None
            self._resting.add(journey)
            self.met[ways[0]] += 1
            return ways.pop(0)

    def _ways(self, journey: Texts) -> list[Way]:
        if journey == BEGINNING or self._every_way:
            return list(AT_THE_BEGINNING if journey == BEGINNING else LATER)
        return ["answer lost", next(self._turns)]

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._passages.append(_Passage(self, client))


class _Passage:
    """One session through the proxy."""

    def __init__(self, saboteur: Saboteur, client: socket.socket) -> None:
        self._saboteur, self._client = saboteur, client
        self._server = socket.create_connection(saboteur.server)
        self._texts: dict[bytes, str] = {}
        self._answered = threading.Condition()
        self._sent = self._heard = 0
        self._lost_from: int | None = None
        self._status = b"I"
        self._threads = [
            threading.Thread(target=self._guarded, args=[carry], name="saboteur", daemon=True)
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

    def _guarded(self, carry: Callable[[], None]) -> None:
        with suppress(OSError, EOFError):
            carry()
        self.end()
        with self._answered:
            self._lost_from = -1
            self._answered.notify_all()

    def _to_the_server(self) -> None:
        [length] = struct.unpack("!I", head := _exactly(self._client, 4))
        self._begin(head + _exactly(self._client, length - 4))
        journey, texts = b"", list[str]()
        while True:
            kind, message = _message(self._client)
            journey += message
            texts += self._said(kind, message)
            if kind in b"SQ":
                self._travel(journey, tuple(dict.fromkeys(texts)))
                journey, texts = b"", []
            elif kind == b"X":
                return

    def _begin(self, words: bytes) -> None:
        [code] = struct.unpack("!I", words[4:8])
        if code == 80877102:
            self._server.sendall(words)
            raise EOFError("a request to cancel is all there is")
        match self._saboteur.decide(BEGINNING):
            case None:
                self._forward(words)
            case "answer lost":
                self._lost_from = 0
                self._forward(words)
            case way:
                self._fail(way)

    def _travel(self, journey: bytes, texts: Texts) -> None:
        way = self._saboteur.decide(texts) if texts else None
        if way is None:
            self._forward(journey)
        elif way == "answer lost":
            with self._answered:
                self._lost_from = self._sent
            self._forward(journey)
        else:
            self._fail(way)

    def _forward(self, words: bytes) -> None:
        with self._answered:
            self._sent += 1
        self._server.sendall(words)

    def _fail(self, way: Way) -> None:
        with self._answered:
            self._answered.wait_for(lambda: self._heard >= self._sent or self._lost_from == -1, 20)
            within = self._status != b"I"
        if way == "shut down" and within:
            way = "idle for too long"
        if way in FAREWELLS:
            self._client.sendall(_error(b"FATAL", *FAREWELLS[way]))
        if way not in REFUSALS:
            raise EOFError("cut")
        self._client.sendall(_error(b"ERROR", *REFUSALS[way]) + _ready(b"E" if within else b"I"))

    def _to_the_client(self) -> None:
        while True:
            kind, message = _message(self._server)
            with self._answered:
                lost = self._lost_from is not None and self._heard >= self._lost_from
            if not lost:
                self._client.sendall(message)
            elif kind == b"Z":
                return
            if kind == b"Z":
                with self._answered:
                    self._heard += 1
                    self._status = message[-1:]
                    self._answered.notify_all()

    def _said(self, kind: bytes, message: bytes) -> list[str]:
        """The texts of statements in a message."""
        body = message[5:]
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._texts[name] = _plain(text)
            return []
        if kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            return [self._texts.get(name, "?")]
        return [_plain(body.rstrip(b"\0"))] if kind == b"Q" else []


def _plain(text: bytes) -> str:
    """Without what is new in each session."""
    words = " ".join(text.decode("utf-8", "replace").split())
    return re.sub(r"'[0-9a-f]{24}'", "'a sleeper'", words)


def _exactly(one: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = one.recv(length - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _message(one: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(one, 5)
    [length] = struct.unpack("!I", head[1:])
    return head[:1], head + _exactly(one, length - 4)


def _error(severity: bytes, state: bytes, words: bytes) -> bytes:
    fields = b"S" + severity + b"\0V" + severity + b"\0C" + state + b"\0M" + words + b"\0\0"
    return b"E" + struct.pack("!I", len(fields) + 4) + fields


def _ready(status: bytes) -> bytes:
    return b"Z" + struct.pack("!I", 5) + status


@contextmanager
def sabotaged(url: str, *, every_way: bool = False) -> Iterator[Saboteur]:
    made = Saboteur(url, every_way=every_way)
    yield made
    made.close()
