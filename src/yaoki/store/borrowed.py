"""Operations on a caller's connection, whatever database it leads to."""

from typing import Any, TypeVar

from yaoki.core.errors import NotInTransaction, StoreError
from yaoki.store.op import Op
from yaoki.store.postgres.callers import once as postgres
from yaoki.store.sqlite import callers
from yaoki.store.sqlite.connection import host_clock

T = TypeVar("T")


def run_in_transaction(connection: Any, op: Op[T]) -> T:
    """Run `op` in the open transaction of `connection`; NotInTransaction when there is none."""
    if _leads_to_postgres(connection):
        return postgres.run_in_transaction(connection, op)
    raw = callers.borrow(connection).raw
    callers.check_usable(raw)
    if not raw.in_transaction and not callers.begins_by_itself(raw):
        raise NotInTransaction(
            "this connection commits each statement by itself, so the key would be stored before "
            "its effect; begin a transaction first (BEGIN IMMEDIATE, or transaction.atomic())"
        )
    try:
        return callers.run_on(raw, op, host_clock, None)
    except StoreError as error:
        if "no such table: yaoki_once" in str(error):
            raise StoreError(
                "this database has no table of what was done once; make it with: "
                f"yaoki migrate --once sqlite:///{callers.database_of(raw)}"
            ) from error
        raise


async def arun_in_transaction(connection: Any, op: Op[T]) -> T:
    """The same, also for connections that have to be awaited."""
    if _leads_to_postgres(connection):
        return await postgres.arun_in_transaction(connection, op)
    return run_in_transaction(connection, op)


def _leads_to_postgres(connection: Any) -> bool:
    families = {kind.__module__.partition(".")[0] for kind in type(connection).__mro__}
    if "django" in families:
        return getattr(connection, "vendor", "") == "postgresql"
    if "sqlalchemy" in families:
        return _dialect(connection) == "postgresql"
    return not families.isdisjoint(("psycopg", "psycopg2", "asyncpg"))


def _dialect(connection: Any) -> str:
    """SQLAlchemy's name for the kind of database; "" for what is no connection."""
    bound = connection.get_bind() if hasattr(connection, "get_bind") else connection
    return str(getattr(getattr(bound, "dialect", None), "name", ""))
