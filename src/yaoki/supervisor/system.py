"""What the system tells of processes; where it does not, the answers are harmless ones."""

import os
import sys
from collections.abc import Container
from contextlib import suppress
from typing import Any


def memory_used() -> int:
    """Bytes that this process has in memory; at its peak, where the system tells only that."""
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def is_stopped(pid: int) -> bool:
    """Was it stopped, by SIGSTOP or by a debugger?"""
    with suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] in (b"T", b"t")
    return False


def reap_orphans(but_not: Container[int]) -> None:
    """As process 1: take note of the end of processes that others have left behind.

    Those of our own (`but_not`) are left to those who started them.
    """
    system: Any = os
    while hasattr(os, "waitid"):
        try:
            ended = system.waitid(system.P_ALL, 0, system.WEXITED | system.WNOHANG | system.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None or ended.si_pid in but_not:
            return
        with suppress(ChildProcessError):
            os.waitpid(ended.si_pid, 0)
