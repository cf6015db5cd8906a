"""The seam between stores: run an operation, blocking or awaiting."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, ClassVar, Protocol, TypeVar

from yaoki.store.examined import Examined
from yaoki.store.op import Answer, Op, Statement

T = TypeVar("T")

Run = Callable[[Op[Any]], Any]
"""A way to run operations. One that has to be awaited is a `scope.Awaited`."""


class Bell(Protocol):
    """Tells a waiting thread that something changed in the database."""

    def wait(self, timeout: float) -> bool:
        """Until something may have changed (True) or `timeout` seconds have passed."""

    def ring(self) -> None:
        """Wake the one who waits."""

    def hush(self) -> None:
        """Its owner is busy and looks of his own accord: nobody need ring until he waits again."""

    def close(self) -> None: ...

    @property
    def trouble(self) -> str | None:
        """Why it hears nothing of other processes, though it should; None while all is well."""


class Transaction(Protocol):
    """A transaction that a handler and yaoki share, on a connection of the store's."""

    @property
    def connection(self) -> Any: ...

    def run(self, op: Op[T]) -> T: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def check(self) -> None:
        """TransactionLost if it was interrupted."""

    def interrupt(self) -> None:
        """From any thread: roll back, and refuse whatever comes later."""


class Store(Protocol):
    """Where jobs are kept. Safe to use from any thread; opens itself when first used."""

    url: str

    one_writer: ClassVar[bool]
    """Does an open transaction of one keep all others from writing?"""

    def run(self, op: Op[T]) -> T:
        """Run `op` in one transaction; when this returns, it is as durable as the URL says."""

    async def arun(self, op: Op[T]) -> T:
        """The same, awaiting."""

    def on(self, connection: Any) -> AbstractContextManager[Run]:
        """A way to run operations inside the transaction of the caller's connection."""

    def block(self, connection: Any) -> AbstractContextManager[tuple[Run, Callable[[], None]]]:
        """Like `on`, in a block that commits on the caller's connection at its end.

        With a call that interrupts it from another thread: then nothing is committed.
        """

    def ablock(
        self, connection: Any
    ) -> AbstractAsyncContextManager[tuple[Run, Callable[[], None]]]:
        """The same, also for connections that have to be awaited."""

    def joined(self) -> Any:
        """The connection whose open transaction operations join by themselves, or None."""

    def transaction(self) -> Transaction: ...

    def bell(self) -> Bell:
        """A bell that rings when jobs may have become claimable; for one thread."""

    def watch(self) -> Bell:
        """A bell that may ring when any job has changed, for one who also looks by himself."""

    def migrate(self) -> list[str]:
        """Bring the tables up to date; the names of the migrations that were applied."""

    def examine(self) -> Examined:
        """Look at the database itself, on connections of its own; changes nothing in it."""

    def close(self) -> None: ...


def drive(op: Op[T], execute: Callable[[Statement], Answer]) -> T:
    """Run `op`, blocking on each statement in turn."""
    steps = op.steps()
    try:
        statement = next(steps)
        while True:
            statement = steps.send(execute(statement))
    except StopIteration as end:
        value: T = end.value
        return value


async def drive_async(op: Op[T], execute: Callable[[Statement], Awaitable[Answer]]) -> T:
    """Run `op`, awaiting each statement in turn."""
    steps = op.steps()
    try:
        statement = next(steps)
        while True:
            statement = steps.send(await execute(statement))
    except StopIteration as end:
        value: T = end.value
        return value
