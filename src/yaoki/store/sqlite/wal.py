"""The write-ahead log: how much is in it, and the flaw of older SQLites.

How much is read from the log itself, which has no locks to disturb.

The layout is that of sqlite.org/fileformat2.html, section 4. A log that is used again keeps its
length, so the length tells nothing: the frames of this round are those with the header's salts.
"""

import os
import sqlite3
import struct
from collections.abc import Sequence
from pathlib import Path

CHECKPOINT_AT = 2_000
"""Pages in the log at which they are written back into the file."""

LONGEST_LOG = 64 * 1024 * 1024
"""Bytes to which a log that had to grow (a reader was in the way) is cut when it starts anew."""

FAR_BEHIND = LONGEST_LOG // 4096
"""Pages at which a connection of a caller's checkpoints by itself, if it ever comes to that."""

_HEADER = 32
_FRAME_HEADER = 24
_PAGE_SIZE = struct.Struct(">I")


def frames_in(log: Path) -> int:
    """The frames (pages) of the log's current round; 0 when there is no log."""
    try:
        handle = os.open(log, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError:
        return 0
    try:
        return _count(handle)
    except OSError:
        return 0
    finally:
        os.close(handle)


def _count(handle: int) -> int:
    header = _read(handle, _HEADER, 0)
    if len(header) < _HEADER:
        return 0
    frame = _FRAME_HEADER + _PAGE_SIZE.unpack_from(header, 8)[0]
    salts = header[16:24]
    first, beyond = 0, (os.fstat(handle).st_size - _HEADER) // frame
    # Frames are written in order, so those of this round come before all older ones.
    while first < beyond:
        middle = (first + beyond) // 2
        if _read(handle, 8, _HEADER + middle * frame + 8) == salts:
            first = middle + 1
        else:
            beyond = middle
    return first


def _read(handle: int, length: int, offset: int) -> bytes:
    os.lseek(handle, offset, os.SEEK_SET)
    return os.read(handle, length)


def wal_reset_flaw(version: Sequence[int] = sqlite3.sqlite_version_info) -> str | None:
    """What is to be known about the WAL-reset flaw of this SQLite; None when it has it not.

    (sqlite.org/wal.html#walresetbug; docs/decisions/0027-clocks-and-checkpoints.md)
    """
    if _is_fixed(tuple(version)):
        return None
    number = ".".join(map(str, version))
    return (
        f"SQLite {number} can lose commits when a connection checkpoints the write-ahead log in "
        "the same instant in which another starts it anew; yaoki's own checkpoints exclude that, "
        "but those of other programs that write to the file do not: let them set PRAGMA "
        "wal_autocheckpoint=0, or use SQLite 3.51.3 (3.50.7, 3.44.6) or newer"
    )


def _is_fixed(version: tuple[int, ...]) -> bool:
    return version >= (3, 51, 3) or any(
        first <= version < (*first[:2], 10**6) for first in _FIXED_IN_OLDER
    )


_FIXED_IN_OLDER = ((3, 44, 6), (3, 50, 7))
