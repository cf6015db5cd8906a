"""SQLite: files in a folder."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import ClassVar


class SQLiteFiles:
    """Databases that are files."""

    store: ClassVar[str] = "sqlite"
    writers: ClassVar[int] = 1

    def __init__(self, folder: Path) -> None:
        self.facts: dict[str, object] = {"sqlite": sqlite3.sqlite_version}
        self._folder = folder
        self._numbers = count(1)

    def new(self) -> str:
        return _url_of(self._unused())

    def drop(self, url: str) -> None:
        path = path_of(url)
        for suffix in ("", "-wal", "-shm"):
            path.with_name(path.name + suffix).unlink(missing_ok=True)

    def settle(self, url: str) -> None:
        connection = sqlite3.connect(path_of(url))
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()

    def transactions(self, url: str) -> None:
        return None

    @contextmanager
    def copied(self, original: str) -> Iterator[str]:
        path = self._unused()
        shutil.copyfile(path_of(original), path)
        with path.open("rb") as copy:
            os.fsync(copy.fileno())
        try:
            yield _url_of(path)
        finally:
            self.drop(_url_of(path))

    def _unused(self) -> Path:
        return self._folder / f"{next(self._numbers)}.db"


@contextmanager
def sqlite_databases(folder: Path) -> Iterator[SQLiteFiles]:
    """Files in this folder, which is deleted by whoever made it."""
    yield SQLiteFiles(folder)


def path_of(url: str) -> Path:
    """The file of a URL."""
    return Path(url.removeprefix("sqlite:///").partition("?")[0])


def _url_of(path: Path) -> str:
    return f"sqlite:///{path}"
