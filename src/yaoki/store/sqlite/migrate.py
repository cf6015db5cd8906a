"""Bringing a SQLite file's tables up to date: numbered steps, one migrator at a time."""

import sqlite3

from yaoki.store.migrations import migrations, missing
from yaoki.store.sqlite.connection import DIALECT, begin, roll_back

_LEDGER = """
CREATE TABLE IF NOT EXISTS yaoki_migrations (
    number     INTEGER NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    applied_at TEXT    NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
)
"""


def version(connection: sqlite3.Connection) -> int:
    """The number of the last migration that was applied; 0 for a file without our tables."""
    ledger = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'yaoki_migrations'"
    if connection.execute(ledger).fetchone() is None:
        return 0
    [number] = connection.execute("SELECT max(number) FROM yaoki_migrations").fetchone()
    return number or 0


def migrate(connection: sqlite3.Connection, busy_timeout: float) -> list[str]:
    """Apply what is missing in one transaction; of two at once, the second waits and finds none."""
    if not missing(migrations(DIALECT), version(connection)):
        return []
    begin(connection, busy_timeout)
    try:
        steps = missing(migrations(DIALECT), version(connection))
        connection.execute(_LEDGER)
        for migration in steps:
            for statement in statements(migration.text):
                connection.execute(statement)
            connection.execute(
                "INSERT INTO yaoki_migrations (number, name) VALUES (?, ?)",
                (migration.number, migration.name),
            )
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    return [f"{migration.number:04} {migration.name}" for migration in steps]


def statements(text: str) -> list[str]:
    """The statements of a script, as SQLite itself tells where each ends."""
    found, buffer = [], ""
    for line in text.splitlines(keepends=True):
        buffer += line
        if sqlite3.complete_statement(buffer):
            found.append(buffer.strip())
            buffer = ""
    return found
