"""The SQL: one statement, one file; a dialect's own file goes before the shared one."""

import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

ONCE = "-- once"
"""In a file that is run for many parameters: what follows is run a single time."""


class Script(NamedTuple):
    """The statements of one file: those run for each set of parameters, and those run once."""

    each: tuple[str, ...]
    once: tuple[str, ...]


@cache
def script(dialect: str, name: str, prefix: str) -> Script:
    """The statements of `name`.sql, with `yaoki.table` written as the dialect needs it."""
    each, _, once = _source(dialect, name).partition(ONCE)
    return Script(_statements(each, prefix), _statements(once, prefix))


def names(dialect: str) -> list[str]:
    """The name of every statement that this dialect has."""
    root = files(__package__)
    found = [
        entry.name.removesuffix(".sql")
        for folder in ("shared", dialect)
        for entry in root.joinpath(folder).iterdir()
        if entry.name.endswith(".sql")
    ]
    return sorted(set(found))


def qualified(text: str, prefix: str) -> str:
    """`yaoki.jobs` as `<prefix>jobs`."""
    return re.sub(r"\byaoki\.(?=\w)", lambda _: prefix, text)


def _source(dialect: str, name: str) -> str:
    root = files(__package__)
    own = root.joinpath(dialect, f"{name}.sql")
    return (own if own.is_file() else root.joinpath("shared", f"{name}.sql")).read_text("utf-8")


def _statements(text: str, prefix: str) -> tuple[str, ...]:
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("--")]
    parts = "\n".join(lines).split(";")
    return tuple(qualified(part.strip(), prefix) for part in parts if part.strip())
