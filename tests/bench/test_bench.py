"""The measurements run, and say what came out. How fast anything is, is not tested."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100)


def test_every_workload_is_measured_and_printed_as_json(tmp_path: Path) -> None:
    ended = bench("--quick", "--json", "--folder", str(tmp_path))

    assert ended.returncode == 0, ended.stderr
    printed = json.loads(ended.stdout)
    assert [one["workload"] for one in printed["workloads"]] == list(WORKLOADS)
    assert [one["problem"] for one in printed["workloads"]] == [None] * len(WORKLOADS)
    assert {"python", "sqlite", "cores"} <= printed["machine"].keys()
    for figure in (figure for one in printed["workloads"] for figure in one["figures"]):
        assert figure["ours"]["min"] <= figure["ours"]["median"] <= figure["ours"]["max"]
        assert (figure["met"] is None) == (figure["target"] is None)
        assert figure["limit"] is None or figure["share"]["min"] > 0


def test_named_workloads_alone_are_shown_in_a_table(tmp_path: Path) -> None:
    ended = bench("enqueue-many", "drain", "--quick", "--rounds", "1", "--folder", str(tmp_path))

    assert ended.returncode == 0, ended.stderr
    names = [line.split("  ")[0] for line in ended.stdout.splitlines()]
    assert [name for name in names if name in WORKLOADS] == ["enqueue-many", "drain"]
    assert "300 jobs ran in workers, each of them exactly once." in ended.stdout


def test_nothing_is_left_in_the_folder(tmp_path: Path) -> None:
    bench("drain", "--quick", "--rounds", "1", "--folder", str(tmp_path))

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments", [["drains"], ["--rounds", "0"], ["--folder", "/no/such/folder"], ["--fast"]]
)
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    ended = bench(*arguments)

    assert ended.returncode == 2
    assert arguments[-1] in ended.stderr
    assert "Traceback" not in ended.stderr
