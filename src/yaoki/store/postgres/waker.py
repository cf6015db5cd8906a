"""Waking a thread that waits for a socket, from any other thread."""

import selectors
import socket
import threading
from collections.abc import Collection


class Waker:
    """Rung by any thread, waited for by one. Rings that piled up are one."""

    def __init__(self) -> None:
        self._ear, self._mouth = socket.socketpair()
        self._lock = threading.Lock()
        self._rung = self._poked = self._closed = False
        self.handle = self._ear.fileno()
        """Readable once it was rung or poked, until `take`."""

    def ring(self) -> None:
        self._poke(rung=True)

    def poke(self) -> None:
        """End the wait, and no more: whoever waits has to look to something of his own."""
        self._poke(rung=False)

    def take(self) -> bool:
        """Was it rung since this was last asked?"""
        with self._lock:
            if self._poked:
                self._ear.recv(1)
            rung, self._rung, self._poked = self._rung, False, False
            return rung

    def wait(self, seconds: float) -> None:
        """Until it is rung or poked, or was before."""
        readable((self.handle,), seconds)

    def close(self) -> None:
        with self._lock:
            self._rung, self._poked, self._closed = False, False, True
            self.abandon()

    def abandon(self) -> None:
        """Close it in a forked child, where its lock may never be free again."""
        self._ear.close()
        self._mouth.close()

    def _poke(self, rung: bool) -> None:
        with self._lock:
            if self._closed:
                return
            self._rung = self._rung or rung
            if not self._poked:
                self._poked = True
                self._mouth.send(b"\0")


def readable(handles: Collection[int], seconds: float) -> set[int]:
    """Those of the sockets from which something can be read, or that are broken."""
    # Not select(2), where there is another: it refuses numbers from 1024.
    with getattr(selectors, "PollSelector", selectors.SelectSelector)() as selector:
        for handle in handles:
            selector.register(handle, selectors.EVENT_READ)
        return {key.fd for key, _ in selector.select(max(seconds, 0))}
