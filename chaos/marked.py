"""The processes of one run, found by a mark in their environment; and their end, whatever happens.

`python -m chaos.marked MARK` kills them all when its input ends: when the program that started it
is gone, however that ended.
"""

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

NAME = "CHAOS_RUN"


def is_marked(pid: int, mark: str) -> bool:
    """Does it live, and belong to the run? A dead process has no environment."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{NAME}={mark}".encode() in environment.split(b"\0")


def marked(mark: str) -> list[int]:
    """All that live now."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if is_marked(pid, mark)]


def main(mark: str) -> None:
    sys.stdin.read()
    while pids := marked(mark):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


if __name__ == "__main__":
    main(sys.argv[1])
