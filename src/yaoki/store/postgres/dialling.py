"""Connecting for whoever must not wait for it, and when to try again."""

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg

log = logging.getLogger("yaoki.store")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
"""Seconds between two tries to listen again."""


class Dialling:
    """A connection in the making, on a thread of its own: it may take long, and be in vain."""

    def __init__(
        self, connect: Callable[[], psycopg.Connection[Any]], done: Callable[[], None]
    ) -> None:
        self._connect, self._done = connect, done
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._error: Exception | None = None
        self._given_up = False
        threading.Thread(target=self._dial, name="yaoki-listen", daemon=True).start()

    def answer(self) -> psycopg.Connection[Any] | None:
        """The connection, for the caller to close; None while there is none. Raises why not."""
        if self._error is not None:
            raise self._error
        with self._lock:
            connection, self._connection = self._connection, None
            return connection

    def give_up(self) -> None:
        with self._lock:
            self._given_up = True
            self._hang_up()

    def _dial(self) -> None:
        try:
            connection = self._connect()
        except Exception as error:
            # Whatever it is: wake-ups are not worth more than a line in the log.
            self._error = error
        else:
            with self._lock:
                self._connection = connection
                if self._given_up:
                    self._hang_up()
        self._done()

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Outage:
    """When to try again, and whether the log knows that there is need to."""

    def __init__(self) -> None:
        self.retry_at = float("-inf")
        self.why: str | None = None
        """What went wrong, until it is over."""
        self._tries = 0
        self._early_losses = 0

    def begin(self, error: Exception, lived: float | None = None) -> None:
        """It failed; after a connection had lived for so many seconds, or none was made."""
        if lived is None:
            self._tries += 1
        else:
            # A server that takes connections only to end them is not asked in a frenzy either.
            self._early_losses = 0 if lived > LONGEST_PAUSE else self._early_losses + 1
            self._tries = self._early_losses
        pause = min(FIRST_PAUSE * 2.0 ** min(max(self._tries - 1, 0), 10), LONGEST_PAUSE)
        self.retry_at = time.monotonic() + pause * random.uniform(0.5, 1.0)
        told, self.why = self.why is not None, " ".join(str(error).split())
        if not told:
            log.warning(
                "cannot listen for notifications, so new jobs are noticed within a second instead "
                "of at once: %s",
                self.why,
            )

    def over(self) -> None:
        if self.why is not None:
            self.why = None
            log.info("listens for notifications again")
