"""A program that kills itself at one moment of what it does with the database, at every moment.

`python -m tests.crash.dying ACT FOLDER` does the act in one child process after another, each on
a copy of FOLDER/prepared.db of its own. The Nth child sends itself SIGKILL at the Nth moment: one
is before each statement (BEGIN and COMMIT as well), one after it. It ends with the first child
that survives.
"""

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import yaoki
from tests.support.acts import BOOM, held
from yaoki import Yaoki
from yaoki.core.outcomes import Completed, Retried, settle
from yaoki.jobtypes.context import JobContext
from yaoki.store.ops.claims import Claim
from yaoki.store.ops.settling import Exchange, Settlement

Tell = Callable[..., None]
"""Writes down at once what the caller of yaoki has been promised by now."""


def first_use(app: Yaoki, tell: Tell) -> None:
    tell(app.enqueue("mail", {"n": 1}).id)


def enqueue_with_a_key(app: Yaoki, tell: Tell) -> None:
    tell(app.enqueue("mail", {"n": 1}, idempotency_key="order-7").id)
    tell(app.enqueue("mail", {"n": 2}, idempotency_key="order-7").id)


def enqueue_many(app: Yaoki, tell: Tell) -> None:
    tell([job.id for job in app.enqueue_many("mail", [{"n": n} for n in range(5)])])


def enqueue_together(app: Yaoki, tell: Tell) -> None:
    async def enqueue(n: int) -> None:
        tell((await app.aenqueue("mail", {"n": n})).id)

    async def together() -> None:
        await asyncio.gather(*map(enqueue, range(3)))

    asyncio.run(together())


def claim(app: Yaoki, tell: Tell) -> None:
    tell([(job.id, job.lease) for job in app.claim("w1", limit=2)])


def complete(app: Yaoki, tell: Tell) -> None:
    [job] = app.claim("w1")
    tell(job.id)
    tell(app.complete(job, {"sent": 1}).id)


def fail(app: Yaoki, tell: Tell) -> None:
    for _ in range(2):
        [job] = app.claim("w1")
        tell(job.id)
        tell(app.fail(job, "no", retry_in=0).id)


def release(app: Yaoki, tell: Tell) -> None:
    [job] = app.claim("w1")
    tell(job.id)
    tell(app.release(job).id)


def exchange(app: Yaoki, tell: Tell) -> None:
    one, two = app.claim("w1", limit=2)
    tell([one.id, two.id])
    ends = [
        Settlement(held(one), settle(Completed())),
        Settlement(held(two), settle(Retried(BOOM, 0))),
    ]
    exchanged = app.store.run(Exchange(ends, Claim(worker_id="w1", limit=2)))
    assert exchanged.claimed is not None
    tell([job.id for job in exchanged.claimed.jobs])


def rescue(app: Yaoki, tell: Tell) -> None:
    tell([one.id for one in app.rescue()])


def discard(app: Yaoki, tell: Tell) -> None:
    app.discard(1)
    tell(1)


def add_points_once(app: Yaoki, tell: Tell) -> None:
    """Twice the same event: 100 points, in a transaction of the caller's."""
    with closing(sqlite3.connect(file_of(app), isolation_level=None)) as connection:
        for _ in range(2):
            connection.execute("BEGIN IMMEDIATE")
            if yaoki.once(connection, "order-7"):
                connection.execute("UPDATE points SET total = total + 100")
            connection.execute("COMMIT")
            tell(100)


def enqueue_with_an_effect(app: Yaoki, tell: Tell) -> None:
    with closing(sqlite3.connect(file_of(app), isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE points SET total = total + 50")
        with app.on(connection):
            job = app.enqueue("mail", {"n": 1})
        connection.execute("UPDATE points SET total = total + 50")
        connection.execute("COMMIT")
        tell(job.id)


def add_points_and_complete(app: Yaoki, tell: Tell) -> None:
    [job] = app.claim("w1")
    tell(job.id)
    with JobContext(app.store, job).transaction() as tx:
        tx.execute("UPDATE points SET total = total + 100")
    tell(100)


def file_of(app: Yaoki) -> str:
    return app.url.removeprefix("sqlite:///")


class Death:
    """Comes at the moment of this number."""

    def __init__(self, fatal: int, log: int) -> None:
        self._fatal, self._log, self._moments = fatal, log, count(1)

    def around(self, run: Callable[..., Any], statement: str, *rest: Any) -> Any:
        self._moment("before", statement)
        answer = run(statement, *rest)
        self._moment("after", statement)
        return answer

    def among(self, statement: str, many: Iterable[Any]) -> Iterator[Any]:
        """The parameters of many runs of a statement, with a moment before each run."""
        for params in many:
            self._moment("amid", statement)
            yield params

    def _moment(self, when: str, statement: str) -> None:
        if next(self._moments) == self._fatal:
            if threading.active_count() > 1:
                # What another thread knows by now, it may tell.
                threading.Event().wait(0.02)
            os.write(self._log, f"{when} {statement}".encode())
            os.kill(os.getpid(), signal.SIGKILL)


def mortal(death: Death) -> type[sqlite3.Connection]:
    """A kind of connection whose every statement may be the last."""

    class Mortal:
        def execute(self, statement: str, *rest: Any) -> Any:
            return death.around(super().execute, statement, *rest)  # type: ignore[misc]

        def executemany(self, statement: str, many: Iterable[Any]) -> Any:
            among = death.among(statement, many)
            return death.around(super().executemany, statement, among)  # type: ignore[misc]

    class Cursor(Mortal, sqlite3.Cursor):
        pass

    class Connection(Mortal, sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

    return Connection


def child(act: Callable[[Yaoki, Tell], None], folder: Path, fatal: int) -> None:
    """Does the act, up to the fatal moment; never returns."""
    told = os.open(folder / "told", os.O_CREAT | os.O_WRONLY)
    try:
        death = Death(fatal, os.open(folder / "died", os.O_CREAT | os.O_WRONLY))
        sqlite3.connect = partial(sqlite3.connect, factory=mortal(death))
        app = Yaoki(f"sqlite:///{folder / 'jobs.db'}")
        act(app, lambda what: os.write(told, f"{json.dumps(what)}\n".encode()))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(name: str, folder: Path) -> int:
    for fatal in count(1):
        own = folder / f"{fatal:04}"
        own.mkdir()
        if (folder / "prepared.db").exists():
            shutil.copy(folder / "prepared.db", own / "jobs.db")
        pid = os.fork()
        if pid == 0:
            child(globals()[name], own, fatal)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if code != -signal.SIGKILL:
            return code
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
