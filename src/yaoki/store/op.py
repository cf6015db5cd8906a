"""What a store can be asked: operations, and the statements that they are made of."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

T = TypeVar("T")

Params = dict[str, Any]


class Statement(NamedTuple):
    """The name of a .sql file and what to bind; with `many`, run once for each of them.

    `:now` is bound by the store (the database's clock, or the host's on SQLite).
    `text` is for the one statement that is composed: the list with its filters. The answer to a
    `silent` one is not looked at, so it may travel with the next; it may be empty.
    """

    name: str
    params: Params
    many: Sequence[Params] | None = None
    text: str | None = None
    silent: bool = False


class Answer(NamedTuple):
    """The rows of a statement, how many it changed, the id of one it made, and when it ran.

    `now` is microseconds, what `:now` was bound to.
    """

    rows: list[tuple[Any, ...]]
    changed: int
    made: int | None
    now: int


Steps = Generator[Statement, Answer, T]


class Interfered(Exception):
    """Another transaction came between two statements: undo the operation, and run it again.

    Raised by `steps()`, never seen by callers. SQLite has one writer, so there it does not occur.
    """


class Op(ABC, Generic[T]):
    """Something to be done in one transaction, described so that any store can run it.

    A frozen dataclass: it can be run again after a deadlock or a busy database. Its `steps()`
    yield statements and are sent answers; they never commit, never read a clock, and never
    catch a database error.
    """

    __slots__ = ()

    writes: ClassVar[bool] = True
    """False: it only reads, and needs no write lock."""

    atomic: ClassVar[bool] = True
    """False: each of its statements may be committed by itself, because none needs another."""

    @property
    def wakes(self) -> bool:
        """It may have made a job claimable, so sleeping workers look again."""
        return False

    @abstractmethod
    def steps(self) -> Steps[T]: ...


def ask(name: str, /, **params: Any) -> Statement:
    """The statement in `name`.sql with these parameters."""
    return Statement(name, params)


def tell(name: str, /, **params: Any) -> Statement:
    """The same, for a statement whose answer is not looked at."""
    return Statement(name, params, silent=True)


def tell_many(name: str, many: Sequence[Params], /) -> Statement:
    """The same, for many sets of parameters: see ask_many."""
    return Statement(name, {}, many, silent=True)


def ask_many(name: str, many: Sequence[Params], /, **params: Any) -> Statement:
    """The statement in `name`.sql, once for each of `many`.

    A file with several statements runs the first ones for each, and those that follow the line
    `-- once` a single time, with `params`.
    """
    return Statement(name, params, many)
