"""How long somebody waits for the database before an error is of more use to him than an answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Patience(NamedTuple):
    """Of one thread; infinite seconds are as many as the store thinks fit.

    PostgreSQL only: SQLite answers, or says by itself that the file is locked.
    """

    seconds: float = float("inf")
    """How long a server may be silent."""
    upkeep: bool = False
    """It asks for what workers live on, so it waits for no connection that others use."""


LEAST = 0.5

_AS_THE_STORE_THINKS = Patience()
_current: ContextVar[Patience] = ContextVar("yaoki_patience", default=_AS_THE_STORE_THINKS)


def patience() -> Patience:
    """This thread's, or this task's."""
    return _current.get()


@contextmanager
def within(seconds: float, *, upkeep: bool = False) -> Iterator[None]:
    """In the block, a server that is silent for so many seconds is given up."""
    token = _current.set(Patience(seconds, upkeep))
    try:
        yield
    finally:
        _current.reset(token)


def of_lease(lease_for: float) -> float:
    """The seconds of one who renews leases of this length, at a third of it.

    Half of such a third: two tries in a row may hang, and the one after them is still in time.
    """
    return max(lease_for / 6, LEAST)
