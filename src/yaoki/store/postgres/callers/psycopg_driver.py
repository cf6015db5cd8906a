"""A caller's connection of psycopg 3."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any, ClassVar, Literal

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.numeric import Int8

from yaoki.core.errors import NotHere
from yaoki.store.postgres.callers.talk import (
    CANCEL_PATIENCE,
    NOT_IN_YOURS,
    Commands,
    Reply,
    State,
    cut_off,
)
from yaoki.store.postgres.connection import PLAIN
from yaoki.store.postgres.statements import Call


def _typed(values: Sequence[Any]) -> list[Any]:
    """psycopg takes the smallest type for a list of numbers, and that of another list for it."""
    return [_bigints(value) if isinstance(value, list) else value for value in values]


def _bigints(values: list[Any]) -> list[Any]:
    return [Int8(value) if isinstance(value, int) else value for value in values]


class _Cursor(psycopg.RawCursor[tuple[Any, ...]]):
    adapters = PLAIN


class _AsyncCursor(psycopg.AsyncRawCursor[tuple[Any, ...]]):
    adapters = PLAIN


class _Psycopg:
    """What blocking and awaiting connections have in common."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    @property
    def state(self) -> State:
        return State.of_libpq(self.raw.pgconn.transaction_status)

    @property
    def begins_by_itself(self) -> bool:
        return not self.raw.autocommit

    @property
    def encoding(self) -> str:
        return (self.raw.pgconn.parameter_status(b"client_encoding") or b"UTF8").decode()

    def is_own(self, error: BaseException) -> bool:
        return isinstance(error, psycopg.Error | OSError)

    def cut(self) -> None:
        cut_off(self._cancel, lambda: self.raw.pgconn.socket)

    def _cancel(self) -> None:
        self.raw.cancel()

    def _begin(self) -> list[str]:
        # In a `with connection.transaction()`, psycopg lets nobody else commit.
        if getattr(self.raw, "_num_transactions", 0):
            raise NotHere(NOT_IN_YOURS)
        return ["BEGIN"] if self.raw.autocommit and self.state is State.IDLE else []

    def _pipeline(self) -> Any:
        """In a pipeline of its owner's: one within it, at whose end the answers are there."""
        return self.raw.pipeline() if self.raw.pgconn.pipeline_status else None

    def _messages(self, commands: Commands) -> list[bytes]:
        if self.raw.pgconn.pipeline_status:
            return [text.encode() for text in commands.texts]
        return ["; ".join(commands.texts).encode()]


class PsycopgDriver(_Psycopg):
    awaits: ClassVar[Literal[False]] = False

    def say(self, commands: Commands) -> None:
        cursor = _Cursor(self.raw, row_factory=tuple_row)
        with self._pipeline() or nullcontext():
            for message in self._messages(commands):
                cursor.execute(message, prepare=False)

    def ask(self, call: Call) -> Reply:
        cursor = _Cursor(self.raw, row_factory=tuple_row)
        with self._pipeline() or nullcontext():
            cursor.execute(call.text.encode(), _typed(call.values), binary=True)
        if cursor.description is None:
            return Reply([], cursor.rowcount, ())
        columns = [column.name for column in cursor.description]
        return Reply(cursor.fetchall(), cursor.rowcount, columns)

    def _cancel(self) -> None:
        self.raw.cancel_safe(timeout=CANCEL_PATIENCE)

    def begin(self) -> None:
        if begin := self._begin():
            self.say(Commands(begin))

    def commit(self) -> None:
        self.raw.commit()

    def roll_back(self) -> None:
        self.raw.rollback()


class AsyncPsycopgDriver(_Psycopg):
    awaits: ClassVar[Literal[True]] = True

    async def say(self, commands: Commands) -> None:
        cursor = _AsyncCursor(self.raw, row_factory=tuple_row)
        async with self._pipeline() or nullcontext():
            for message in self._messages(commands):
                await cursor.execute(message, prepare=False)

    async def ask(self, call: Call) -> Reply:
        cursor = _AsyncCursor(self.raw, row_factory=tuple_row)
        async with self._pipeline() or nullcontext():
            await cursor.execute(call.text.encode(), _typed(call.values), binary=True)
        if cursor.description is None:
            return Reply([], cursor.rowcount, ())
        columns = [column.name for column in cursor.description]
        return Reply(await cursor.fetchall(), cursor.rowcount, columns)

    async def begin(self) -> None:
        if begin := self._begin():
            await self.say(Commands(begin))

    async def commit(self) -> None:
        await self.raw.commit()

    async def roll_back(self) -> None:
        await self.raw.rollback()
