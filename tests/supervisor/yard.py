"""A folder with an app and a database, supervisors that work there, and what they did."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

from tests.cli.program import PROGRAM, Program, Ran, line_with
from tests.support.eventually import eventually
from tests.support.processes import ROOT
from yaoki import Yaoki
from yaoki.core.job import Job
from yaoki.store.ops.workers import Worker

HASTY = (sys.executable, "-m", "tests.supervisor.hasty")

PATIENCE = 30.0


class Yard:
    """`app` is a client of the database; `worker` starts `yaoki worker`."""

    def __init__(self, folder: Path, url: str | None) -> None:
        self.program = Program(folder)
        self.program.always["PYTHONPATH"] = str(ROOT)
        if url is not None:
            self.program.always["YAOKI_URL"] = url
        self.app = Yaoki(self.program.url)
        self._started: list[subprocess.Popen[str]] = []
        self._seen: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing that was started here is left; not even by a supervisor that was killed."""
        with ExitStack() as after:
            after.callback(self.app.close)
            after.callback(self.program.end)
            for worker in self.workers():
                self._seen.add(worker.pid)
            for process in self._started:
                process.kill()
            for pid in self._seen:
                with suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)

    def run(self, *options: str, app: str = "deeds:app") -> Ran:
        return self.program("--app", app, "worker", *options)

    def start(
        self,
        *options: str,
        app: str = "deeds:app",
        leader: bool = False,
        hasty: bool = False,
        before: Sequence[str] = (),
    ) -> subprocess.Popen[str]:
        """A supervisor; a `hasty` one does not wait for seconds before it kills."""
        program = [*before, *(HASTY if hasty else PROGRAM)]
        process = self.program.start(
            "--app", app, "worker", *options, leader=leader, program=program
        )
        self._started.append(process)
        return process

    def workers(self, count: int = 0) -> list[Worker]:
        """Those that are listed, when there are at least so many."""
        if count:
            eventually(lambda: len(self.app.workers()) >= count, within=PATIENCE)
        found = self.app.workers()
        self._seen |= {worker.pid for worker in found}
        return found

    def line(self, process: "subprocess.Popen[str]", words: str) -> str:
        """The first line with these words that a process logs."""
        return line_with(process.stderr, words)

    def ended(self, job: Job) -> Job:
        return self.app.wait(job, timeout=PATIENCE)

    def runs(self) -> Counter[str]:
        """How often which handler began."""
        return Counter(line.split()[0] for line in self._lines())

    def begun(self, what: str, times: int = 1) -> int:
        """The process in which a handler has begun so many times; waits for it."""
        eventually(lambda: self.runs()[what] >= times, within=PATIENCE)
        pid = int(
            next(line for line in reversed(self._lines()) if line.startswith(what)).split()[1]
        )
        self._seen.add(pid)
        return pid

    def _lines(self) -> list[str]:
        file = self.program.folder / "ran"
        return file.read_text().splitlines() if file.exists() else []


def end(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """The exit code of a process that ends by itself, and what it had to say to people."""
    _, said = process.communicate(timeout=PATIENCE)
    return process.returncode, said
