"""What differs between the drivers of the two databases, for tests that bring statements along."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg

from tests.support.postgres import for_libpq
from yaoki.store import SQLiteStore, Store
from yaoki.store.postgres.store import PostgresStore


def on_postgres(url: str) -> bool:
    return url.startswith("postgres")


def mark(url: str) -> str:
    """How a parameter is written for the driver of this database."""
    return "%s" if on_postgres(url) else "?"


@contextmanager
def connected_by_driver(url: str) -> Iterator[Any]:
    """A connection as a caller of yaoki has one: of the driver, as the driver makes it."""
    connection: Any
    if on_postgres(url):
        connection = psycopg.connect(for_libpq(url))
    else:
        connection = sqlite3.connect(path_of(url), timeout=30)
    with closing(connection):
        yield connection


def path_of(url: str) -> str:
    """The file of a SQLite URL."""
    return url.removeprefix("sqlite:///").partition("?")[0]


def store_with_clock(url: str, clock: Callable[[], int]) -> Store:
    """A store that takes the time from the test, in microseconds."""
    kind = PostgresStore if on_postgres(url) else SQLiteStore
    return kind(url, clock=clock)
