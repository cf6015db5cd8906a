"""What a workload may do with the databases of a store."""

from contextlib import AbstractContextManager
from typing import ClassVar, Protocol


class Databases(Protocol):
    """Makes databases, each named by the URL that yaoki opens it by."""

    store: ClassVar[str]

    writers: ClassVar[int]
    """How many connections can write at once: as many as a limit uses at the most."""

    facts: dict[str, object]
    """What belongs to every figure: versions, and what decides about durability."""

    def new(self) -> str:
        """A database with nothing in it."""

    def drop(self, url: str) -> None:
        """Nobody is connected to it any more."""

    def settle(self, url: str) -> None:
        """Do now what would otherwise be done some time later: nobody is connected any more."""

    def transactions(self, url: str) -> int | None:
        """How many have ended in this database so far; None where nobody counts."""

    def copied(self, original: str) -> AbstractContextManager[str]:
        """A copy of a settled database to use up, on the disk already."""
