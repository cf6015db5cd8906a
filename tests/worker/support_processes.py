"""Workers in processes of their own, which can be killed, stopped and signalled."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.worker.crashing import build
from yaoki import Yaoki

ROOT = Path(__file__).parents[2]


class Program:
    """A running tests.worker.crashing."""

    def __init__(self, url: str, *said: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.worker.crashing", url, *said],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, number: int) -> None:
        self.process.send_signal(number)

    def send_to_group(self, number: int) -> None:
        os.killpg(self.pid, number)

    def wait(self, within: float = 20) -> int:
        """Its exit code; what it wrote is in `out` and `err` then."""
        self.out, self.err = self.process.communicate(timeout=within)
        return self.process.returncode

    def kill(self) -> None:
        if self.alive:
            self.process.kill()
        self.process.communicate()


StartProgram = Callable[..., Program]


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Yaoki]:
    """The same app as the programs', to enqueue and to look."""
    made = build(f"sqlite:///{tmp_path / 'jobs.db'}")
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def start_program(app: Yaoki) -> Iterator[StartProgram]:
    """Starts worker programs that are killed when the test is over."""
    started: list[Program] = []

    def start(*said: str) -> Program:
        program = Program(app.url, *said)
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()


def ready(app: Yaoki, *programs: Program) -> None:
    """Wait until these programs have announced themselves."""
    pids = {program.pid for program in programs}
    eventually(lambda: pids <= {worker.pid for worker in app.workers()}, within=10)


def ledger(app: Yaoki) -> list[list[str]]:
    """What handlers wrote, in order: words, the last one the pid."""
    file = Path(app.url.removeprefix("sqlite:///")).with_name("ledger")
    return [line.split() for line in file.read_text().splitlines()] if file.exists() else []


def written(app: Yaoki, *words: object) -> int:
    """How many lines of the ledger begin with these words."""
    wanted = [str(word) for word in words]
    return sum(line[: len(wanted)] == wanted for line in ledger(app))


def began(app: Yaoki, job_id: int, within: float = 10) -> None:
    """Wait until a handler said that it has begun."""
    eventually(lambda: written(app, "began", job_id), within=within)
