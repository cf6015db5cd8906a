"""What an operation costs, counted in blocks that the server looked at: the same on any machine."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from yaoki.store.base import drive
from yaoki.store.op import Answer, Op, Statement, Steps
from yaoki.store.postgres.connection import Line, connect
from yaoki.store.postgres.place import parse
from yaoki.store.postgres.statements import BEGIN, Clock, Dialect
from yaoki.store.postgres.wire import Wire

S = TypeVar("S")
T = TypeVar("T")

LOOKED_AT = """
SELECT coalesce(sum(pg_stat_get_xact_blocks_fetched(oid)), 0)::bigint FROM pg_class
WHERE relnamespace = 'yaoki'::regnamespace
"""
"""By this session since its last commit, in our tables and their indexes; cached or not."""


class Nothing(Op[None]):
    """Asks nothing."""

    def steps(self) -> Steps[None]:
        return
        yield


class Session:
    """A connection as the store's own are, on which operations are run and counted."""

    def __init__(self, url: str, line: Line, clock: Clock | None = None) -> None:
        self.url, self.line = url, line
        self._wire = Wire(line, Dialect("yaoki", clock), True)

    def run(self, op: Op[T]) -> T:
        """In the transaction that is open, or each statement by itself."""
        return drive(op, self._execute)

    def cost(self, op: Op[T]) -> tuple[int, T]:
        """How many blocks it looks at, and what it brings; then it is undone."""
        return self.cost_after(Nothing(), lambda _: op)

    def cost_after(self, first: Op[S], then: Callable[[S], Op[T]]) -> tuple[int, T]:
        """The same of an operation that needs another one before it, which is not counted.

        It is run once before, because planning its statements looks at blocks too.
        """
        with self.undone():
            self.run(then(self.run(first)))
        with self.undone():
            op = then(self.run(first))
            before = self._looked_at()
            value = self.run(op)
            return self._looked_at() - before, value

    @contextmanager
    def undone(self) -> Iterator[None]:
        self.line.execute(BEGIN)
        try:
            yield
        finally:
            self.line.execute("ROLLBACK")

    def _execute(self, statement: Statement) -> Answer:
        return self.line.wait(self._wire.ask(statement))

    def _looked_at(self) -> int:
        [(blocks,)] = self.line.execute(LOOKED_AT).fetchall()
        return int(blocks)


@contextmanager
def session(url: str, clock: Clock | None = None) -> Iterator[Session]:
    with connect(parse(url), plans=True) as line:
        yield Session(url, line, clock)
