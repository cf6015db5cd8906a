"""Being told by Linux that a file was written to (inotify(7)), instead of asking again."""

import ctypes
import os
import select
import sys
from pathlib import Path

_IN_MODIFY = 0x2


class FileWatch:
    """Sleeps until the file is written to, or until somebody calls `wake`."""

    def __init__(self, path: Path) -> None:
        """OSError when this system cannot watch files."""
        self._events = _begin_watching(path)
        self._woken, self._waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._events, select.POLLIN)
        self._poll.register(self._woken, select.POLLIN)

    def written(self) -> bool:
        """Was the file written to since this was last asked?"""
        return self.wait(0)

    def wait(self, seconds: float) -> bool:
        """Until something happened (also before the call), at most `seconds`.

        True when the file was written to.
        """
        ready = [handle for handle, _ in self._poll.poll(max(seconds, 0) * 1000)]
        for handle in ready:
            _drain(handle)
        return self._events in ready

    def wake(self) -> None:
        try:
            os.write(self._waker, b"\0")
        except OSError:
            # The pipe is full of wakes already, or closed.
            return

    def close(self) -> None:
        for handle in (self._events, self._woken, self._waker):
            os.close(handle)


def watch(path: Path) -> FileWatch | None:
    """A watch on the file, or None where there is no such thing."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        return FileWatch(path)
    except (OSError, AttributeError):
        return None


def _begin_watching(path: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    handle: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if handle < 0:
        raise OSError(ctypes.get_errno(), "inotify_init1")
    if libc.inotify_add_watch(handle, os.fsencode(path), _IN_MODIFY) < 0:
        os.close(handle)
        raise OSError(ctypes.get_errno(), "inotify_add_watch")
    return handle


def _drain(handle: int) -> None:
    try:
        while len(os.read(handle, 16_384)) == 16_384:
            continue
    except OSError:
        return
