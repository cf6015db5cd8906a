"""What a workload is given: how much to do, and where its databases are."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

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


QUICK = Size(rounds=2, calls=20, batches=1, jobs=300, io_jobs=100, pickups=5, idle_seconds=0.3)
"""Enough to see that everything works; its figures mean little."""


@dataclass(frozen=True)
class Setting:
    """One run: its size, a folder on a real disk for databases, and one for shared memory."""

    size: Size
    folder: Path
    memory: Path

    def new_database(self) -> Path:
        """A file with yaoki's own tables and indexes, and no jobs."""
        path = self._unused()
        app = new_app(path).app
        app.migrate()
        app.close()
        return path

    def filled_database(self, kind: str, jobs: int) -> Path:
        """A file in which yaoki has enqueued jobs numbered from 0; for `copied`."""
        path = self._unused()
        types = new_app(path)
        for first in range(0, jobs, 1_000):
            numbers = range(first, min(first + 1_000, jobs))
            types.kind(kind).enqueue_many([payload(number) for number in numbers])
        types.app.close()
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        return path

    @contextmanager
    def copied(self, original: Path) -> Iterator[Path]:
        """A copy to use up, on the disk already, so that no write of ours waits for it."""
        path = self._unused()
        shutil.copyfile(original, path)
        with path.open("rb") as copy:
            os.fsync(copy.fileno())
        try:
            yield path
        finally:
            remove_database(path)

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

    def _unused(self) -> Path:
        return self.folder / f"{next(_numbers)}.db"


_numbers = count(1)


def remove_database(path: Path) -> None:
    """Delete the file and what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def new_setting(size: Size, parent: Path | None) -> Iterator[Setting]:
    """Folders of its own, gone afterwards; databases lie in `parent`, or where disks are."""
    with (
        TemporaryDirectory(prefix="bench-", dir=parent or _first(_DISKS)) as folder,
        TemporaryDirectory(prefix="bench-", dir=_first(_MEMORY)) as memory,
    ):
        yield Setting(size, Path(folder), Path(memory))


# /tmp is in memory on many machines, where no commit ever waits for a disk.
_DISKS = (Path("/var/tmp"),)
_MEMORY = (Path("/dev/shm"),)


def _first(folders: Iterable[Path]) -> Path | None:
    return next((folder for folder in folders if os.access(folder, os.W_OK)), None)
