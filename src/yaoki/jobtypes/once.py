"""Doing something once, however often the job that does it runs."""

from datetime import timedelta
from typing import Any

from yaoki.core import names
from yaoki.core.times import micros
from yaoki.jobtypes.context import running
from yaoki.store.borrowed import arun_in_transaction, run_in_transaction
from yaoki.store.ops.once import Once

NINETY_DAYS = timedelta(days=90)


def once(
    connection: Any, key: str, *, scope: str | None = None, keep: timedelta = NINETY_DAYS
) -> bool:
    """True the first time that this key is recorded, False ever after.

    The key is recorded in the transaction of `connection` (of sqlite3, psycopg or psycopg2, a
    SQLAlchemy Connection or Session, or a Django connection), so it is there exactly if the effect
    beside it is. Of two transactions with one key at the same instant, the second waits for the
    first. Raises NotInTransaction when there is no transaction to be part of.

    Keys are apart by `scope`: the type of the running job unless said. They are kept for `keep`.
    The table is there in the queue's own database; elsewhere `yaoki migrate --once URL` makes it.
    """
    return run_in_transaction(connection, _once(key, scope, keep))


async def aonce(
    connection: Any, key: str, *, scope: str | None = None, keep: timedelta = NINETY_DAYS
) -> bool:
    """The same, awaiting: for connections of asyncpg, psycopg's async and SQLAlchemy's async."""
    return await arun_in_transaction(connection, _once(key, scope, keep))


def _once(key: str, scope: str | None, keep: timedelta) -> Once:
    attempt = running()
    if scope is None:
        scope = "" if attempt is None else attempt.job.type
    return Once(scope, names.check_key(key), micros(keep, "keep"))
