"""A transaction that a handler and yaoki share."""

import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from yaoki.core.errors import NotInTransaction, StoreUnavailable, TransactionLost
from yaoki.store.base import drive
from yaoki.store.op import Op, Statement
from yaoki.store.postgres.connection import PATIENCE, bounded, hang_up
from yaoki.store.postgres.failures import translated
from yaoki.store.postgres.opened import Opened
from yaoki.store.postgres.statements import BEGIN, NOT_DURABLE

T = TypeVar("T")
V = TypeVar("V")

NOTIFY = "SELECT pg_notify(:channel, '')"

LOST = (
    "this transaction was rolled back from outside, because its attempt was stopped or took too "
    "long; do the slow work before the block, and only the writing inside"
)

ENDED_BY_HAND = (
    "the transaction of this block was ended inside it, by COMMIT or ROLLBACK; leave both to the "
    "block: its end commits, an exception rolls back"
)
FORKED = (
    "this process was forked inside a transaction, which is its parent's; make a new Yaoki() here, "
    "or fork outside"
)


class PostgresTransaction:
    """A connection lent to one handler, with a transaction open on it.

    `notify` wakes workers elsewhere after the commit of what may have become claimable, on the
    same connection: whoever commits on an event loop must not wait there for another one.
    """

    def __init__(self, opened: Opened, notify: Statement | None, ring: Callable[[], None]) -> None:
        self._shown, self._ring = opened.place.shown, ring
        self._notify, self._pooled = notify, opened.server.pooled
        self._held = ExitStack()
        self._ending = threading.Lock()
        self._lost = self._wakes = self._ended = False
        self._owner = os.getpid()
        self.connection, self._wire = self._held.enter_context(opened.transactions.lend())
        try:
            _make_as_new(self.connection)
            self._say(BEGIN)
            if opened.place.durability == "normal":
                self._say(NOT_DURABLE)
        except BaseException as error:
            self._held.close()
            if isinstance(error, psycopg.Error):
                raise translated(error, self._shown) from error
            raise

    def check(self) -> None:
        if os.getpid() != self._owner:
            raise StoreUnavailable(FORKED)
        if self._lost:
            raise TransactionLost(LOST)

    def run(self, op: Op[T]) -> T:
        self._check_open()
        try:
            value = drive(op, lambda statement: self._waited(self._wire.ask(statement)))
        except psycopg.Error as error:
            self.check()
            raise translated(error, self._shown) from error
        self._wakes = self._wakes or op.wakes
        return value

    def commit(self) -> None:
        with self._ending:
            self._check_open()
            self._ended = True
            try:
                self._waited(self._commit())
                self._clean()
            except psycopg.Error as error:
                raise translated(error, self._shown) from error
            finally:
                self._held.close()
        if self._wakes:
            self._ring()

    def rollback(self) -> None:
        with self._ending:
            if not self._ended and not self.connection.closed:
                self._ended = True
                with suppress(psycopg.Error):
                    self._say("ROLLBACK")
                    self._clean()
            self._held.close()

    def interrupt(self) -> None:
        # Whoever holds this ends it anyway; and afterwards the connection is somebody else's.
        if not self._ending.acquire(blocking=False):
            return
        try:
            if not self._ended:
                self._lost = True
                with suppress(psycopg.Error, OSError):
                    self.connection.cancel_safe(timeout=2)
                cut(self.connection)
        finally:
            self._ending.release()

    def _check_open(self) -> None:
        self.check()
        if self.connection.pgconn.transaction_status == TransactionStatus.IDLE:
            raise NotInTransaction(ENDED_BY_HAND)

    def _commit(self) -> PQGen[None]:
        if self._notify is None or not self._wakes:
            return self._wire.commit()
        if not self._pooled:
            return self._wire.commit(self._notify)
        # What comes behind a commit may have to wait for a session again, and those who have one
        # may wait for this thread. So it goes with the commit, whether anybody sleeps or not.
        self._wire.later(self._notify._replace(name="notify", text=NOTIFY))
        return self._wire.commit()

    def _waited(self, words: PQGen[V]) -> V:
        """Our own words are answered soon, or the server is dead."""
        value: V = self.connection.wait(bounded(words, PATIENCE))
        return value

    def _say(self, words: str) -> None:
        """The same; what a handler says on this connection may take as long as it takes."""
        unbounded, self.connection.patience = self.connection.patience, PATIENCE
        try:
            self.connection.execute(words)
        finally:
            self.connection.patience = unbounded

    def _clean(self) -> None:
        """What a handler set for its session must not be there for the next one."""
        # A session that a pooler shares is not ours to reset.
        if not self._pooled:
            try:
                self._say("DISCARD ALL")
            except psycopg.Error:
                hang_up(self.connection)


def _make_as_new(connection: psycopg.Connection[Any]) -> None:
    """What the handler before set in the driver, where DISCARD ALL does not reach."""
    connection.row_factory = tuple_row
    connection.cursor_factory = psycopg.Cursor
    connection.server_cursor_factory = psycopg.ServerCursor
    connection.prepare_threshold = None
    connection._adapters = None
    connection._notice_handlers.clear()
    connection._notify_handlers.clear()


def cut(connection: psycopg.Connection[Any]) -> None:
    """Break the line to the server from another thread: the server rolls back."""
    with suppress(psycopg.Error, OSError):
        handle = os.dup(connection.pgconn.socket)
        with socket.socket(fileno=handle) as line:
            line.shutdown(socket.SHUT_RDWR)
