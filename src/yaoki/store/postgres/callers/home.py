"""Does a caller's connection lead to the queue's own database? Both are asked; URLs can deceive."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from yaoki.core.errors import WrongConnection
from yaoki.store.op import Op, Statement, Steps
from yaoki.store.postgres.callers.talk import AsyncDriver, Borrowed, Driver, aconverse, converse
from yaoki.store.postgres.callers.whole import Manner, check_usable, statements

QUESTION = """
SELECT
    (SELECT oid::bigint FROM pg_catalog.pg_database WHERE datname = current_database()),
    (date_part('epoch', pg_catalog.pg_postmaster_start_time()) * 1000000)::bigint,
    current_database()::text
"""
"""Nothing in it can fail, whatever the role may do: it may be asked in a caller's transaction."""


class Identity(NamedTuple):
    """A database of a running server."""

    database: int
    started: int
    name: str


@dataclass(frozen=True, slots=True)
class Identify(Op[Identity]):
    """Where a connection leads to."""

    writes = False
    atomic = False

    def steps(self) -> Steps[Identity]:
        [row] = (yield Statement("identify", {}, text=QUESTION)).rows
        return Identity(*row)


class Home:
    """The queue's own database, as callers' connections are compared with it.

    `run` and `arun` run an operation on a connection of the store's.
    """

    def __init__(
        self,
        manner: Manner,
        shown: str,
        run: Callable[[Op[Identity]], Identity],
        arun: Callable[[Op[Identity]], Awaitable[Identity]],
    ) -> None:
        self.manner, self.shown = manner, shown
        self._run, self._arun = run, arun
        self._own: Identity | None = None
        self._known: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()

    def known(self, driver: Borrowed) -> bool | None:
        """Whether it leads here, if that was found out before."""
        return self._known.get(driver.raw)

    def check(self, driver: Driver) -> None:
        """WrongConnection when it leads to another database. Asks once for each connection."""
        if self.known(driver):
            return
        check_usable(driver)
        fresh = self._own is None
        own = self._own = self._own or self._run(Identify())
        theirs = converse(statements(Identify(), self.manner.dialect), driver)
        if not fresh and not _same(own, theirs):
            # The server may have been started again since it was last asked.
            own = self._own = self._run(Identify())
        self._decide(driver, own, theirs)

    async def acheck(self, driver: AsyncDriver) -> None:
        """The same, awaiting."""
        if self.known(driver):
            return
        check_usable(driver)
        fresh = self._own is None
        own = self._own = self._own or await self._arun(Identify())
        theirs = await aconverse(statements(Identify(), self.manner.dialect), driver)
        if not fresh and not _same(own, theirs):
            own = self._own = await self._arun(Identify())
        self._decide(driver, own, theirs)

    def _decide(self, driver: Borrowed, own: Identity, theirs: Identity) -> None:
        same = self._known[driver.raw] = _same(own, theirs)
        if same:
            return
        where = f"the database {theirs.name!r}"
        if own.started != theirs.started:
            where += " of another server (or of a copy of it)"
        raise WrongConnection(
            f"that connection is to {where}, and the jobs are in {self.shown}: one transaction "
            "cannot span both; pass a connection to the queue's own database, or enqueue after "
            "your commit"
        )


def _same(own: Identity, theirs: Identity) -> bool:
    return own[:2] == theirs[:2]
