"""Where a child was when it crashed, or was killed: also when it held the interpreter's lock.

The interpreter's own fault handler writes it, without any Python code, into a nameless file of the
child's, of which the worker has a descriptor too: so it is there when the child is no more.
"""

import faulthandler
import os
import re
import signal
import sys
import time
from contextlib import suppress
from typing import BinaryIO

from yaoki.children import Child

PATIENCE = 0.2
"""Seconds that a child which is to be killed gets to write where it is."""

_SIGNAL = getattr(signal, "SIGRTMAX", 0) - 3
"""One that nobody else uses."""


def begin() -> int | None:
    """In a child: write there; the descriptor, None where there is no such file."""
    if sys.platform != "linux":
        faulthandler.enable()
        return None
    try:
        file = os.memfd_create("yaoki-stacks")
    except OSError:
        faulthandler.enable()
        return None
    faulthandler.enable(file, all_threads=False)
    faulthandler.register(_SIGNAL, file, all_threads=True)
    return file


class Stacks:
    """The worker's end of it."""

    def __init__(self, child: Child, descriptor: int | None) -> None:
        self._child, self._path = child, f"/proc/{child.pid}/fd/{descriptor}"
        self._file: BinaryIO | None = None
        if descriptor is not None:
            with suppress(OSError):
                self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115 - kept open
                self._identity = _identity(os.fstat(self._file.fileno()))

    def ask(self) -> None:
        """Have the child write where it is, and wait until it has."""
        if self._file is None:
            return
        with suppress(OSError):
            # A handler may have closed everything, and have a file of its own in this place.
            if _identity(os.stat(self._path)) != self._identity:
                return
            before, end = self._size(), time.monotonic() + PATIENCE
            self._child.signal(_SIGNAL)
            while self._size() == before and time.monotonic() < end:
                time.sleep(0.001)
            size = before
            while self._size() > size and time.monotonic() < end:
                size = self._size()
                time.sleep(0.001)

    def read(self) -> str | None:
        """What was written, without what is only ours; None when nothing was."""
        if self._file is None:
            return None
        with suppress(OSError):
            self._file.seek(0)
            written = self._file.read(100_000).decode("utf-8", "replace")
            return _of_the_handler(written) or None
        return None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _size(self) -> int:
        assert self._file is not None
        return os.fstat(self._file.fileno()).st_size


def _of_the_handler(written: str) -> str:
    """Without the thread that listens, and the frames of ours that called the handler."""
    parts = [part.strip("\n") for part in re.split(r"\n(?=\n*(?:Thread|Current thread) )", written)]
    kept = [part for part in parts if "child.py" not in part or " in listen" not in part]
    return "\n\n".join(filter(None, (_without_ours(part) for part in kept)))


def _without_ours(part: str) -> str:
    lines = [line for line in part.split("\n") if not _OURS.search(line)]
    return "\n".join(lines).strip("\n")


_OURS = re.compile(
    r'File ".*[/\\]yaoki[/\\](worker[/\\]|children\.py)|File "<string>"|^Extension modules: '
)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
