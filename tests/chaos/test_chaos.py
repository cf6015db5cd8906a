"""Everything goes wrong at once, and no promise is broken; a worker that breaks one is found."""

import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from chaos.plan import Event, Plan, Size, Spec, plan
from chaos.run import How, run
from tests.support.eventually import eventually
from tests.support.processes import Processes

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.crash


def chaos(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "chaos", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=220,
    )


@pytest.mark.timeout(230)
@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_no_promise_is_broken(store: str) -> None:
    ended = chaos("--quick", "--store", store, "--seed", "4")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"{store}, seed 4" in ended.stdout
    assert "All promises were kept" in ended.stdout


def test_a_worker_that_completes_jobs_which_are_not_its_own_is_found(tmp_path: Path) -> None:
    size = Size(workers=1, kills=1, concurrency=3)
    jobs = [
        Spec(str(number), "long", at=0, how="one", arguments={"seconds": 0.7})
        for number in range(6)
    ]
    # What the first process has begun is done by the second, before the first goes on.
    stopped = Plan(0, size, jobs, [Event(0, "stop", pick=0, length=6.5)])

    verdict = run("sqlite", stopped, How("tests.chaos.careless:app", 2), tmp_path, print)

    assert not verdict.good
    assert verdict.broken["completed twice by record"]
    assert verdict.broken["lost"] == verdict.broken["stuck"] == []


def test_nothing_goes_on_when_it_is_killed_itself(processes: Processes) -> None:
    program = processes.python("-m", "chaos", "--quick", "--store", "sqlite", "--seed", "4")
    folder = program.wait_for_line("logs in").rpartition(" ")[2]
    eventually(lambda: of_run(folder), within=30)
    program.kill()

    eventually(lambda: not of_run(folder), within=20)
    shutil.rmtree(folder, ignore_errors=True)


def of_run(folder: str) -> list[int]:
    """The processes whose environment names this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{folder}/ledger".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_a_seed_repeats_the_plan_and_another_makes_another() -> None:
    size = Size()
    first, again, other = plan(7, size, "sqlite"), plan(7, size, "sqlite"), plan(8, size, "sqlite")

    assert first == again
    assert first.jobs != other.jobs
    assert first.events != other.events
    assert plan(7, size, "postgres").jobs == first.jobs
    assert len(first.jobs) == 10_000
    assert sum(event.what.startswith("kill") for event in first.events) == 100


@pytest.mark.parametrize("arguments", [["--seed", "x"], ["--jobs", "0"], ["--store", "redis"]])
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    ended = chaos(*arguments)

    assert ended.returncode == 2
    assert arguments[-1] in ended.stderr
