"""The numbered migrations of each store; the same number means the same in all of them."""

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from yaoki.core.errors import SchemaTooNew


class Migration(NamedTuple):
    """One step of the schema; never edited once it was released."""

    number: int
    name: str
    text: str


def missing(known: Sequence[Migration], applied: int) -> list[Migration]:
    """What is to be applied to a schema; SchemaTooNew when this program is the older one."""
    if applied > known[-1].number:
        raise SchemaTooNew(
            f"the tables are of schema {applied}, made by a newer yaoki; this one knows schema "
            f"{known[-1].number}: upgrade it"
        )
    return [migration for migration in known if migration.number > applied]


@cache
def migrations(dialect: str) -> tuple[Migration, ...]:
    """Every migration of a dialect, in order."""
    folder = files(__package__).joinpath(dialect)
    found = [
        Migration(int(entry.name[:4]), entry.name[5:-4], entry.read_text("utf-8"))
        for entry in folder.iterdir()
        if entry.name.endswith(".sql")
    ]
    return tuple(sorted(found))
