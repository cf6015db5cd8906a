"""A session that listens for notifications, and says in the database that somebody does."""

import secrets
import time
from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
from psycopg.pq import ExecStatus, abc

from yaoki.store.postgres.statements import NOW, quoted


class Pace(NamedTuple):
    """How long things last, in seconds."""

    announced_for: float = 60.0
    """An announcement; it is made again when half of that has passed."""
    check_after: float = 15.0
    """Silence, before the server is asked whether it is still there."""
    patience: float = 5.0
    """What the server may take for an answer."""


_NEVER = float("-inf")


class Question(NamedTuple):
    """What the server was asked and has not answered."""

    asked_at: float
    announces: bool


class Listener:
    """Never waits for the server: `tend` asks, `hear` takes in what has arrived.

    So a server that has fallen silent keeps nobody from his work, and whoever waits for a
    notification may wait for other things besides. Any psycopg.Error means that it is lost.
    """

    def __init__(
        self, connection: psycopg.Connection[Any], schema: str, channel: str, pace: Pace
    ) -> None:
        self._connection, self._pgconn, self._pace = connection, connection.pgconn, pace
        self._pgconn.nonblocking = 1
        self._words = _Words.encoded(schema, channel, pace, connection.info.encoding)
        self._question: Question | None = None
        self._begun = self._news = False
        self._announced_until = _NEVER
        self.since = self._heard_at = time.monotonic()
        self.handle = self._pgconn.socket
        """The socket to watch for something to hear."""

    @property
    def due_at(self) -> float:
        """When to `tend` again, or to take the news, by the monotonic clock."""
        if self._news:
            return _NEVER
        if self._question is not None:
            return self._question.asked_at + self._pace.patience
        return min(self._renew_at, self._heard_at + self._pace.check_after)

    def take_news(self) -> bool:
        """May jobs have become claimable, by what was heard since this was last asked?

        Also true after each announcement, for what became claimable before it was seen.
        """
        news, self._news = self._news, False
        return news

    def tend(self) -> None:
        """Ask what is due to be asked."""
        now = time.monotonic()
        if self._question is not None:
            self._mind_patience(self._question.asked_at, now)
        elif now >= self._renew_at:
            self._ask(self._words.announce if self._begun else self._words.begin, announces=True)
        elif now >= self._heard_at + self._pace.check_after:
            self._ask(b"SELECT 1")

    def hear(self) -> bool:
        """Take in what has arrived; False when that was neither answer nor notification."""
        self._pgconn.consume_input()
        self._heard_at = time.monotonic()
        heard = False
        while self._question is not None and not self._pgconn.is_busy():
            self._answered(self._question, self._pgconn.get_result())
            heard = True
        while self._pgconn.notifies() is not None:
            self._news = heard = True
        return heard

    def withdraw(self) -> None:
        """Take the announcement back, and hear no more; not while the server owes an answer."""
        if self._question is not None:
            self.hear()
        if self._question is None and self._announced_until != _NEVER:
            self._announced_until = _NEVER
            self._ask(self._words.withdraw)

    def drop(self) -> None:
        """Hang up. (In a forked child nobody hears it: `connection.leave_to_the_parent`.)"""
        with suppress(psycopg.Error):
            self.withdraw()
        self._connection.close()

    @property
    def _renew_at(self) -> float:
        return self._announced_until - self._pace.announced_for / 2

    def _mind_patience(self, asked_at: float, now: float) -> None:
        if now < asked_at + self._pace.patience:
            return
        # The answer may have come long ago, while nobody listened.
        self.hear()
        if self._question is not None:
            raise psycopg.OperationalError(f"no answer within {self._pace.patience:g} s")

    def _ask(self, words: bytes, *, announces: bool = False) -> None:
        self._question = Question(time.monotonic(), announces)
        self._pgconn.send_query(words)
        if self._pgconn.flush():
            raise psycopg.OperationalError("the connection takes nothing any more")

    def _answered(self, question: Question, result: abc.PGresult | None) -> None:
        if result is not None:
            if result.status not in (ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK):
                raise psycopg.OperationalError(result.error_message.decode("utf-8", "replace"))
            return
        self._question = None
        if question.announces:
            self._begun = True
            self._news = self._news or question.asked_at >= self._announced_until
            self._announced_until = question.asked_at + self._pace.announced_for


class _Words(NamedTuple):
    """What is said. Simple queries, so that a whole beginning is one message."""

    begin: bytes
    announce: bytes
    withdraw: bytes

    @staticmethod
    def encoded(schema: str, channel: str, pace: Pace, encoding: str) -> "_Words":
        sleepers = f"{quoted(schema)}.sleepers"
        # A name that is never used again: what an earlier session says late is about another row.
        sleeper = secrets.token_hex(12)
        announce = f"""
            LISTEN {quoted(channel)};
            INSERT INTO {sleepers} (sleeper, until)
            VALUES ('{sleeper}', {NOW} + {round(pace.announced_for * 1_000_000)})
            ON CONFLICT (sleeper) DO UPDATE SET until = excluded.until"""
        begin = f"""
            SET synchronous_commit = off;
            SELECT set_config(name, '0', false) FROM pg_settings
            WHERE name = 'idle_session_timeout';
            DELETE FROM {sleepers} WHERE sleeper IN (
                SELECT sleeper FROM {sleepers} WHERE until < {NOW} FOR UPDATE SKIP LOCKED
            );
            {announce}"""
        # What nobody takes in would pile up, in the end on the disk of the server.
        withdraw = f"""
            UNLISTEN {quoted(channel)};
            DELETE FROM {sleepers} WHERE sleeper = '{sleeper}'"""
        return _Words(*(words.encode(encoding) for words in (begin, announce, withdraw)))
