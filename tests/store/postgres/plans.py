"""How a server would run our statements: what EXPLAIN says of them, in words that tests compare."""

import json
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg

from yaoki.store import sql
from yaoki.store.op import Statement
from yaoki.store.postgres.statements import DIALECT, Call, Dialect

Connection = psycopg.Connection[tuple[Any, ...]]

NAMES = sql.names(DIALECT)
GROWING = ("jobs", "attempts", "logs", "once")
"""The tables that may have millions of rows; the others have a few dozen."""

SWITCHES = (
    "hashjoin",
    "mergejoin",
    "nestloop",
    "bitmapscan",
    "indexonlyscan",
    "memoize",
    "material",
    "hashagg",
)
"""What a server may have been told never to do."""

VALUES = {
    "types": ["mail", "image"],
    "queues": ["default", "mail"],
    "but_not": ["slow"],
    "id": 4_001,
    "ids": [4_001, 4_002, 4_003, 20_001, 20_002],
    "leases": [1] * 5,
    "times": [1] * 5,
    "results": ["null"] * 5,
    "notes": [None] * 5,
    "keys": ["a", "b"],
    "payloads": ["{}"] * 5,
    "payload": "{}",
    "type": "mail",
    "queue": "default",
    "kind": "queue",
    "state": "working",
    "priority": 0,
    "limit": 10,
    "window": 1_000,
    "most": 1_001,
    "rescues_below": None,
    "after_run_at": -1,
    "run_at": None,
}
"""What is bound where the value could matter; 1, or "x", for every other parameter."""

MANY: list[dict[str, Any]] = [
    {
        "id": number,
        "lease": 1,
        "ran_for": 1,
        "number": 1,
        "ago": 1,
        "level": "info",
        "text": "x",
        "outcome": "retried",
        "wait": 1,
        "error": "x",
        "traceback": "x",
        "started": True,
        "progress": None,
        "rescued": False,
        "releases_free": 20,
        "type": "mail",
        "queue": "default",
        "priority": 0,
        "payload": "{}",
        "run_at": None,
        "delay": 0,
        "max_attempts": 3,
        "timeout": None,
        "said": 0,
        "idempotency_key": f"key {number}",
        "tags": None,
    }
    for number in (4_001, 4_002, 20_001)
]
"""What is bound for `:many`: enough for each of the statements that have it."""


class Plan(NamedTuple):
    """One statement as the server would run it: its steps, from the last to the first."""

    steps: list[dict[str, Any]]

    @property
    def accesses(self) -> set[str]:
        """The indexes of tables that grow, with the columns by which rows are found in them."""
        return {
            f"{step['Index Name']}{_columns(step.get('Index Cond', ''))}"
            for step in self.steps
            if step.get("Index Name", "").startswith(GROWING)
        }

    @property
    def read_whole(self) -> list[str]:
        """Growing tables of which every row is read."""
        return [
            step["Relation Name"]
            for step in self.steps
            if step["Node Type"] == "Seq Scan" and step["Relation Name"] in GROWING
        ]

    @property
    def sorts(self) -> list[str]:
        return [step["Node Type"] for step in self.steps if "Sort" in step["Node Type"]]

    def __repr__(self) -> str:
        told = ("Node Type", "Relation Name", "Index Name", "Index Cond", "Filter", "Sort Key")
        lines = (" | ".join(str(step[key]) for key in told if key in step) for step in self.steps)
        return "\n".join(("", *lines))


def calls(name: str) -> list[Call]:
    """The messages of a statement, with values that could be real."""
    script = sql.script(DIALECT, name, "")
    text = "\n".join(script.each + script.once)
    params = {key: VALUES.get(key, _typical(key)) for key in _PARAMETER.findall(text)}
    return Dialect("yaoki").calls(Statement(name, params, MANY if "many" in params else None))[0]


class Prepared:
    """A statement that was prepared on a connection, and is planned as one that is prepared."""

    def __init__(self, connection: Connection, call: Call, name: str) -> None:
        self._cursor = psycopg.ClientCursor(connection)
        self._name, self._values = name, call.values
        self._cursor.execute(f"PREPARE {name} AS {call.text}".encode())

    def plan(self, *, generic: bool) -> Plan:
        """For any values, and then it is kept; or for these, made anew each time."""
        mode = "force_generic_plan" if generic else "force_custom_plan"
        self._cursor.execute(f"SET plan_cache_mode = {mode}".encode())
        given = f"({', '.join(['%s'] * len(self._values))})" if self._values else ""
        explain = f"EXPLAIN (FORMAT JSON) EXECUTE {self._name}{given}"
        self._cursor.execute(explain.encode(), self._values)
        [(found,)] = self._cursor.fetchall()
        [tree] = found if isinstance(found, list) else json.loads(found)
        return Plan(list(_steps(tree["Plan"])))


def plans(connection: Connection, name: str, *, generic: bool) -> Iterator[Plan]:
    """A plan for each message of a statement, with each way of joining and scanning off in turn."""
    for call in calls(name):
        connection.execute("DEALLOCATE ALL")
        statement = Prepared(connection, call, "statement")
        yield statement.plan(generic=generic)
        for switch in SWITCHES:
            connection.execute(f"SET enable_{switch} = off".encode())
            plan = statement.plan(generic=generic)
            connection.execute(f"RESET enable_{switch}".encode())
            yield plan


def _steps(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", ()):
        yield from _steps(below)


def _columns(condition: str) -> str:
    """`(priority, run_at)` of `((priority = 0) AND (run_at <= lane.now))`."""
    named = _COLUMN.findall(re.sub(r"'[^']*'(::\w+)?", "", condition))
    return f" ({', '.join(dict.fromkeys(named))})" if named else ""


def _typical(name: str) -> object:
    return "x" if name in _TEXTS else 1


NOW = time.time_ns() // 1_000

_TEXTS = {
    "backoff",
    "definition",
    "host",
    "idempotency_key",
    "key",
    "name",
    "progress",
    "published_by",
    "queues_json",
    "scope",
    "tags",
    "types_json",
    "version",
    "worker_id",
}
_PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_COLUMN = re.compile(
    r"(?<![.\w])(type|queue|priority|run_at|id|lease|job_id|done_at|scope|key|idempotency_key)\b"
)
