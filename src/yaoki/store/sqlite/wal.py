"""How much is in the write-ahead log: read from the log itself, which has no locks to disturb.

The layout is that of sqlite.org/fileformat2.html, section 4. A log that is used again keeps its
length, so the length tells nothing: the frames of this round are those with the header's salts.
"""

import os
import struct
from pathlib import Path

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
