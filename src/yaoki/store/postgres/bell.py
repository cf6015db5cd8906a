"""Noticing that jobs may have become claimable: by NOTIFY, or only within this process."""

import hashlib
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

from yaoki.store.postgres.dialling import Dialling, Outage
from yaoki.store.postgres.listener import Listener, Pace
from yaoki.store.postgres.statements import NOW
from yaoki.store.postgres.waker import Waker, readable

BUSY_AFTER = 0.1
"""Seconds without a wait after which an owner who says that he is busy is believed."""

NOISE_PAUSE = 0.005
"""Seconds of deafness after something arrived that was nothing: it may arrive again and again."""

CLOSING_PATIENCE = 1.0

NOTIFY_SLEEPERS = f"""
SELECT pg_notify(:channel, '')
WHERE EXISTS (SELECT FROM yaoki.sleepers WHERE until > {NOW})
"""
"""For after a commit: a sleeper announces itself and then looks, so it is seen here or has seen.

A look and no more while nobody sleeps. NOTIFY takes a lock of the whole server at commit.
"""


def channel_of(schema: str) -> str:
    """The name under which workers on this schema listen; channels belong to one database."""
    name = f"yaoki_{schema}"
    if name.isascii() and len(name) < 63:
        return name
    return f"yaoki_{hashlib.sha256(schema.encode()).hexdigest()[:32]}"


class NotifyBell:
    """Rings when this process says so, or when another says by NOTIFY that jobs are claimable.

    Only a hint: while the server cannot be heard, it rings for this process alone, and its owner
    looks at the table every second anyway. After each outage it rings once.
    """

    def __init__(
        self,
        connect: Callable[[], psycopg.Connection[Any]],
        schema: str,
        closed: Callable[[], None],
        *,
        pace: Pace = Pace(),  # noqa: B008 - a tuple
    ) -> None:
        self._connect, self._schema, self._closed, self._pace = connect, schema, closed, pace
        self._owner = os.getpid()
        self._turn = threading.Lock()
        """Held by whoever uses the session: nearly always the one who waits."""
        self._waker = Waker()
        self._dialling: Dialling | None = None
        self._listener: Listener | None = None
        self._outage = Outage()
        self._awake_since = time.monotonic()
        self._ended = self._doubted = False

    @property
    def trouble(self) -> str | None:
        return self._outage.why

    def ring(self) -> None:
        self._waker.ring()

    def doubt(self) -> None:
        """The connection may lead nowhere: use another one from now on. From any thread."""
        self._doubted = True

    def wait(self, timeout: float) -> bool:
        self._mind_fork()
        end = time.monotonic() + timeout
        with self._turn:
            try:
                return self._wait_until(end)
            finally:
                self._awake_since = time.monotonic()
                if self._ended:
                    self._end()

    def hush(self) -> None:
        if time.monotonic() - self._awake_since < BUSY_AFTER or not self._turn.acquire(False):
            return
        try:
            if self._listener is not None:
                self._attempt(self._listener.withdraw)
        finally:
            self._turn.release()

    def forget(self) -> None:
        """Drop the connection; the next wait opens another. In a forked child, say nothing."""
        if self._owner != os.getpid():
            self._mind_fork()
            return
        self._waker.ring()
        if self._turn.acquire(timeout=CLOSING_PATIENCE):
            self._drop()
            self._turn.release()

    def close(self) -> None:
        self._mind_fork()
        self._ended = True
        self._waker.ring()
        # Whoever waits ends it when he is woken, should that take long.
        if self._turn.acquire(timeout=CLOSING_PATIENCE):
            self._end()
            self._turn.release()
        self._closed()

    def _wait_until(self, end: float) -> bool:
        while not self._ended:
            self._tend()
            self._sleep(end)
            if self._take_news():
                return True
            if time.monotonic() >= end:
                break
        return False

    def _tend(self) -> None:
        if self._doubted:
            self._doubted = False
            if self._listener is not None:
                self._drop()
        if self._listener is None:
            self._connect_by_and_by()
        if self._listener is not None:
            self._attempt(self._listener.tend)

    def _sleep(self, end: float) -> None:
        listener, now = self._listener, time.monotonic()
        if listener is None:
            until = end if self._dialling is not None else min(end, self._outage.retry_at)
            self._waker.wait(until - now)
            return
        until = min(end, listener.due_at)
        ready = readable((self._waker.handle, listener.handle), until - now)
        if listener.handle in ready and not self._attempt(listener.hear):
            self._waker.wait(min(NOISE_PAUSE, end - now))

    def _take_news(self) -> bool:
        heard = self._listener is not None and self._listener.take_news()
        if heard:
            self._outage.over()
        return self._waker.take() or heard

    def _connect_by_and_by(self) -> None:
        """Never waits: the owner has other things to do, which may go well meanwhile."""
        try:
            if self._dialling is None:
                if time.monotonic() >= self._outage.retry_at:
                    self._dialling = Dialling(self._connect, self._waker.poke)
            elif (connection := self._dialling.answer()) is not None:
                self._dialling = None
                channel = channel_of(self._schema)
                self._listener = Listener(connection, self._schema, channel, self._pace)
        except Exception as error:
            # Whatever it is: a hint is not worth the thread that waits for it.
            self._dialling = None
            self._outage.begin(error)

    def _attempt(self, act: Callable[[], Any]) -> Any:
        """What `act` says; None after a failure, which ends the session."""
        try:
            return act()
        except psycopg.Error as error:
            since = time.monotonic() if self._listener is None else self._listener.since
            self._outage.begin(error, time.monotonic() - since)
            self._drop()
            return None

    def _drop(self) -> None:
        dialling, self._dialling = self._dialling, None
        if dialling is not None:
            dialling.give_up()
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.drop()

    def _end(self) -> None:
        self._drop()
        self._waker.close()

    def _mind_fork(self) -> None:
        """In a child: the sockets are also the parent's, and a lock may be held for ever."""
        if self._owner == os.getpid():
            return
        self._owner = os.getpid()
        self._turn = threading.Lock()
        self._waker.abandon()
        self._waker = Waker()
        # A thread that dials is in the parent alone.
        self._dialling = None
        self._drop()


class PollBell:
    """Rings when this process says so; for the rest its owner looks at the table every second."""

    trouble: str | None = None

    def __init__(self, closed: Callable[[], None]) -> None:
        self._closed = closed
        self._owner = os.getpid()
        self._rung = threading.Event()
        self._ended = False

    def ring(self) -> None:
        self._rung.set()

    def wait(self, timeout: float) -> bool:
        if self._ended or not self._rung.wait(max(timeout, 0)):
            return False
        self._rung.clear()
        return True

    def hush(self) -> None:
        return

    def doubt(self) -> None:
        return

    def forget(self) -> None:
        """In a forked child the lock within the event may be held by a thread that is gone."""
        if self._owner != os.getpid():
            self._owner, self._rung = os.getpid(), threading.Event()

    def close(self) -> None:
        self._ended = True
        self._rung.set()
        self._closed()
