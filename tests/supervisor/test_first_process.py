"""A supervisor as process 1, as in a container: it hears SIGTERM, and reaps orphans."""

import os
import signal
import subprocess
import sys

import pytest

from tests.supervisor.yard import PATIENCE, Yard, end
from tests.support.eventually import eventually

UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def why_not() -> str | None:
    """Why no process can be number 1 here; in CI that is a failure."""
    if sys.platform != "linux":
        return "only Linux has namespaces of processes"
    try:
        tried = subprocess.run([*UNSHARE, "true"], capture_output=True, text=True)
    except OSError as error:
        return str(error)
    return tried.stderr if tried.returncode else None


def test_a_supervisor_that_is_process_1_reaps_orphans_and_hears_sigterm(yard: Yard) -> None:
    """(41)"""
    reason = why_not()
    if reason and not os.environ.get("CI"):
        pytest.skip(f"no namespace can be made here: {reason}")
    unshare = yard.start(before=UNSHARE)
    orphan = yard.app.enqueue("leave-orphan", {})
    yard.ended(orphan)
    first = child_of(unshare.pid)
    eventually(lambda: "os.fork()" in commands_below(first), within=PATIENCE)

    eventually(lambda: "os.fork()" not in commands_below(first), within=PATIENCE)
    eventually(lambda: zombies_below(first) == [], within=PATIENCE)
    job = yard.app.enqueue("sleep", {"seconds": 1})
    yard.begun("sleep")
    os.kill(first, signal.SIGTERM)

    assert end(unshare)[0] == 0
    assert yard.app.get(job).status == "completed"


def child_of(pid: int) -> int:
    return eventually(lambda: next((one for one, parent, *_ in processes() if parent == pid), 0))


def zombies_below(pid: int) -> list[int]:
    return [one for one, parent, state, _ in processes() if parent == pid and state == "Z"]


def commands_below(pid: int) -> str:
    return " ".join(command for _, parent, _, command in processes() if parent == pid)


def processes() -> list[tuple[int, int, str, str]]:
    """Number, parent, state and command of each process."""
    listed = subprocess.run(
        ["ps", "-axwwo", "pid=,ppid=,state=,args="], capture_output=True, text=True, check=True
    )
    parts = (line.split(None, 3) for line in listed.stdout.splitlines())
    return [(int(pid), int(parent), state, *rest) for pid, parent, state, *rest in parts]  # type: ignore[misc]
