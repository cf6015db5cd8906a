"""Where there is no fork, no SIGALRM and no fcntl, a worker still works."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Processes


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    started.end()


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_all_can_be_imported_and_jobs_run_limits_hold_and_a_signal_ends_it(
    processes: Processes, tmp_path: Path, platform: str
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    program = processes.python("-m", "tests.platforms.elsewhere", platform, url)
    program.wait_for_line("waits for a signal", within=60)
    printed = program.output
    program.send(signal.SIGINT)

    assert "plain completed 2 None" in printed
    assert "async completed 3 None" in printed
    assert "slow failed None TimeLimitExceeded: ran longer than its time limit of 300 ms" in printed
    assert program.wait() == 0
    assert "Traceback" not in program.output
