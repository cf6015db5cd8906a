"""A caller's connection of asyncpg."""

import asyncio
import re
import sys
from contextlib import suppress
from typing import Any, ClassVar, Literal

from yaoki.core.errors import NotHere, StoreUnavailable, WrongConnection
from yaoki.store.postgres.callers.talk import NOT_IN_YOURS, Commands, Reply, State
from yaoki.store.postgres.statements import Call


class AsyncpgDriver:
    """What fails in a transaction is told by the server only: asyncpg does not say it before."""

    awaits: ClassVar[Literal[True]] = True
    begins_by_itself: ClassVar[bool] = False

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._loop = _running_loop()

    @property
    def raw(self) -> Any:
        # A pool lends a new stand-in each time; the connection in it stays the same.
        raw = getattr(self._connection, "_con", self._connection)
        if raw is None:
            raise WrongConnection(
                "that connection is back in its pool; use it inside: async with pool.acquire()"
            )
        if raw.is_closed():
            raise StoreUnavailable("that connection is closed, or was lost")
        return raw

    @property
    def state(self) -> State:
        return State.OPEN if self.raw.is_in_transaction() else State.IDLE

    @property
    def encoding(self) -> str:
        return str(self.raw.get_settings().client_encoding)

    def is_own(self, error: BaseException) -> bool:
        asyncpg = sys.modules["asyncpg"]
        # An internal error is what a connection raises that was ended while it was idle.
        own = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
        return isinstance(error, own)

    async def say(self, commands: Commands) -> None:
        await self.raw.execute("; ".join(commands.texts))

    async def ask(self, call: Call) -> Reply:
        # Not fetch(): it would convert values as the caller wants them for himself, and does not
        # tell how many rows were changed.
        rows, status, _ = await self.raw._execute(
            _LIST.sub(r"\1::text::\2[]", call.text),
            [_literal(value) if isinstance(value, list) else value for value in call.values],
            0,
            None,
            return_status=True,
            record_class=sys.modules["asyncpg"].Record,
            ignore_custom_codec=True,
        )
        changed = status.split()[-1] if status else b""
        return Reply(
            [tuple(row.values()) for row in rows],
            int(changed) if changed.isdigit() else 0,
            list(rows[0].keys()) if rows else (),
        )

    async def begin(self) -> None:
        if self.raw.is_in_transaction():
            raise NotHere(NOT_IN_YOURS)
        await self.raw.execute("BEGIN")

    async def commit(self) -> None:
        await self.raw.execute("COMMIT")

    async def roll_back(self) -> None:
        await self.raw.execute("ROLLBACK")

    def cut(self) -> None:
        with suppress(RuntimeError):  # its loop has ended, and its connections with it
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._connection.terminate)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


_LIST = re.compile(r"(\$\d+)::(bigint|text)\[\]")


def _literal(values: list[Any]) -> str:
    """A list as PostgreSQL writes it: asyncpg would have to ask how its owner wants them read."""
    return "{" + ",".join(map(_element, values)) + "}"


def _element(value: object) -> str:
    if value is None:
        return "NULL"
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'
