"""A store of either kind on which every statement fails once, on the way that real errors take.

An error is raised out of the operation's own steps, so the store does with it whatever it does
with one of the driver's: rolls back, translates, tries again, or passes it on.
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

from tests.support.dialects import on_postgres
from yaoki.store import SQLiteStore, Store
from yaoki.store.op import Op, Steps
from yaoki.store.postgres.store import PostgresStore

T = TypeVar("T")

When = Literal["before", "behind", "committed"]
"""In place of the statement; behind it, so that it is undone; when all is committed."""


COMMIT = "COMMIT"

OFTEN = 3
"""How often a point is passed, while it may not fail, before anybody waits for it to fail."""


class Point(NamedTuple):
    """A place where an operation can fail: one of its statements, or its commit."""

    operation: str
    statement: str


class Faults:
    """Fails each point the first time that it is passed, as soon as it may.

    Nobody meets two failures in a row: after one, the operation must have succeeded before it
    fails at its next point, and so must any of the same thread. Nothing fails before `begin`.
    """

    def __init__(self, make: Callable[[], Exception], when: When = "before") -> None:
        self._make, self._when = make, when
        self._lock = threading.Lock()
        self._begun = False
        self._recovering: set[str] = set()
        self._troubled: set[int] = set()
        self._passed: Counter[Point] = Counter()
        self._failed: set[Point] = set()

    def begin(self) -> None:
        self._begun = True

    def end(self) -> None:
        """From now on nothing fails."""
        self._begun = False

    @property
    def failed(self) -> frozenset[Point]:
        """Where something has failed."""
        with self._lock:
            return frozenset(self._failed)

    @property
    def open(self) -> frozenset[Point]:
        """What is passed now and then, and has not failed yet."""
        with self._lock:
            often = {point for point, times in self._passed.items() if times >= OFTEN}
            return frozenset(often - self._failed)

    def on(self, op: Op[T]) -> Op[T]:
        """The same operation, which fails at its points. To be called by who runs it."""
        return _on(op, self, threading.get_ident())

    def passes(self, point: Point, at: When, thread: int | None = None) -> None:
        """Somebody is `at` this point: raise, if it is time for it."""
        if at != self._when or not self._begun:
            return
        with self._lock:
            thread = thread or threading.get_ident()
            if thread in self._troubled:
                return
            self._passed[point] += 1
            if point in self._failed or point.operation in self._recovering:
                return
            self._failed.add(point)
            self._recovering.add(point.operation)
            self._troubled.add(thread)
        raise self._make()

    def succeeded(self, operation: str) -> None:
        """The operation, and this thread, may fail again."""
        with self._lock:
            self._recovering.discard(operation)
            self._troubled.discard(threading.get_ident())


def faulty_store(url: str, faults: Faults) -> Store:
    """A store whose operations, transactions of handlers and bells fail as `faults` says."""
    return FaultyPostgres(url, faults) if on_postgres(url) else FaultySQLite(url, faults)


class _Faulty:
    """What is put before a store of either kind."""

    def __init__(self, url: str, faults: Faults) -> None:
        super().__init__(url)  # type: ignore[call-arg]
        self.faults = faults

    def run(self, op: Op[T]) -> T:
        value: T = super().run(self.faults.on(op))  # type: ignore[misc]
        self.faults.passes(Point(_name(op), COMMIT), "committed")
        self.faults.succeeded(_name(op))
        return value

    async def arun(self, op: Op[T]) -> T:
        value: T = await super().arun(self.faults.on(op))  # type: ignore[misc]
        self.faults.passes(Point(_name(op), COMMIT), "committed")
        self.faults.succeeded(_name(op))
        return value

    def transaction(self) -> Any:
        self.faults.passes(Point(_TRANSACTION, "BEGIN"), "before")
        return _FaultyTransaction(super().transaction(), self.faults)  # type: ignore[misc]

    def bell(self) -> Any:
        return _FaultyBell(super().bell(), self.faults)  # type: ignore[misc]


class FaultySQLite(_Faulty, SQLiteStore):
    pass


class FaultyPostgres(_Faulty, PostgresStore):
    pass


_TRANSACTION = "a handler's transaction"


class _FaultyTransaction:
    """A transaction of a handler's whose statements, begin and commit fail."""

    def __init__(self, transaction: Any, faults: Faults) -> None:
        self._transaction, self._faults = transaction, faults

    def run(self, op: Op[T]) -> T:
        value: T = self._transaction.run(self._faults.on(op))
        self._faults.succeeded(_name(op))
        return value

    def commit(self) -> None:
        point = Point(_TRANSACTION, COMMIT)
        self._faults.passes(point, "before")
        self._transaction.commit()
        self._faults.passes(point, "committed")
        self._faults.succeeded(_TRANSACTION)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transaction, name)


class _FaultyBell:
    """A bell that fails once while somebody waits for it."""

    def __init__(self, bell: Any, faults: Faults) -> None:
        self._bell, self._faults = bell, faults

    def wait(self, timeout: float) -> bool:
        self._faults.passes(Point("a bell", "wait"), "before")
        rung: bool = self._bell.wait(timeout)
        self._faults.succeeded("a bell")
        return rung

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bell, name)


def _name(op: Op[Any]) -> str:
    return type(op).__name__


def _on(op: Op[T], faults: Faults, thread: int) -> Op[T]:
    """A copy, of a class of its own so that a store takes it for what it is."""
    kind = type(op)

    def steps(self: Op[T]) -> Steps[T]:
        within = kind.steps(self)
        try:
            statement = next(within)
            while True:
                point = Point(kind.__name__, statement.name)
                faults.passes(point, "before", thread)
                answer = yield statement
                faults.passes(point, "behind", thread)
                statement = within.send(answer)
        except StopIteration as end:
            # What an operation that is atomic has done so far is undone by this.
            if kind.atomic and kind.writes:
                faults.passes(Point(kind.__name__, COMMIT), "before", thread)
            value: T = end.value
            return value

    failing = type(kind.__name__, (kind,), {"__slots__": (), "steps": steps})
    copied: Op[T] = object.__new__(failing)
    for name in getattr(kind, "__dataclass_fields__", ()):
        object.__setattr__(copied, name, getattr(op, name))
    return copied
