"""A disk that is full: a clear error, nothing acknowledged is lost, and work goes on afterwards."""

from pathlib import Path

import pytest

from tests.support.databases import ask, assert_intact
from tests.support.processes import Processes
from yaoki import Yaoki


@pytest.mark.parametrize("most", [600_000, 1_500_000])
def test_what_was_acknowledged_before_the_disk_was_full_is_there(
    app: Yaoki, path: Path, processes: Processes, most: int
) -> None:
    program = processes.python("-m", "tests.store.sqlite.fill_the_disk", app.url, str(most))

    assert program.wait(60) == 0, program.output

    lines = [line.split(" ", 2) for line in program.lines]
    refused = [line for line in lines if line[0] == "refused" and line[1] != "in"]
    assert refused
    assert {line[1] for line in refused} == {"StoreUnavailable"}
    assert all("disk" in line[2] and "\\n" not in line[2] for line in refused)
    acknowledged = {int(line[1]) for line in lines if line[0] == "made"}
    there = {job_id for (job_id,) in ask(path, "SELECT id FROM yaoki_jobs")}
    assert acknowledged <= there
    assert len(there) == len(acknowledged) + 1
    assert_intact(path)
