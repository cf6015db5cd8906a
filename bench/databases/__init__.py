"""Databases to be measured: made, filled, copied and dropped, the same way for every store."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.databases.base import Databases
from bench.databases.postgres import postgres_databases
from bench.databases.sqlite import sqlite_databases

__all__ = ["STORES", "Databases", "open_databases"]

STORES: dict[str, Callable[[Path], AbstractContextManager[Databases]]] = {
    "sqlite": sqlite_databases,
    "postgres": postgres_databases,
}


@contextmanager
def open_databases(store: str, folder: Path) -> Iterator[Databases]:
    """Databases of this store in `folder`, gone afterwards; NotMeasured where there is no store."""
    with STORES[store](folder) as databases:
        yield databases
