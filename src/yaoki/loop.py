"""The one shape of everything that repeats: do it, say how long to wait, until told to stop."""

import logging
import threading
import time
from abc import ABC, abstractmethod

from yaoki.core.errors import StoreError
from yaoki.core.failures import text
from yaoki.store.patience import within

log = logging.getLogger("yaoki.loop")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 4.0
"""Seconds between the beginnings of two tries; a bit less than what a recovery may take (5 s)."""


class Loop(ABC):
    """Runs `once` again and again on a thread of its own; no error ends it.

    After an error it waits, longer each time it fails again (at most 4 s), and logs once for
    each failure in a row, so an outage of a minute is 20 lines. With `patience`, a database that
    is silent for so many seconds is an error as well, and no pause is longer.
    """

    def __init__(self, name: str, patience: float = float("inf")) -> None:
        self.name, self._patience = name, patience
        self.failures = 0
        """How often in a row it has failed; 0 while all is well."""
        self.proven = True
        """False, set by a round: it had nothing to ask, so its success says nothing."""
        self.error = ""
        """What the last failure said."""
        self.worked_at: float | None = None
        """When (monotonic) a round that asked something last went well."""
        self.busy_since: float | None = None
        """Since when the round under way lasts; None between two of them."""
        self.due_at = float("inf")
        """When the next round begins at the latest."""
        self._waits = True
        """Did its last wait go well?"""
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread = self._new_thread()

    @abstractmethod
    def once(self) -> float:
        """Do the work; the seconds to wait before doing it again."""

    def failed(self, error: Exception) -> None:  # noqa: B027 - most have nothing else to do
        """What else to do when `once` raised."""

    def start(self) -> None:
        self._thread.start()

    @property
    def died(self) -> bool:
        """It was begun, and has ended although nobody told it to."""
        thread = self._thread
        return thread.ident is not None and not thread.is_alive() and not self.stopping

    def revive(self) -> None:
        """Go on with a new thread, after the one before has died."""
        self.busy_since, self.due_at = None, time.monotonic()
        thread = self._new_thread()
        thread.start()
        self._thread = thread

    def stop(self, timeout: float = 10.0) -> None:
        """Let the round that is under way end, and no other begin."""
        self._stopping.set()
        self.wake()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def wake(self) -> None:
        """Do the next round now; but after a failure not before its pause is over."""
        self._woken.set()

    @property
    def longest_pause(self) -> float:
        """Seconds between two tries, however often it has failed."""
        return min(LONGEST_PAUSE, self._patience)

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def run(self) -> None:
        with within(self._patience, upkeep=True):
            while not self._stopping.is_set():
                self._round()

    def _round(self) -> None:
        began = time.monotonic()
        waiting = False
        try:
            pause = self._worked()
            self.due_at = time.monotonic() + pause
            waiting = True
            self._wait(pause)
            self._waits = True
        except Exception as error:
            self._waits = not waiting
            pause = self._troubled(error, began)
            self.due_at = time.monotonic() + pause
            # What wakes it may happen a thousand times a second, and be no help at all.
            self._stopping.wait(pause)
        self._woken.clear()

    def _wait(self, seconds: float) -> None:
        self._woken.wait(seconds)

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self.run, name=f"yaoki-{self.name}", daemon=True)

    def _worked(self) -> float:
        """One round; the seconds to wait after it."""
        self.proven = True
        self.busy_since = time.monotonic()
        try:
            pause = self.once()
        finally:
            self.busy_since = None
        if self.proven:
            self.worked_at = time.monotonic()
        if self.failures and self.proven and self._waits:
            log.info("%s works again (failures in a row: %d)", self.name, self.failures)
            self.failures = 0
        return pause

    def _troubled(self, error: Exception, began: float) -> float:
        """The round that began then has failed; the seconds to wait."""
        self.error = text(error, 500)
        self.failures += 1
        pause = min(FIRST_PAUSE * 2.0 ** min(self.failures - 1, 10), self.longest_pause)
        # A try that hung has waited already.
        pause = max(pause - (time.monotonic() - began), FIRST_PAUSE)
        # A traceback for what nobody expects, once: an outage should be a few readable lines.
        log.error(
            "%s failed (%d in a row), again in %.1f s: %s",
            self.name,
            self.failures,
            pause,
            error,
            exc_info=self.failures == 1 and not isinstance(error, StoreError),
        )
        try:
            self.failed(error)
        except Exception:
            log.exception("%s cannot even fail", self.name)
        return pause
