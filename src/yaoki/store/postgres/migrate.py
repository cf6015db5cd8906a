"""Bringing a schema up to date: numbered steps, one migrator at a time, nobody kept waiting."""

import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors

from yaoki.core.errors import StoreBusy, StoreError
from yaoki.store import sql
from yaoki.store.migrations import Migration, migrations, missing
from yaoki.store.postgres.statements import DIALECT, Dialect, quoted

LOCK_TIMEOUT = 0.25
"""Seconds that a migration may stand in the line for a table: everybody behind it waits too."""

PATIENCE = 60.0
"""Seconds after which a migration that never got its locks, or its turn, gives up."""

BESIDE_OTHERS = re.compile(r"CREATE (?:UNIQUE )?INDEX CONCURRENTLY (\w+)[^;]+")
"""The only statements of a step that makes indexes while others write to the tables."""

_ALONE = 0x7961_6F6B_6900_0001
"""The advisory lock of migrators (`yaoki` in hexadecimal, and a number)."""

_LEDGER = """
CREATE TABLE yaoki.migrations (
    number     bigint      NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT statement_timestamp()
)
"""


def version(line: psycopg.Connection[Any], dialect: Dialect) -> int:
    """The number of the last migration that was applied; 0 where there are no tables of ours."""
    if not has_table(line, dialect.schema, "migrations"):
        return 0
    ledger = f"{dialect.prefix}migrations"
    [(number,)] = line.execute(f"SELECT coalesce(max(number), 0) FROM {ledger}").fetchall()
    return int(number)


def not_applied(line: psycopg.Connection[Any], dialect: Dialect) -> list[Migration]:
    """What this schema lacks; SchemaTooNew when this program is the older one."""
    return missing(migrations(DIALECT), version(line, dialect))


def migrate(line: psycopg.Connection[Any], dialect: Dialect) -> list[str]:
    """Apply what is missing; of two at once, the second waits and finds nothing to do.

    Each step is a transaction of its own that waits at most LOCK_TIMEOUT for a table, and is
    tried again when it did not get it: claims that stand behind it are held up no longer.
    """
    before = version(line, dialect)
    if not missing(migrations(DIALECT), before):
        return []
    applied: list[str] = []
    try:
        with _its_turn(line):
            # Asked again, now that nobody else is at it.
            for step in not_applied(line, dialect):
                _apply(line, step, dialect)
                applied.append(f"{step.number:04} {step.name}")
    except errors.InsufficientPrivilege as error:
        said = str(error).splitlines()[0]
        raise StoreError(_who_may(said, before, dialect)) from error
    return applied


def _who_may(said: str, before: int, dialect: Dialect) -> str:
    if before:
        return (
            f"the tables are of schema {before}, which is older than this yaoki, and the role of "
            f"the URL may not change them ({said}); run yaoki migrate as their owner"
        )
    return (
        f"the role of the URL may not make the tables ({said}); run yaoki migrate as the owner of "
        f"the database, or: CREATE SCHEMA {quoted(dialect.schema)} AUTHORIZATION that role"
    )


def alone(line: psycopg.Connection[Any]) -> None:
    """Until the transaction that has just begun ends, no other migrator is at it.

    No lock is waited for long in it. It is asked for again and again and not waited for: who
    waits has a snapshot, and whoever makes an index waits for everybody who has an older one.
    """
    _sit_still(line)
    _wait_for(lambda: _is_next(line))
    _wait_only_briefly(line)


def _sit_still(line: psycopg.Connection[Any]) -> None:
    """In the transaction that has just begun: keep no snapshot, and be put out by nobody."""
    line.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    line.execute("SET LOCAL idle_in_transaction_session_timeout = 0")


def _wait_for(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not fact():
        if time.monotonic() > deadline:
            raise StoreBusy(
                f"another process has been changing the tables for {PATIENCE:g} s; wait until it "
                "is done, then try again"
            )
        time.sleep(random.uniform(0.02, 0.1))


def _is_next(line: psycopg.Connection[Any]) -> bool:
    # With parameters the server would keep the statement's portal, and in it its snapshot.
    asked = f"SELECT pg_try_advisory_xact_lock({_ALONE})"
    [(granted,)] = line.execute(asked.encode()).fetchall()
    return bool(granted)


def _stays(guard: psycopg.Connection[Any]) -> bool:
    """Is it next? Else it lets go of its session: a pooler may have none left for who works."""
    _sit_still(guard)
    if not _is_next(guard):
        guard.rollback()
        return False
    return True


@contextmanager
def _its_turn(line: psycopg.Connection[Any]) -> Iterator[None]:
    """No other migrator is at it, whatever transactions there are meanwhile on `line`."""
    dsn, password = line.info.dsn, line.info.password or None
    with closing(psycopg.connect(dsn, password=password, prepare_threshold=None)) as guard:
        _wait_for(lambda: _stays(guard))
        yield


def _apply(line: psycopg.Connection[Any], step: Migration, dialect: Dialect) -> None:
    deadline = time.monotonic() + PATIENCE
    beside_others = BESIDE_OTHERS.search(step.text) is not None
    apply = _apply_beside_others if beside_others else _apply_at_once
    while True:
        try:
            return apply(line, step, dialect)
        except (errors.LockNotAvailable, errors.DeadlockDetected) as error:
            if time.monotonic() > deadline:
                raise StoreBusy(
                    "the tables are in use by a transaction that does not end, so they could not "
                    f"be changed within {PATIENCE:g} s; nothing is half done, try again later"
                ) from error
            time.sleep(random.uniform(0.2, 0.6))


def _apply_at_once(line: psycopg.Connection[Any], step: Migration, dialect: Dialect) -> None:
    with line.transaction():
        line.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
        _wait_only_briefly(line)
        if not has_table(line, dialect.schema, "migrations"):
            make_schema(line, dialect.schema)
            run(line, _LEDGER, dialect)
        run(line, step.text, dialect)
        _note(line, step, dialect)


def _apply_beside_others(line: psycopg.Connection[Any], step: Migration, dialect: Dialect) -> None:
    """Each index by itself, outside of a transaction, for as long as it takes."""
    for found in BESIDE_OTHERS.finditer(step.text):
        statement, name = found.group(), found[1]
        with _waiting(line, PATIENCE):
            _drop_unfinished(line, name, dialect)
        if has_table(line, dialect.schema, name):
            continue
        try:
            with _waiting(line, PATIENCE):
                run(line, statement, dialect)
        except psycopg.Error:
            # If even that has to wait, the next try begins with it.
            with suppress(psycopg.Error), _waiting(line, LOCK_TIMEOUT):
                _drop_unfinished(line, name, dialect)
            raise
    _note(line, step, dialect)


def _drop_unfinished(line: psycopg.Connection[Any], name: str, dialect: Dialect) -> None:
    """An index that was begun and not finished is there, and of no use."""
    unfinished = line.execute(
        "SELECT FROM pg_catalog.pg_class AS relation "
        "JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace "
        "JOIN pg_catalog.pg_index AS index ON index.indexrelid = relation.oid "
        "WHERE namespace.nspname = %s AND relation.relname = %s AND NOT index.indisvalid",
        [dialect.schema, name],
    )
    if unfinished.rowcount:
        line.execute(f"DROP INDEX CONCURRENTLY {dialect.prefix}{quoted(name)}".encode())


def _note(line: psycopg.Connection[Any], step: Migration, dialect: Dialect) -> None:
    line.execute(
        f"INSERT INTO {dialect.prefix}migrations (number, name) VALUES (%s, %s)".encode(),
        [step.number, step.name],
    )


def _wait_only_briefly(line: psycopg.Connection[Any]) -> None:
    """For tables; and be stopped by no clock of the role's in the middle of the work."""
    line.execute("SET LOCAL statement_timeout = 0")
    line.execute(f"SET LOCAL lock_timeout = {round(LOCK_TIMEOUT * 1000)}")


@contextmanager
def _waiting(line: psycopg.Connection[Any], seconds: float) -> Iterator[None]:
    """At most so long for each lock, but work without an end; outside of a transaction."""
    settings = {"statement_timeout": 0, "lock_timeout": round(seconds * 1000)}
    [(pid,)] = line.execute("SELECT pg_backend_pid()").fetchall()
    if pid != line.info.backend_pid:
        # A pooler that shares sessions is in between: a setting would stay with somebody else.
        settings = {}
    for name, value in settings.items():
        line.execute(f"SET {name} = {value}".encode())
    try:
        yield
    finally:
        for name in settings:
            with suppress(psycopg.Error):
                line.execute(f"RESET {name}".encode())


def has_table(line: psycopg.Connection[Any], schema: str, name: str) -> bool:
    """Not by `to_regclass`: that answers from a cache which, after a wait for an advisory lock,
    does not know yet what the one before has made."""
    found = line.execute(
        "SELECT FROM pg_catalog.pg_class AS relation "
        "JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace "
        "WHERE namespace.nspname = %s AND relation.relname = %s",
        [schema, name],
    )
    return found.rowcount > 0


def make_schema(line: psycopg.Connection[Any], name: str) -> None:
    """Only when it is not there: IF NOT EXISTS needs the right to make one even so."""
    there = line.execute("SELECT FROM pg_catalog.pg_namespace WHERE nspname = %s", [name])
    if there.rowcount == 0:
        line.execute(f"CREATE SCHEMA {quoted(name)}".encode())


def run(line: psycopg.Connection[Any], text: str, dialect: Dialect) -> None:
    """Every statement of a script, in the open transaction."""
    line.execute(sql.qualified(text, dialect.prefix).encode())
