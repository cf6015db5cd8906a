"""An operation inside somebody's transaction: all of it, or nothing of it."""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from yaoki.core.errors import NotInTransaction, StoreBusy
from yaoki.store.op import Interfered, Op
from yaoki.store.postgres.callers.talk import (
    ROLL_BACK_FIRST,
    Borrowed,
    Commands,
    State,
    Talk,
    sqlstate,
)
from yaoki.store.postgres.statements import BEGIN, BEGIN_READING, Dialect, answer, quoted

log = logging.getLogger("yaoki.store")

T = TypeVar("T")

TRIES = 5
"""How often an operation is run when other transactions keep coming in its way."""

SAVEPOINT = "SAVEPOINT yaoki"
UNDO = ("ROLLBACK TO SAVEPOINT yaoki", "RELEASE SAVEPOINT yaoki")
UTF8 = "SET LOCAL client_encoding TO 'UTF8'"


class Manner(NamedTuple):
    """How operations of one store are written, and who is told of new jobs."""

    dialect: Dialect
    channel: str | None = None
    """Where NOTIFY goes; None for nowhere."""
    ring: Callable[[], None] = lambda: None
    """Wakes those of this process, after a commit that we know of."""


def whole(op: Op[T], manner: Manner, driver: Borrowed) -> Talk[T]:
    """Run `op`; after an error of ours the caller's transaction is as it was before.

    Where no transaction is open and none begins by itself, it is one of its own.
    """
    check_usable(driver)
    alone = driver.state is State.IDLE and not driver.begins_by_itself
    encoding = _other_encoding(driver)
    for _ in range(TRIES):
        try:
            if not op.writes and not (alone and op.atomic) and encoding is None:
                return (yield from statements(op, manner.dialect))
            if alone:
                return (yield from _alone(op, manner, encoding))
            if op.atomic or encoding is not None:
                return (yield from _within(op, manner, encoding))
            return (yield from _beside(op, manner))
        except Interfered:
            continue
        except Exception as error:
            if not (alone and sqlstate(error) in ("40001", "40P01")):
                raise
    raise StoreBusy(
        "other transactions came in the way again and again; roll yours back, and try the whole "
        "of it again"
    )


def check_usable(driver: Borrowed) -> None:
    """NotInTransaction when the transaction can only be rolled back."""
    if driver.state is State.FAILED:
        raise NotInTransaction(ROLL_BACK_FIRST)


def _alone(op: Op[T], manner: Manner, encoding: str | None) -> Talk[T]:
    begin = BEGIN if op.writes else BEGIN_READING
    begun = False
    try:
        yield Commands([begin, *([UTF8] if encoding else []), *_notify(op, manner)])
        begun = True
        value = yield from statements(op, manner.dialect)
        yield Commands(["COMMIT"])
    except GeneratorExit:
        raise
    except BaseException as error:
        # Who is cancelled while it begins may have begun; an error says that nothing was.
        if begun or not isinstance(error, Exception):
            yield from _undo("ROLLBACK")
        raise
    if op.wakes:
        manner.ring()
    return value


def _within(op: Op[T], manner: Manner, encoding: str | None) -> Talk[T]:
    """In a savepoint, and in an encoding that has every character, whatever the caller's is."""
    into, back = [], []
    if encoding is not None:
        into, back = [UTF8], [f"SET LOCAL client_encoding TO '{encoding}'"]
    yield Commands([SAVEPOINT, *into, *_notify(op, manner)])
    try:
        value = yield from statements(op, manner.dialect)
    except GeneratorExit:
        raise
    except BaseException:
        yield from _undo(*UNDO)
        raise
    yield Commands([*back, "RELEASE SAVEPOINT yaoki"])
    return value


def _beside(op: Op[T], manner: Manner) -> Talk[T]:
    """Without a savepoint: an error of ours comes before it has changed anything."""
    if notify := _notify(op, manner):
        yield Commands(notify)
    return (yield from statements(op, manner.dialect))


def _other_encoding(driver: Borrowed) -> str | None:
    """The client's encoding, when it is one that lacks characters."""
    # PgBouncer repeats what it was told: of asyncpg, 'utf-8' in quotes.
    encoding = driver.encoding.strip("'")
    return None if encoding.upper().replace("-", "") in ("UTF8", "UNICODE") else encoding


def _notify(op: Op[Any], manner: Manner) -> list[str]:
    # PostgreSQL sends it with the commit, and once, however often it was said.
    if manner.channel is None or not op.wakes:
        return []
    return [f"NOTIFY {quoted(manner.channel)}"]


def _undo(*texts: str) -> Talk[None]:
    """What went wrong matters more than that it could not be undone: then the line is broken."""
    try:
        yield Commands(texts)
    except Exception as error:
        log.debug("could not undo an operation on a caller's connection: %s", error)


def statements(op: Op[T], dialect: Dialect) -> Talk[T]:
    """The operation itself, in whatever transaction there is."""
    steps = op.steps()
    try:
        statement = next(steps)
        while True:
            calls, now = dialect.calls(statement)
            for call in calls:
                reply = yield call
            timed = bool(reply.columns) and reply.columns[-1] == "now"
            statement = steps.send(answer(reply.rows, reply.changed, timed, now))
    except StopIteration as end:
        value: T = end.value
        return value
