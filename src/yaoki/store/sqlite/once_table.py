"""The table of once(), made alone in a database that holds effects and no queue."""

import sqlite3
from contextlib import closing
from pathlib import Path

from yaoki.core.errors import InvalidOption, StoreUnavailable
from yaoki.store.migrations import migrations
from yaoki.store.sqlite import place
from yaoki.store.sqlite.connection import DIALECT, begin, roll_back, translated
from yaoki.store.sqlite.migrate import statements

TABLE = "yaoki_once"


def make_once_table(url: str) -> bool:
    """Make the table in the file of `url`, and nothing else; False when it is there already.

    The file itself must exist, and its journal mode stays as its owner chose it.
    """
    spot = place.parse(url)
    if spot.path is None:
        raise InvalidOption(f"{url}: name the file in which your effects are kept")
    path = spot.path.absolute()
    if not path.exists():
        raise StoreUnavailable(f"there is no database {path}; make it first, or check the name")
    place.check(path)
    try:
        return _make(path, spot.busy_timeout)
    except sqlite3.Error as error:
        raise translated(error, path) from error


def _make(path: Path, busy_timeout: float) -> bool:
    uri = f"{path.as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as connection:
        begin(connection, busy_timeout)
        try:
            made = not _is_there(connection)
            for statement in _statements() if made else ():
                connection.execute(statement)
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
    return made


def _is_there(connection: sqlite3.Connection) -> bool:
    named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    return connection.execute(named, (TABLE,)).fetchone() is not None


def _statements() -> list[str]:
    """Those of the migrations that are about this table."""
    each = (statement for step in migrations(DIALECT) for statement in statements(step.text))
    return [statement for statement in each if TABLE in statement]
