"""The numbered migrations of each store; the same number means the same in all of them."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple


class Migration(NamedTuple):
    """One step of the schema; never edited once it was released."""

    number: int
    name: str
    text: str


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
