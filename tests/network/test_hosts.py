"""Hosts made of namespaces: wired to each other and to nobody else, and gone with their test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.network.conftest import Site, or_skipped
from tests.network.hosts import CannotMake, network
from tests.support.eventually import eventually
from tests.support.processes import Processes

pytestmark = pytest.mark.crash

MAKES_ONE = """
import subprocess, time
from tests.network.hosts import CannotMake, network
with network() as made:
    host = made.host()
    command = host.command("sh", "-c", "echo there; exec sleep 60")
    inside = subprocess.Popen(command, stdout=subprocess.PIPE)
    inside.stdout.readline()
    print("made", made.switch.pid, host.space.pid, inside.pid, flush=True)
    time.sleep(60)
"""


def test_nothing_is_left_when_the_program_that_made_them_is_killed(processes: Processes) -> None:
    with or_skipped(), network():
        pass
    program = processes.python("-c", MAKES_ONE)
    pids = [int(pid) for pid in program.wait_for_line("made ").split()[1:]]
    spaces = {os.readlink(f"/proc/{pid}/ns/net") for pid in pids}
    assert len(spaces) == 2
    assert os.readlink("/proc/self/ns/net") not in spaces
    program.kill()

    eventually(lambda: spaces.isdisjoint(all_spaces()), within=20)


def all_spaces() -> set[str]:
    """The networks of all processes that can be seen."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.readlink(path))
        except OSError:
            continue
    return found


def test_where_there_can_be_none_that_is_said_and_in_ci_it_is_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="unshare"), or_skipped(), network():
        pass

    monkeypatch.setenv("CI", "true")
    with pytest.raises(CannotMake, match="unshare"), or_skipped(), network():
        pass


def test_a_server_is_for_those_in_its_network_alone(site: Site) -> None:
    asks = f"import psycopg; psycopg.connect({site.server.url!r}, connect_timeout=3)"
    ask = (sys.executable, "-c", asks)

    inside = subprocess.run(site.left.command(*ask), capture_output=True, text=True)
    outside = subprocess.run(ask, capture_output=True, text=True)

    assert (inside.returncode, inside.stderr) == (0, "")
    assert outside.returncode != 0
