"""Operations on the table of once(), in the transaction of any connection to PostgreSQL."""

from typing import Any, TypeVar

from yaoki.core.errors import NotHere, NotInTransaction, StoreError
from yaoki.store.op import Op
from yaoki.store.postgres.callers.kinds import AsyncCaller, recognised
from yaoki.store.postgres.callers.talk import (
    Borrowed,
    State,
    Talk,
    aconverse,
    converse,
    problem,
    sqlstate,
)
from yaoki.store.postgres.callers.whole import Manner, check_usable, whole
from yaoki.store.postgres.statements import Call, Dialect

T = TypeVar("T")

SCHEMA = "yaoki"
"""Where the table of once() is, in whatever database; a queue's own schema may be another."""

_MANNER = Manner(Dialect(SCHEMA))


def run_in_transaction(connection: Any, op: Op[T]) -> T:
    """Run `op` in the open transaction of `connection`; NotInTransaction when there is none."""
    caller = recognised(connection)
    if isinstance(caller, AsyncCaller):
        raise NotHere("that connection has to be awaited; write: await yaoki.aonce(connection, …)")
    driver = caller.borrow()
    try:
        return converse(_once(op, driver), driver)
    except Exception as error:
        found = problem(error, driver, "the database")
        if found is None:
            raise
        raise found from error


async def arun_in_transaction(connection: Any, op: Op[T]) -> T:
    """The same for connections that have to be awaited; for the others it blocks."""
    caller = recognised(connection)
    if not isinstance(caller, AsyncCaller):
        return run_in_transaction(connection, op)
    driver = await caller.borrow()
    try:
        return await aconverse(_once(op, driver), driver)
    except Exception as error:
        found = problem(error, driver, "the database")
        if found is None:
            raise
        raise found from error


def _once(op: Op[T], driver: Borrowed) -> Talk[T]:
    check_usable(driver)
    if driver.state is State.IDLE and not driver.begins_by_itself:
        raise NotInTransaction(
            "this connection commits each statement by itself, so the key would be stored before "
            "its effect; begin a transaction first (connection.transaction(), transaction.atomic())"
        )
    try:
        return (yield from whole(op, _MANNER, driver))
    except Exception as error:
        if sqlstate(error) != "42P01":
            raise
        # In the savepoint before which everything is as it was: the transaction goes on.
        [(name,)] = (yield Call("SELECT current_database()::text", ())).rows
        raise StoreError(
            "this database has no table of what was done once; make it with: "
            f"yaoki migrate --once postgresql://…/{name}"
        ) from error
