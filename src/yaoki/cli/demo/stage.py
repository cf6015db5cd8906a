"""Where the story plays: a temporary database, the shop's app, and worker processes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TypeVar
from urllib.parse import quote

import click

from yaoki.app import Yaoki
from yaoki.cli.demo.shop import jobs
from yaoki.cli.demo.words import Words
from yaoki.cli.exits import DONE, INTERRUPTED, UNREAD, CommandFailed
from yaoki.core.job import Job
from yaoki.store.ops.workers import Worker

T = TypeVar("T")

LEASE = 3
"""Seconds: short, so that nobody has to wait long for the jobs of a dead worker."""

PATIENCE = 20.0
"""Seconds after which something that should have happened is a failure of the demo."""

LOOK_EVERY = 0.03


class Stage:
    """The app, the words, and the worker processes. `check` ends a demo that would tell a lie."""

    def __init__(self, folder: Path, words: Words) -> None:
        self.folder, self.words = folder, words
        self.app = Yaoki(f"sqlite:///{quote((folder / 'jobs.db').as_posix(), safe='/:')}")
        self.app.include(jobs)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._supervisors: dict[str, subprocess.Popen[bytes]] = {}

    def tell(self, key: str, **values: object) -> None:
        """Say a line of the story."""
        click.echo(f"   {self.words(key, **values)}")

    def title(self, key: str, **values: object) -> None:
        click.echo()
        click.echo(_strong(self.words(key, **values)))

    def check(self, fact: bool, what: str) -> None:
        """CommandFailed when something that the story tells has not happened."""
        if not fact:
            raise CommandFailed(f"the demo went wrong: expected {what}{self._last_words()}")

    def run_command(self, *arguments: str) -> None:
        """Run a command as an operator would, and show it with its output."""
        from yaoki.cli.main import run

        click.echo(_strong(f"   $ yaoki {' '.join(arguments)}"))
        sys.stdout.flush()
        code = run(["--url", self.app.url, *arguments])
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        if code == UNREAD:
            raise BrokenPipeError
        self.check(code == DONE, f"yaoki {arguments[0]} to end with 0, not {code}")

    def start_worker(self) -> Worker:
        """A worker process that is ready."""
        before = {worker.worker_id for worker in self.app.workers()}
        number = len(self._processes) + 1
        with (self.folder / f"worker-{number}.log").open("wb") as log:
            process = subprocess.Popen(
                _worker_command(self.app.url),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)

        def announced() -> Worker | None:
            self.check(process.poll() is None, f"worker {number} to be alive")
            new = [one for one in self.app.workers() if one.worker_id not in before]
            return new[0] if new else None

        worker = self.until(announced, "a worker to be ready")
        self._supervisors[worker.worker_id] = process
        return worker

    def kill(self, worker: Worker) -> None:
        """SIGKILL, for its supervisor as well: nobody has a chance to say good-bye."""
        supervisor = self._supervisors[worker.worker_id]
        supervisor.kill()
        os.kill(worker.pid, getattr(signal, "SIGKILL", signal.SIGTERM))
        supervisor.wait(PATIENCE)

    def stop_workers(self) -> None:
        """Ask all that live to end in good order; the exit codes are looked at."""
        living = [process for process in self._processes if process.poll() is None]
        for process in living:
            process.terminate()
        codes = [process.wait(PATIENCE) for process in living]
        self.check(os.name == "nt" or not any(codes), f"workers to end with 0, not {codes}")

    def until(self, ask: Callable[[], T | None], what: str) -> T:
        """What `ask` answers as soon as it is not None."""
        end = time.monotonic() + PATIENCE
        while (answer := ask()) is None:
            self.check(time.monotonic() < end, what)
            time.sleep(LOOK_EVERY)
        return answer

    def followed(self, job: Job) -> Iterator[Job]:
        """The job whenever it has changed, until it has ended."""
        found = None
        while found is None or not found.is_final:
            seen = 0 if found is None else found.revision
            found = self.until(partial(self._newer, job, seen), f"job {job.id} to go on")
            yield found

    def ended(self, job: Job) -> Job:
        """The job when it has ended."""
        *_, last = self.followed(job)
        return last

    def clear(self) -> None:
        """Leave nothing behind, whatever has happened."""
        for process in self._processes:
            _end_at_once(process)
            if process.stdin is not None:
                process.stdin.close()
        self.app.close()

    def _newer(self, job: Job, seen: int) -> Job | None:
        found = self.app.get(job)
        return found if found.revision > seen else None

    def _last_words(self) -> str:
        logs = sorted(self.folder.glob("worker-*.log"))
        said = [log.read_text("utf-8", "replace").strip().rpartition("\n")[2] for log in logs]
        return f" (the workers' last words: {' | '.join(said)})" if said else ""


def _end_at_once(process: "subprocess.Popen[bytes]") -> None:
    """As a second signal does it: killing a supervisor would leave its processes to themselves."""
    end = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < end:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    process.kill()
    process.wait()


@contextmanager
def stage(words: Words) -> Iterator[Stage]:
    """A stage in a temporary folder; afterwards no process and no file of it is left."""
    with TemporaryDirectory(prefix="yaoki-demo-") as folder, _signals_unwind():
        set_up = Stage(Path(folder), words)
        try:
            yield set_up
        finally:
            set_up.clear()


@contextmanager
def _signals_unwind() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the demo as Ctrl-C does: with everything cleared away."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    names = ("SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, leave) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _worker_command(url: str) -> Sequence[str]:
    return [
        *(sys.executable, "-m", "yaoki", "--app", "yaoki.cli.demo.worker_app:app", "--url", url),
        *("worker", "--queue", "default", "--queue", "mail", "--queue", "printer=1"),
        *("--lease-for", f"{LEASE}s", "--grace", "5s"),
    ]


def _strong(text: str) -> str:
    return click.style(text, bold=True) if sys.stdout.isatty() and _may_colour() else text


def _may_colour() -> bool:
    return not os.environ.get("NO_COLOR")
