"""A disk that is full: a clear error, nothing acknowledged is lost, and work goes on afterwards."""

import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.databases import ask, assert_intact
from tests.support.eventually import eventually
from tests.support.processes import Process, Processes
from tests.worker.support_workers import stays
from yaoki import StoreUnavailable, Yaoki


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


class Disk:
    """Where the file of a worker is, and what fills it up and makes room."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, worker: Process) -> None:
        """For this one process."""
        worker.send(signal.SIGUSR1)

    def make_room(self, worker: Process) -> None:
        worker.send(signal.SIGUSR2)


class SmallDisk(Disk):
    """A file system of its own, which is full for everybody."""

    def fill(self, worker: Process) -> None:
        with (self.folder / "filler").open("wb", buffering=0) as file:
            for size in (65_536, 4_096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError:
                    continue

    def make_room(self, worker: Process) -> None:
        (self.folder / "filler").unlink()


def can_mount() -> bool:
    """Does this system let us have a small file system of our own?"""
    if os.name != "posix" or os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        tried = subprocess.run(["mount", "-t", "tmpfs", "none", folder], capture_output=True)
        if tried.returncode == 0:
            subprocess.run(["umount", folder], check=True)
    return tried.returncode == 0


@contextmanager
def limited(folder: Path) -> Iterator[Disk]:
    yield Disk(folder)


@contextmanager
def mounted(folder: Path) -> Iterator[Disk]:
    size = ["-o", "size=3m"]
    subprocess.run(["mount", "-t", "tmpfs", *size, "none", str(folder)], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


DISKS: list[Callable[[Path], Iterator[Disk]]] = [limited]  # type: ignore[list-item]
if can_mount():
    DISKS.append(mounted)  # type: ignore[arg-type]


@pytest.fixture(params=DISKS, ids=lambda disk: disk.__name__)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    """With a limit for the worker's files; and, where one can be mounted, one that gets full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    with request.param(folder) as made:
        yield made


def test_a_worker_survives_and_records_what_it_did_when_there_is_room(
    disk: Disk, tmp_path: Path, processes: Processes
) -> None:
    path = disk.folder / "jobs.db"
    app = Yaoki(f"sqlite:///{path}")
    jobs = app.enqueue_many("waits", [{}] * 3)
    program = ("tests.store.sqlite.work_on_a_full_disk", app.url, str(tmp_path))
    worker = processes.python("-m", *program)
    eventually(lambda: len(list(tmp_path.glob("began-*"))) == 3, within=20)

    disk.fill(worker)
    worker.wait_for_line("keeper failed")
    (tmp_path / "go").touch()
    worker.wait_for_line("exchange failed")
    if isinstance(disk, SmallDisk):
        with pytest.raises(StoreUnavailable, match=r"free some space|disk failed or is full"):
            app.enqueue("waits", {})
    assert stays(lambda: {job.status for job in app.jobs()} == {"running"}, during=2)
    disk.make_room(worker)
    ended = [app.wait(job, timeout=20) for job in jobs]
    after = app.wait(app.enqueue("waits"), timeout=20)

    assert {(job.status, job.attempt, job.rescues) for job in [*ended, after]} == {
        ("completed", 1, 0)
    }
    assert len(list(tmp_path.glob("began-*"))) == 4
    failures = [line for line in worker.lines if line.startswith("ERROR")]
    assert [line for line in failures if "disk" not in line and "be renewed" not in line] == []
    assert len(failures) < 60
    worker.terminate()
    assert worker.wait() == 0
    app.close()
    assert_intact(path)
