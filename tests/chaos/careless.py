"""An app whose workers believe that what they have claimed stays theirs, whatever the rows say.

So one that was stopped past its leases records what others have completed since. It is here to be
found out: `yaoki --app tests.chaos.careless:app worker`.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from chaos.app import app
from yaoki.store import sql
from yaoki.store.ops import settling, upkeep
from yaoki.store.ops.settling import Held, Settlement
from yaoki.store.sql import Script

__all__ = ["app"]

FENCE = " AND yaoki_jobs.lease = done.lease"

_careful = sql.script


@cache
def unfenced(dialect: str, name: str, prefix: str) -> Script:
    script = _careful(dialect, name, prefix)
    if name != "complete":
        return script
    assert any(FENCE in statement for statement in script.each), script
    return Script(tuple(each.replace(FENCE, "") for each in script.each), script.once)


def all_held(settlements: list[Settlement], patient: bool) -> Iterator[Any]:
    yield from ()
    return list(settlements), set(), set()


def none_refused(held: list[Held]) -> Iterator[Any]:
    yield from ()
    return set()


sql.script = unfenced
settling._sifted = all_held
upkeep.refused_now = none_refused
