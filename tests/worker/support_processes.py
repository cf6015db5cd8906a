"""Workers in processes of their own, which can be killed, stopped and signalled."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.worker.crashing import Crashing, build
from yaoki import Yaoki

ROOT = Path(__file__).parents[2]


class Program:
    """A running tests.worker.crashing."""

    def __init__(self, app: Crashing, *said: str, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.worker.crashing", app.url, app.ledger, *said],
            cwd=ROOT,
            env=os.environ | dict(env or {}),
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
def app(any_url: str, tmp_path: Path) -> Iterator[Crashing]:
    """The same app as the programs', to enqueue and to look."""
    made = build(any_url, tmp_path / "ledger")
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def start_program(app: Crashing) -> Iterator[StartProgram]:
    """Starts worker programs that are killed when the test is over."""
    started: list[Program] = []

    def start(*said: str, env: Mapping[str, str] | None = None) -> Program:
        program = Program(app, *said, env=env)
        started.append(program)
        return program

    yield start
    for program in started:
        program.kill()


def ready(app: Yaoki, *programs: Program) -> None:
    """Wait until these programs have announced themselves."""
    pids = {program.pid for program in programs}
    eventually(lambda: pids <= {worker.pid for worker in app.workers()}, within=10)


def ledger(app: Crashing) -> list[list[str]]:
    """What handlers wrote, in order: words, the last one the pid."""
    lines = app.ledger.read_text().splitlines() if app.ledger.exists() else []
    return [line.split() for line in lines]


def written(app: Crashing, *words: object) -> int:
    """How many lines of the ledger begin with these words."""
    wanted = [str(word) for word in words]
    return sum(line[: len(wanted)] == wanted for line in ledger(app))


def began(app: Crashing, job_id: int, within: float = 10) -> None:
    """Wait until a handler said that it has begun."""
    eventually(lambda: written(app, "began", job_id), within=within)
