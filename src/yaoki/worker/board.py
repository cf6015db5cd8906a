"""What has begun, for the supervisor: it can be read whatever this process does, also afterwards.

Until it is recorded: also what has ended is not to be lost while nobody can record it.

The database hears of a job that was claimed ahead when it has run for a moment (worker/keeper.py).
A handler that holds the interpreter from its first instruction on, or ends the process with it,
lets nobody tell it. What stands in memory that is shared with the supervisor is told at once.
"""

import mmap
from typing import Self

from yaoki.store.ops.settling import Held

_WIDTH = 8

UNRECORDED = 2_000
"""Places beyond the slots, for jobs that have ended and are not recorded yet."""


class Board:
    """Ids of jobs that were claimed ahead and have begun, in a file that is mapped into memory.

    Written by one thread at a time. Each place is one number, so a reader sees it whole. When all
    places are taken, nothing is said of more.
    """

    def __init__(self, path: str, places: int) -> None:
        """For the writer: makes room for so many jobs in a file that is there."""
        with open(path, "r+b") as file:
            # Written, so that there is room: to write into a hole of a full disk would be fatal.
            file.write(bytes(places * _WIDTH))
        self._ids = _mapped(path)
        self._free = list(range(places))
        self._at: dict[Held, int] = {}

    @classmethod
    def if_possible(cls, path: str | None, places: int) -> Self | None:
        """None without a file, or without room for it: one can do without."""
        try:
            return None if path is None else cls(path, places)
        except OSError:
            return None

    def begin(self, held: Held) -> None:
        if self._free:
            self._at[held] = place = self._free.pop()
            self._ids[place] = held.id

    def end(self, held: Held) -> None:
        place = self._at.pop(held, None)
        if place is not None:
            self._ids[place] = 0
            self._free.append(place)


class BoardReader:
    """The same board, as it is at any time; goes on when its writer has ended."""

    def __init__(self, path: str) -> None:
        self._ids = _mapped(path)

    def begun(self) -> frozenset[int]:
        return frozenset(self._ids) - {0}


def _mapped(path: str) -> memoryview:
    with open(path, "r+b") as file:
        return memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
