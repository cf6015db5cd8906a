"""What a workload is given: how much to do, and where its databases are."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TypeVar

from bench.databases import Databases, open_databases
from bench.jobs import new_app, payload

T = TypeVar("T")
U = TypeVar("U")


@dataclass(frozen=True)
class Size:
    """How much is done in each round."""

    rounds: int = 5
    calls: int = 1_000
    batches: int = 10
    jobs: int = 20_000
    io_jobs: int = 5_000
    pickups: int = 50
    idle_seconds: float = 2.0
    claims: int = 10
    crowd: int = 1_000_000


QUICK = Size(
    rounds=2,
    calls=20,
    batches=1,
    jobs=300,
    io_jobs=100,
    pickups=5,
    idle_seconds=0.3,
    claims=2,
    crowd=3_000,
)
"""Enough to see that everything works; its figures mean little."""


@dataclass(frozen=True)
class Setting:
    """One run on one store: its size, databases on a real disk, and a folder in shared memory."""

    size: Size
    databases: Databases
    memory: Path

    def new_database(self) -> str:
        """A database with yaoki's own tables and indexes, and no jobs."""
        url = self.databases.new()
        app = new_app(url).app
        app.migrate()
        app.close()
        return url

    def filled_database(self, kind: str, jobs: int) -> str:
        """A database in which yaoki has enqueued jobs numbered from 0; for `copied`."""
        url = self.databases.new()
        types = new_app(url)
        for first in range(0, jobs, 1_000):
            numbers = range(first, min(first + 1_000, jobs))
            types.kind(kind).enqueue_many([payload(number) for number in numbers])
        types.app.close()
        self.databases.settle(url)
        return url

    def copied(self, original: str) -> AbstractContextManager[str]:
        """A copy to use up, on the disk already, so that no write of ours waits for it."""
        return self.databases.copied(original)

    def alternate(self, ours: Callable[[], T], limit: Callable[[], U]) -> tuple[list[T], list[U]]:
        """Both once a round, each first in every other round: the machine's moods hit both."""
        got: list[T] = []
        possible: list[U] = []
        for number in range(self.size.rounds):
            if number % 2:
                possible.append(limit())
                got.append(ours())
            else:
                got.append(ours())
                possible.append(limit())
        return got, possible

    def shared_file(self) -> Path:
        """A name for a file that processes share; in memory where there is such a folder."""
        return self.memory / f"{next(_numbers)}.probe"


_numbers = count(1)


@contextmanager
def new_setting(size: Size, store: str, parent: Path) -> Iterator[Setting]:
    """Folders of its own, gone afterwards; databases lie in `parent`."""
    with (
        TemporaryDirectory(prefix="bench-", dir=parent) as folder,
        TemporaryDirectory(prefix="bench-", dir=_first(_MEMORY)) as memory,
        open_databases(store, Path(folder)) as databases,
    ):
        yield Setting(size, databases, Path(memory))


def disk() -> Path:
    """A folder on a real disk. /tmp is often in memory, where no commit ever waits for one."""
    return _first((Path("/var/tmp"),)) or Path(gettempdir())


_MEMORY = (Path("/dev/shm"),)


def _first(folders: Iterable[Path]) -> Path | None:
    return next((folder for folder in folders if os.access(folder, os.W_OK)), None)
