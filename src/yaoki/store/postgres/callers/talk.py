"""What is said on a caller's connection: one script for drivers that block and that await."""

import logging
import os
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from enum import Enum
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

from yaoki.core.errors import NotInTransaction, StoreBusy, StoreError, StoreUnavailable
from yaoki.store.postgres.statements import Call

log = logging.getLogger("yaoki.store")

T = TypeVar("T")


NOT_IN_YOURS = (
    "ctx.transaction(connection) begins and commits on that connection itself; do not begin a "
    "transaction around it"
)


class State(Enum):
    """How far the transaction of a connection is."""

    IDLE = "no transaction"
    OPEN = "in a transaction"
    FAILED = "in a transaction that can only be rolled back"

    @staticmethod
    def of_libpq(status: int) -> "State":
        return {0: State.IDLE, 3: State.FAILED}.get(status, State.OPEN)


class Commands(NamedTuple):
    """Said in one message where that can be; their answers are of no interest."""

    texts: Sequence[str]


class Reply(NamedTuple):
    """What the server answered to a call."""

    rows: list[tuple[Any, ...]]
    changed: int
    columns: Sequence[str]


Talk = Generator[Commands | Call, Reply, T]

NOTHING = Reply([], 0, ())


CANCEL_PATIENCE = 2.0
"""Seconds that a cancellation may take: it goes by a connection of its own."""


def cut_off(cancel: Callable[[], None], handle: Callable[[], int]) -> None:
    """End a session from another thread: what it does is cancelled, and its socket is shut."""

    def quietly(act: Callable[[], object]) -> None:
        # Errors here say that it is closed already, by whoever was faster.
        try:
            act()
        except Exception as error:
            log.debug("while a connection was cut off: %s", error)

    cancelling = threading.Thread(target=quietly, args=(cancel,), name="yaoki-cancel", daemon=True)
    cancelling.start()
    cancelling.join(CANCEL_PATIENCE)
    quietly(lambda: _shut(handle()))


def _shut(handle: int) -> None:
    with socket.socket(fileno=os.dup(handle)) as line:
        line.shutdown(socket.SHUT_RDWR)


class Borrowed(Protocol):
    """A driver's own connection, as its owner has it, and what can be seen of it for nothing."""

    awaits: ClassVar[bool]

    @property
    def raw(self) -> Any: ...

    @property
    def state(self) -> State: ...

    @property
    def begins_by_itself(self) -> bool:
        """Does the driver begin a transaction before the first statement?"""

    @property
    def encoding(self) -> str:
        """What the server believes this client to speak."""

    def is_own(self, error: BaseException) -> bool:
        """Is it an error of the driver, or of the way to the server?"""

    def cut(self) -> None:
        """From any thread: end the session, so that the server rolls back."""


class Driver(Borrowed, Protocol):
    """One that blocks."""

    awaits: ClassVar[Literal[False]]

    def say(self, commands: Commands) -> None: ...

    def ask(self, call: Call) -> Reply: ...

    def begin(self) -> None:
        """A transaction that `commit` can commit; NotHere when somebody else will."""

    def commit(self) -> None: ...

    def roll_back(self) -> None: ...


class AsyncDriver(Borrowed, Protocol):
    """One that has to be awaited."""

    awaits: ClassVar[Literal[True]]

    async def say(self, commands: Commands) -> None: ...

    async def ask(self, call: Call) -> Reply: ...

    async def begin(self) -> None: ...

    async def commit(self) -> None: ...

    async def roll_back(self) -> None: ...


def converse(talk: Talk[T], driver: Driver) -> T:
    """Have the talk, blocking. Errors of the driver are raised where it waits for the answer."""
    try:
        wanted = next(talk)
        while True:
            try:
                reply = NOTHING
                if isinstance(wanted, Call):
                    reply = driver.ask(wanted)
                else:
                    driver.say(wanted)
            except BaseException as error:
                wanted = talk.throw(error)
            else:
                wanted = talk.send(reply)
    except StopIteration as end:
        value: T = end.value
        return value


async def aconverse(talk: Talk[T], driver: AsyncDriver) -> T:
    """The same, awaiting."""
    try:
        wanted = next(talk)
        while True:
            try:
                reply = NOTHING
                if isinstance(wanted, Call):
                    reply = await driver.ask(wanted)
                else:
                    await driver.say(wanted)
            except BaseException as error:
                wanted = talk.throw(error)
            else:
                wanted = talk.send(reply)
    except StopIteration as end:
        value: T = end.value
        return value


def problem(error: BaseException, driver: Borrowed, shown: str) -> Exception | None:
    """What an error of the driver means to a user of yaoki; None when it is none of its own."""
    if not driver.is_own(error):
        return None
    state = sqlstate(error)
    if state in _ABOUT_YOURS:
        kind, advice = _ABOUT_YOURS[state]
        return kind(f"{_first_line(error)}; {advice}")
    if state is None:
        return StoreUnavailable(f"{shown}: {_first_line(error)}")
    from yaoki.store.postgres.failures import told

    return told(state, _first_line(error), shown, error)


def sqlstate(error: BaseException) -> str | None:
    """The code that the server gave, under the name that this driver has for it."""
    state: str | None = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None)
    return state


_AGAIN = "roll your transaction back, and try the whole of it again"

ROLL_BACK_FIRST = (
    "an earlier statement of your transaction failed, so PostgreSQL takes nothing more in it; "
    "roll it back first"
)

_ABOUT_YOURS: dict[str | None, tuple[type[Exception], str]] = {
    "40001": (StoreBusy, _AGAIN),
    "40P01": (StoreBusy, _AGAIN),
    "25P02": (NotInTransaction, ROLL_BACK_FIRST),
    "25006": (StoreError, "your transaction only reads; begin one that may write"),
}


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
