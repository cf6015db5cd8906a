"""A caller's connection of psycopg2."""

import re
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from yaoki.store.postgres.callers.talk import Commands, Reply, State, cut_off
from yaoki.store.postgres.statements import Call


class Psycopg2Driver:
    """Values go into the text as ASCII, and texts come back as bytes.

    So neither the adapters and types that a caller registered matter, nor the encoding that
    psycopg2 believes in, which it does not ask the server for.
    """

    awaits: ClassVar[Literal[False]] = False

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    @property
    def state(self) -> State:
        return State.of_libpq(self.raw.get_transaction_status())

    @property
    def begins_by_itself(self) -> bool:
        return not self.raw.autocommit

    @property
    def encoding(self) -> str:
        return str(self.raw.get_parameter_status("client_encoding") or "UTF8")

    def is_own(self, error: BaseException) -> bool:
        return isinstance(error, sys.modules["psycopg2"].Error | OSError)

    def say(self, commands: Commands) -> None:
        with self._cursor() as cursor:
            cursor.execute("; ".join(commands.texts).encode())

    def ask(self, call: Call) -> Reply:
        with self._cursor() as cursor:
            cursor.execute(_filled(call))
            if cursor.description is None:
                return Reply([], cursor.rowcount, ())
            columns = [column.name for column in cursor.description]
            rows = [tuple(map(_decoded, row)) for row in cursor.fetchall()]
            return Reply(rows, cursor.rowcount, columns)

    def begin(self) -> None:
        if self.raw.autocommit and self.state is State.IDLE:
            self.say(Commands(["BEGIN"]))

    def commit(self) -> None:
        self._end("COMMIT", self.raw.commit)

    def roll_back(self) -> None:
        self._end("ROLLBACK", self.raw.rollback)

    def cut(self) -> None:
        cut_off(self.raw.cancel, self.raw.fileno)

    def _end(self, word: str, act: Callable[[], None]) -> None:
        # In autocommit mode it does not know of a transaction that was begun in words.
        if self.raw.autocommit:
            self.say(Commands([word]))
        else:
            act()

    def _cursor(self) -> Any:
        extensions = sys.modules["psycopg2.extensions"]
        cursor = extensions.cursor(self.raw)
        for name in ("BYTES", "INTEGER", "LONGINTEGER", "BOOLEAN", "DECIMAL"):
            extensions.register_type(getattr(extensions, name), cursor)
        return cursor


def _filled(call: Call) -> bytes:
    """The text with its values in it; each placeholder has a cast behind it."""
    return _PLACE.sub(lambda found: _literal(call.values[int(found[1]) - 1]), call.text).encode()


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(_literal, value))}]" if value else "'{}'"
    text = str(value).replace("\\", "\\\\").replace("'", "''")
    return f"E'{_NOT_ASCII.sub(_escaped, text)}'"


def _escaped(found: re.Match[str]) -> str:
    return f"\\U{ord(found[0]):08x}"


def _decoded(value: object) -> object:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


_PLACE = re.compile(r"\$(\d+)(?=::)")
_NOT_ASCII = re.compile(r"[^\x01-\x7f]")
