"""How much memory a child may use, and does use."""

import sys
from contextlib import suppress
from typing import NamedTuple

MEGABYTE = 1 << 20

if sys.platform != "win32":
    import resource

    _BEFORE = resource.getrlimit(resource.RLIMIT_DATA)
    _PAGE = resource.getpagesize()

    def limit(megabytes: int | None) -> None:
        """In a child: what is beyond this cannot be had now (MemoryError). None: as before.

        The system counts what the process may write to, whether it has done so or not. Linux keeps
        to it; elsewhere it may be no more than a wish.
        """
        usual, most = _BEFORE
        wanted = usual if megabytes is None else megabytes * MEGABYTE
        if most != resource.RLIM_INFINITY:
            wanted = min(wanted, most)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (wanted, most))

else:
    _PAGE = 4096

    def limit(megabytes: int | None) -> None:
        """There are no limits here."""


class Use(NamedTuple):
    """Bytes of a process: what it has in memory now, and what its limit counts."""

    resident: int
    data: int


def use(pid: int) -> Use:
    """Zeros where it cannot be told."""
    try:
        with open(f"/proc/{pid}/statm", "rb", buffering=0) as statm:
            pages = [int(number) for number in statm.read(200).split()]
        return Use(pages[1] * _PAGE, pages[5] * _PAGE)
    except (OSError, IndexError, ValueError):
        return Use(0, 0)
