"""The measurements run, and say what came out. How fast anything is, is not tested."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench.databases import STORES
from bench.databases.postgres import VARIABLE, postgres_databases
from bench.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[2]


def bench(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.fixture
def folder() -> Iterator[str]:
    """One that the user of a PostgreSQL server can reach, which pytest's are not."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield folder


@pytest.mark.timeout(310)
@pytest.mark.parametrize("store", STORES)
def test_every_workload_is_measured_and_printed_as_json(store: str, folder: str) -> None:
    ended = bench("--store", store, "--quick", "--rounds", "1", "--json", "--folder", folder)

    assert ended.returncode == 0, ended.stderr
    printed = json.loads(ended.stdout)
    assert {"python", "cores"} <= printed["machine"].keys()
    [run] = printed["stores"]
    assert run["store"] == store
    assert store in run["facts"]
    assert [one["workload"] for one in run["workloads"]] == list(WORKLOADS)
    assert [one["problem"] for one in run["workloads"]] == [None] * len(WORKLOADS)
    for figure in (figure for one in run["workloads"] for figure in one["figures"]):
        assert figure["ours"]["min"] <= figure["ours"]["median"] <= figure["ours"]["max"]
        assert (figure["met"] is None) == (figure["target"] is None)
        assert figure["limit"] is None or len(figure["share"]["rounds"]) > 0


def test_both_stores_are_shown_and_named_workloads_alone(folder: str) -> None:
    ended = bench("enqueue-many", "drain", "--quick", "--rounds", "1", "--folder", folder)

    assert ended.returncode == 0, ended.stderr
    names = [line.split("  ")[0] for line in ended.stdout.splitlines()]
    assert [name for name in names if name in WORKLOADS] == ["enqueue-many", "drain"] * 2
    assert "600 jobs ran in workers, each of them exactly once." in ended.stdout
    assert list(Path(folder).iterdir()) == []


def test_a_postgres_of_its_own_waits_for_the_disk(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "://" in os.environ.get(VARIABLE, ""):
        monkeypatch.delenv(VARIABLE)

    with postgres_databases(Path(folder)) as databases:
        facts = databases.facts

    assert (facts["fsync"], facts["synchronous_commit"]) == ("on", "on")
    assert facts["full_page_writes"] == "on"


def test_where_there_is_no_postgres_that_is_said_and_the_rest_is_measured(folder: str) -> None:
    ended = bench(
        *("enqueue-many", "--quick", "--rounds", "1", "--folder", folder),
        YAOKI_TEST_POSTGRES="/no/such/folder",
    )

    assert ended.returncode == 0
    assert "enqueue-many" in ended.stdout
    assert "postgres: NOT MEASURED: " in ended.stdout
    assert "/no/such/folder" in ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [["drains"], ["--rounds", "0"], ["--folder", "/no/such/folder"], ["--fast"], ["--store", "x"]],
)
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    ended = bench(*arguments)

    assert ended.returncode == 2
    assert arguments[-1] in ended.stderr
    assert "Traceback" not in ended.stderr
