"""A look at the server and at what is going on there, on connections of its own."""

import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg

from yaoki.core.errors import YaokiError
from yaoki.core.times import in_words
from yaoki.store.examined import Examined
from yaoki.store.postgres.bell import channel_of
from yaoki.store.postgres.connection import Line, connect
from yaoki.store.postgres.failures import translated
from yaoki.store.postgres.migrate import version
from yaoki.store.postgres.opened import OLDEST
from yaoki.store.postgres.place import Place
from yaoki.store.postgres.statements import DIALECT, Dialect, quoted

PATIENCE = 5.0
"""Seconds that the server may take for each answer."""

CLOCK_OFF = 2.0
LONG_TRANSACTION = 600.0
MANY_DEAD = 100_000
NOTIFY_PATIENCE = 2.0

_TABLES = ("jobs", "attempts", "definitions", "workers", "paused", "sleepers", "logs")


def examine(place: Place, dialect: Dialect) -> Examined:
    """What can be told about the database; changes nothing."""
    found = Examined()
    try:
        with closing(connect(place)) as line:
            line.patience = PATIENCE
            _look(found, line, place, dialect)
    except (psycopg.Error, OSError) as error:
        found.usable = False
        found.fail("database", str(translated(error, place.shown)))
    except YaokiError as error:
        found.usable = False
        found.fail("database", str(error))
    return found


def _look(found: Examined, line: Line, place: Place, dialect: Dialect) -> None:
    before = time.time()
    [(number, said, encoding, recovers, only_reads, pid, clock)] = line.execute(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'), "
        "current_setting('server_encoding'), pg_is_in_recovery(), "
        "current_setting('transaction_read_only') = 'on', pg_backend_pid(), "
        "date_part('epoch', clock_timestamp())::float8"
    ).fetchall()
    middle, took = (before + time.time()) / 2, time.time() - before
    what = f"PostgreSQL {said.split()[0]}, {place.shown}, schema {dialect.schema}"
    unfit = _unfit(number, encoding, recovers, only_reads)
    if unfit is not None:
        found.fail("database", f"{what}: {unfit[0]}", unfit[1])
        return
    found.ok("database", what)
    applied = version(line, dialect)
    found.note_tables(applied, DIALECT)
    pooled = pid != line.info.backend_pid
    _look_at_the_clock(found, clock - middle, took)
    _look_at_wake_ups(found, line, place, pooled)
    if applied:
        _look_at_rights(found, line, dialect)
        _look_at_vacuum(found, line, dialect)
    _look_at_transactions(found, line)
    _look_at_connections(found, line)


def _unfit(number: int, encoding: str, recovers: bool, only_reads: bool) -> tuple[str, str] | None:
    if number < OLDEST:
        return "yaoki needs 13 or newer", "upgrade the server"
    if encoding != "UTF8":
        return f"its encoding is {encoding}", "make the database with ENCODING 'UTF8'"
    if recovers:
        return (
            "it is a standby, which only reads",
            "connect to the primary, or name all hosts and target_session_attrs=read-write",
        )
    if only_reads:
        return (
            "transactions only read (default_transaction_read_only)",
            "let the role, or the server, write again",
        )
    return None


def _look_at_the_clock(found: Examined, ahead: float, took: float) -> None:
    if abs(ahead) <= CLOCK_OFF + took:
        found.ok("clock", "this machine's clock and the server's agree")
        return
    way = "ahead of" if ahead > 0 else "behind"
    found.warn(
        "clock",
        f"the server's clock is {in_words(round(abs(ahead), 1))} {way} this machine's",
        "set one of them right: yaoki works by the server's, but what people read is off",
    )


def _look_at_wake_ups(found: Examined, line: Line, place: Place, pooled: bool) -> None:
    if place.wake == "poll":
        found.ok("wake-ups", "workers look once a second (wake=poll)")
        return
    if pooled and place.listen is None:
        found.warn(
            "wake-ups",
            "a connection pooler is in between, which passes no notifications on: workers look "
            "once a second",
            "add listen=URL of a direct connection, and they are woken at once",
        )
        return
    try:
        heard = _hears(line, place)
    except (YaokiError, psycopg.Error, OSError) as error:
        found.warn(
            "wake-ups",
            f"nobody can listen: {error}",
            "workers look once a second until it works; check listen= in the URL",
        )
        return
    if heard:
        found.ok("wake-ups", "notifications arrive, so workers are woken at once")
    else:
        found.warn(
            "wake-ups",
            f"a notification did not arrive within {NOTIFY_PATIENCE:g} s: workers look once a "
            "second",
            "check that listen= in the URL is the same database, with no pooler in between",
        )


def _hears(line: Line, place: Place) -> bool:
    """Does what is notified on one connection arrive on another?"""
    channel = f"{channel_of(place.schema)[:50]}_look_{time.monotonic_ns() % 10**6}"
    with closing(connect(place, listening=True)) as listener:
        listener.patience = PATIENCE
        listener.execute(f"LISTEN {quoted(channel)}".encode())
        line.execute("SELECT pg_notify(%s, '')", [channel])
        return any(listener.notifies(timeout=NOTIFY_PATIENCE, stop_after=1))


def _look_at_rights(found: Examined, line: Line, dialect: Dialect) -> None:
    lacking = [
        f"{right} on {table}"
        for table in _TABLES
        for right in _lacking(line, f"{dialect.prefix}{table}")
    ]
    if lacking:
        found.fail(
            "rights",
            f"the role of the URL has no right of {', '.join(lacking)}",
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "
            f"{quoted(dialect.schema)} TO the role",
        )
    else:
        found.ok("rights", "the role of the URL may use all tables")


def _lacking(line: Line, table: str) -> Iterator[str]:
    rights = ("SELECT", "INSERT", "UPDATE", "DELETE")
    asked = ", ".join("has_table_privilege(oid, %s)" for _ in rights)
    # By its oid, which is NULL while an older schema has no such table.
    statement = f"SELECT {asked} FROM (SELECT to_regclass(%s) AS oid) AS found"
    for row in line.execute(statement.encode(), [*rights, table]).fetchall():
        yield from (right for right, has in zip(rights, row, strict=True) if has is False)


def _look_at_vacuum(found: Examined, line: Line, dialect: Dialect) -> None:
    rows = line.execute(
        "SELECT n_live_tup, n_dead_tup, current_setting('autovacuum') = 'on' "
        "AND NOT coalesce(class.reloptions::text LIKE '%%autovacuum_enabled=false%%', false) "
        "FROM pg_catalog.pg_stat_user_tables AS stats "
        "JOIN pg_catalog.pg_class AS class ON class.oid = stats.relid "
        "WHERE stats.schemaname = %s AND stats.relname = 'jobs'",
        [dialect.schema],
    ).fetchall()
    for live, dead, automatic in rows:
        if not automatic:
            found.warn(
                "vacuum",
                "autovacuum is switched off, so the table of jobs grows and gets slower",
                "switch autovacuum on, for the server and for the table",
            )
        elif dead > MANY_DEAD and dead > 2 * live:
            found.warn(
                "vacuum",
                f"the table of jobs has {dead:,} dead rows beside {live:,} live ones",
                "let long transactions end, which keep vacuum from removing them; then VACUUM",
            )
        else:
            found.ok("vacuum", f"{live:,} rows of jobs, {dead:,} dead ones to be removed")


def _look_at_transactions(found: Examined, line: Line) -> None:
    rows = line.execute(
        "SELECT pid, application_name, state, "
        "date_part('epoch', clock_timestamp() - xact_start)::float8 "
        "FROM pg_catalog.pg_stat_activity "
        "WHERE datname = current_database() AND xact_start IS NOT NULL "
        "AND backend_type = 'client backend' AND pid <> pg_backend_pid() "
        "ORDER BY xact_start LIMIT 1"
    ).fetchall()
    for pid, name, state, seconds in rows:
        if seconds > LONG_TRANSACTION:
            found.warn(
                "transactions",
                f"a transaction of session {pid} ({name or 'without a name'}, {state}) has been "
                f"open for {in_words(round(seconds))}",
                "end it: it keeps dead rows from being removed, and claims get slower",
            )
            return
    found.ok("transactions", f"none has been open for longer than {in_words(LONG_TRANSACTION)}")


def _look_at_connections(found: Examined, line: Line) -> None:
    rows: list[tuple[Any, ...]] = line.execute(
        "SELECT count(*), current_setting('max_connections')::int "
        "FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend'"
    ).fetchall()
    [(used, most)] = rows
    said = f"{used} of at most {most} connections of the server are in use"
    if used > 0.9 * most:
        found.warn(
            "connections", said, "use fewer (pool= in the URL), a pooler, or raise max_connections"
        )
    else:
        found.ok("connections", said)
