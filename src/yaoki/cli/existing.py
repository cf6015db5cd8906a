"""Commands that only read make nothing: is their database there, with our tables in it?"""

import sqlite3
from contextlib import closing
from pathlib import Path

from yaoki.app import DEFAULT_URL, Yaoki
from yaoki.cli.exits import CommandFailed
from yaoki.core.errors import YaokiError
from yaoki.store import SQLiteStore, without_password
from yaoki.store.sqlite import place
from yaoki.store.sqlite.migrate import version


def must_exist(client: Yaoki) -> None:
    """CommandFailed, or whatever keeps the database from being looked at."""
    if isinstance(client.store, SQLiteStore):
        _must_be_a_file(client.url)
    else:
        _must_have_tables(client.url)


def _must_have_tables(url: str) -> None:
    from yaoki.store.postgres import place
    from yaoki.store.postgres.opened import has_tables
    from yaoki.store.postgres.statements import Dialect

    spot = place.parse(url)
    if not has_tables(spot, Dialect(spot.schema)):
        raise CommandFailed(
            f"{spot.shown} has no tables of yaoki yet; {_MAKE.format(url=without_password(url))}"
        )


def _must_be_a_file(url: str) -> None:
    path = place.parse(url).path
    if path is None:
        raise CommandFailed(
            f"{url} is private to each process, so there is nothing in it; {_NAME_ONE}"
        )
    if not path.exists():
        default = ", the default" if url == DEFAULT_URL else ""
        raise CommandFailed(f"there is no database {path.absolute()} ({url}{default}); {_NAME_ONE}")
    if _has_no_tables(path):
        raise CommandFailed(
            f"{path.absolute()} has no tables of yaoki yet; {_MAKE.format(url=url)}"
        )


def _has_no_tables(path: Path) -> bool:
    try:
        uri = f"{path.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=5)) as connection:
            return version(connection) == 0
    except (sqlite3.Error, YaokiError):  # opening it in earnest says what is wrong
        return False


_MAKE = "make them with: yaoki --url {url} migrate"
_NAME_ONE = (
    "name one with --url sqlite:///path/to/jobs.db, --url postgresql://user@host/database or "
    "--app module:attribute (or YAOKI_URL, YAOKI_APP)"
)
