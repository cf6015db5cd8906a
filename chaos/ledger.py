"""What handlers write down as they run: one file for each process, only ever appended to.

A line is one write(2), so what is written stays, whatever becomes of the process. A database could
not say this: it is what is on trial.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from yaoki import JobContext


class Again(Exception):
    """A handler fails as it was told to: the attempt is meant to be repeated."""


class Ledger:
    """The file of this process in a folder; made when the app is, so it says who runs handlers."""

    def __init__(self, folder: Path) -> None:
        name = f"{os.getpid()}.{time.monotonic_ns()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(folder / name, flags)
        self.write("life", os.getppid())

    def write(self, *words: object) -> None:
        line = " ".join(map(str, (*words, time.monotonic()))) + "\n"
        os.write(self._file, line.encode())

    @contextmanager
    def attempt(self, ctx: JobContext, name: str) -> Iterator[None]:
        """The handler of the job that its producer calls `name`, from its begin to its end."""
        job = ctx.job
        claimed = 0.0 if job.claimed_at is None else job.claimed_at.timestamp()
        due = job.run_at.timestamp()
        self.write("began", job.id, job.lease, name, ctx.attempt, claimed, due, time.time())
        try:
            yield
        except Again:
            self.write("again", job.id, job.lease)
            raise
        except BaseException as error:
            self.write("raised", job.id, job.lease, type(error).__name__)
            raise
        self.write("ended", job.id, job.lease)

    def meant(self, ctx: JobContext) -> None:
        """This attempt will not complete, and is not meant to."""
        self.write("again", ctx.job.id, ctx.job.lease)

    def dies(self, ctx: JobContext) -> None:
        """The next thing that this process does is to kill itself."""
        self.write("again", ctx.job.id, ctx.job.lease)
        self.write("dies")


@dataclass
class Execution:
    """One run of a handler. Times are monotonic seconds, the same for all processes of a machine.

    `how` is what its end was: "ended", "again" (it failed as it was meant to), the name of an
    exception, or None when it never came.
    """

    job: int
    lease: int
    name: str
    attempt: int
    pid: int
    claimed: float
    began: float
    early: float = 0.0
    """Seconds by which it began before it was due."""
    at: float | None = None
    how: str | None = None
    returned: bool = False
    """Its handler came to its end; also one that was meant to run past its time limit, in a process
    that was stopped meanwhile, so that nobody saw it."""


@dataclass
class Life:
    """A process that ran handlers."""

    pid: int
    parent: int
    began: float
    died: float | None = None
    """When a handler of it was about to kill it."""


@dataclass
class Entries:
    """Everything that is in a ledger."""

    lives: list[Life]
    executions: list[Execution]


def working(folder: Path) -> list[int]:
    """The processes that have begun a job, oldest first, whether or not they still live."""
    began = []
    for path in folder.iterdir():
        with path.open() as file:
            life, job = file.readline().split(), file.readline()
        if job:
            began.append((float(life[2]), _pid_of(path)))
    return [pid for _, pid in sorted(began)]


def read(folder: Path) -> Entries:
    """All of it, when nobody writes any more. A last line that was cut off is left out."""
    offset = time.time() - time.monotonic()
    entries = Entries([], [])
    for path in folder.iterdir():
        whole, _, _ = path.read_text().rpartition("\n")
        _read_file(_pid_of(path), whole.splitlines(), offset, entries)
    entries.executions.sort(key=lambda one: (one.job, one.lease, one.began))
    return entries


def _read_file(pid: int, lines: list[str], offset: float, entries: Entries) -> None:
    open_ones: dict[tuple[int, int], Execution] = {}
    for line in lines:
        word, *rest, at = line.split()
        if word == "life":
            entries.lives.append(Life(pid, int(rest[0]), float(at)))
        elif word == "dies":
            entries.lives[-1].died = float(at)
        elif word == "began":
            job, lease, name, attempt, claimed, due, wall = rest
            execution = Execution(
                *(int(job), int(lease), name, int(attempt), pid, float(claimed) - offset),
                began=float(at),
                early=float(due) - float(wall),
            )
            open_ones[int(job), int(lease)] = execution
            entries.executions.append(execution)
        else:
            execution = open_ones[int(rest[0]), int(rest[1])]
            execution.returned = word == "ended"
            # What an attempt that is not meant to complete does afterwards says nothing.
            if execution.how != "again":
                execution.at = float(at)
                execution.how = rest[2] if word == "raised" else word


def _pid_of(path: Path) -> int:
    return int(path.name.partition(".")[0])
