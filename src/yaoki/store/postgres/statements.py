"""Statements as PostgreSQL takes them, whichever driver carries them there."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from yaoki.core.job import COLUMNS, Row
from yaoki.store import sql
from yaoki.store.op import Answer, Params, Statement

DIALECT = "postgres"

NOW = "((date_part('epoch', statement_timestamp()) * 1000000)::bigint)"
"""Microseconds, when the statement began. (`now()` is when a caller's transaction began, and an
index is of no use for `clock_timestamp()`, which differs from row to row.)"""

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
NOT_DURABLE = "SET LOCAL synchronous_commit = off"
"""How our transactions begin, whatever a role's defaults are."""

Clock = Callable[[], int]


class Call(NamedTuple):
    """One message to the server: a text with `$1::type` in it, and what to bind."""

    text: str
    values: Sequence[Any]


class Dialect(NamedTuple):
    """How statements are written for one schema; with `clock`, not by the database's clock."""

    schema: str
    clock: Clock | None = None

    @property
    def prefix(self) -> str:
        """What `yaoki.` becomes."""
        return f"{quoted(self.schema)}."

    def calls(self, statement: Statement) -> tuple[list[Call], int]:
        """The messages of a statement, and the instant bound to `:now` (0: the server's own)."""
        now = 0
        params = statement.params
        if self.clock is not None:
            params["now"] = now = self.clock()
        texts = _texts(statement.name, statement.text, self.prefix, self.clock is not None)
        if statement.many is None:
            return [Call(text, values(params)) for text, values in texts], now
        if _takes_many(statement.name):
            params["many"] = _encode(statement.many).decode()
            return [Call(text, values(params)) for text, values in texts], now
        each = [params | one for one in statement.many]
        return [Call(text, values(one)) for text, values in texts for one in each], now


def changes(statement: Statement) -> bool:
    """Does it write? Who has only read wakes nobody."""
    return statement.text is None and _writes(statement.name)


def answer(rows: list[Row], changed: int, timed: bool, now: int) -> Answer:
    """What the last message of a statement brought.

    A `timed` one has a last column `now`: the instant at which it ran, and no part of the rows.
    Then a row may hold nothing else, and is none: it only brings the time.
    """
    if timed:
        if rows:
            now = rows[0][-1]
        rows = [row[:-1] for row in rows if row[0] is not None]
    return Answer(rows, changed, rows[0][0] if rows else None, now)


def quoted(name: str) -> str:
    """An identifier as SQL quotes it."""
    return '"{}"'.format(name.replace('"', '""'))


Values = Callable[[Params], Sequence[Any]]

_encode = msgspec.json.Encoder().encode


@lru_cache(maxsize=512)
def _texts(
    name: str, composed: str | None, prefix: str, own_clock: bool
) -> tuple[tuple[str, Values], ...]:
    if composed is not None:
        return (_bound(sql.qualified(composed, prefix), prefix, own_clock),)
    script = sql.script(DIALECT, name, prefix)
    return tuple(_bound(text, prefix, own_clock) for text in script.each + script.once)


@lru_cache(maxsize=512)
def _writes(name: str) -> bool:
    script = sql.script(DIALECT, name, "")
    return not all(text.startswith("SELECT") for text in script.each)


@lru_cache(maxsize=512)
def _takes_many(name: str) -> bool:
    """Does the file take all sets of parameters at once, as JSON?"""
    script = sql.script(DIALECT, name, "")
    return any(":many" in text for text in script.each)


def _bound(text: str, prefix: str, own_clock: bool) -> tuple[str, Values]:
    """The text with numbered, typed parameters, and a way to put values in that order."""
    # By name, so that a prepared statement outlives a migration which adds a column.
    columns = ", ".join(COLUMNS)
    text = text.replace(f"SELECT * FROM {prefix}jobs", f"SELECT {columns} FROM {prefix}jobs")
    names: list[str] = []

    def numbered(found: re.Match[str]) -> str:
        name = found[1]
        if name == "now" and not own_clock:
            return NOW
        if name not in names:
            names.append(name)
        return f"${names.index(name) + 1}::{_TYPES.get(name, 'bigint')}"

    text = _PARAMETER.sub(numbered, text)
    if not names:
        return text, lambda params: ()
    if len(names) == 1:
        [only] = names
        return text, lambda params: (params[only],)
    return text, itemgetter(*names)


_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")

_TEXTS = (
    "backoff",
    "channel",
    "definition",
    "health",
    "host",
    "idempotency_key",
    "key",
    "kind",
    "many",
    "name",
    "payload",
    "progress",
    "published_by",
    "queue",
    "queues_json",
    "scope",
    "sleeper",
    "state",
    "status",
    "tags",
    "trace",
    "type",
    "types_json",
    "version",
    "worker_id",
)
_LISTS_OF_TEXTS = ("but_not", "keys", "notes", "payloads", "queues", "results", "types")
_LISTS_OF_NUMBERS = ("ids", "leases", "times")

_TYPES = {
    **dict.fromkeys(_TEXTS, "text"),
    **dict.fromkeys(_LISTS_OF_TEXTS, "text[]"),
    **dict.fromkeys(_LISTS_OF_NUMBERS, "bigint[]"),
}
"""Of the parameters that are no bigint. An empty list is one of texts: others are not asked for."""
