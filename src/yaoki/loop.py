"""The one shape of everything that repeats: do it, say how long to wait, until told to stop."""

import logging
import threading
from abc import ABC, abstractmethod

from yaoki.core.errors import StoreError

log = logging.getLogger("yaoki.loop")

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Loop(ABC):
    """Runs `once` again and again on a thread of its own; no error ends it.

    After an error it waits, longer each time it fails again (at most 5 s), and logs once for
    each failure in a row, so an outage of a minute is a dozen lines.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures = 0
        """How often in a row it has failed; 0 while all is well."""
        self.proven = True
        """False, set by a round: it had nothing to ask, so its success says nothing."""
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread = threading.Thread(target=self.run, name=f"yaoki-{name}", daemon=True)

    @abstractmethod
    def once(self) -> float:
        """Do the work; the seconds to wait before doing it again."""

    def failed(self, error: Exception) -> None:  # noqa: B027 - most have nothing else to do
        """What else to do when `once` raised."""

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float = 10.0) -> None:
        """Let the round that is under way end, and no other begin."""
        self._stopping.set()
        self.wake()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def wake(self) -> None:
        """Do the next round now."""
        self._woken.set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set()

    def run(self) -> None:
        while not self._stopping.is_set():
            pause = self._guarded()
            self._wait(pause)
            self._woken.clear()

    def _wait(self, seconds: float) -> None:
        self._woken.wait(seconds)

    def _guarded(self) -> float:
        self.proven = True
        try:
            pause = self.once()
        except Exception as error:
            self.failures += 1
            pause = min(FIRST_PAUSE * 2.0 ** min(self.failures - 1, 10), LONGEST_PAUSE)
            # A traceback for what nobody expects, once: an outage should be a few readable lines.
            log.error(
                "%s failed (%d in a row), again in %.1f s: %s",
                self.name,
                self.failures,
                pause,
                error,
                exc_info=self.failures == 1 and not isinstance(error, StoreError),
            )
            self.failed(error)
            return pause
        if self.failures and self.proven:
            log.info("%s works again after %d failures", self.name, self.failures)
            self.failures = 0
        return pause
