"""The child's end of the line to its worker; whatever the handler does to it."""

import os
import signal
import sys
import threading
from typing import NoReturn

from yaoki.children import Line
from yaoki.worker.isolated.messages import (
    Completing,
    Ended,
    FromChild,
    MayCommit,
    ToChild,
    encode,
    read_to_child,
)

CUT_OFF = 97
"""The exit code of a child whose handler has closed the line."""


class Wire:
    """Messages to the worker, from any thread."""

    def __init__(self, line: Line) -> None:
        self._end = line.end
        self._pid = os.getpid()
        self._file = self._identity()
        self._lock = threading.Lock()
        self._answered = threading.Event()
        self._may = False

    @property
    def is_ours(self) -> bool:
        """False in a process that a handler has forked: it has nothing to say here."""
        return os.getpid() == self._pid

    def send(self, message: FromChild) -> None:
        """Say it. When nobody is there to hear it, the process ends."""
        if not self.is_ours:
            if isinstance(message, Ended):
                os._exit(0)  # it has come back into our code, and is done
            return
        said = encode(message)
        with self._lock:
            self._check()
            try:
                self._end.send_bytes(said)
            except OSError:
                end_with_all()

    def receive(self, timeout: float | None) -> ToChild | None:
        """The next message; None when there was none in time. For the listening thread only."""
        self._check()
        try:
            if timeout is not None and not self._end.poll(timeout):
                return None
            said = self._end.recv_bytes()
        except (OSError, EOFError, ValueError):
            self._check()
            end_with_all()
        return read_to_child(said)

    def may_commit(self, question: Completing) -> bool:
        """Ask, and wait for the answer."""
        if not self.is_ours:
            return False
        self._answered.clear()
        self.send(question)
        self._answered.wait()
        return self._may

    def answered(self, answer: MayCommit) -> None:
        """For the listening thread: the answer has come."""
        self._may = answer.may
        self._answered.set()

    def _check(self) -> None:
        """A handler that closes every file may have one of its own in the place of the line."""
        if self._identity() != self._file:
            os._exit(CUT_OFF)

    def _identity(self) -> tuple[int, int] | None:
        try:
            status = os.fstat(self._end.fileno())
        except OSError:
            return None
        return status.st_dev, status.st_ino


def end_with_all() -> NoReturn:
    """The worker is gone: nothing that the handlers have started is to go on."""
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
