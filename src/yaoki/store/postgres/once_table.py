"""The table of once(), made alone in a database that holds effects and no queue."""

from contextlib import closing
from typing import Any

import psycopg

from yaoki.core.errors import InvalidOption
from yaoki.store.migrations import migrations
from yaoki.store.postgres import place
from yaoki.store.postgres.connection import connect
from yaoki.store.postgres.failures import translated
from yaoki.store.postgres.migrate import alone, has_table, make_schema, run
from yaoki.store.postgres.statements import DIALECT, Dialect

SCHEMA = "yaoki"
"""Where once() looks for its table, in whatever database."""

TABLE = f"{SCHEMA}.once"


def make_once_table(url: str) -> bool:
    """Make the schema and the table in the database of `url`; False when it is there already.

    The database itself must exist. Nothing else is made in it.
    """
    spot = place.parse(url)
    if spot.schema != SCHEMA:
        raise InvalidOption(
            f"schema={spot.schema!a} in the database URL: the table of once() is always in the "
            f"schema {SCHEMA}"
        )
    with closing(connect(spot)) as line:
        try:
            return _make(line)
        except psycopg.Error as error:
            raise translated(error, spot.shown) from error


def _make(line: psycopg.Connection[Any]) -> bool:
    dialect = Dialect(SCHEMA)
    with line.transaction():
        alone(line)
        if has_table(line, SCHEMA, "once"):
            return False
        make_schema(line, SCHEMA)
        for statement in _statements():
            run(line, statement, dialect)
    return True


def _statements() -> list[str]:
    """Those of the migrations that are about this table."""
    each = (statement for step in migrations(DIALECT) for statement in step.text.split(";\n"))
    return [statement for statement in each if TABLE in statement]
