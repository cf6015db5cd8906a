"""A program that kills itself at one moment of what it does with the database, at every moment.

`python -m tests.crash.dying ACT RUNNER FOLDER [URL]` does the act in one child process after
another, each on a copy of its own: of FOLDER/prepared.db, or of the PostgreSQL database URL. The
Nth child sends itself SIGKILL at the Nth moment (see death.py). It ends with the first child that
survives.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg

import yaoki
from tests.crash.death import Death, make_mortal
from tests.support.acts import BOOM, held
from tests.support.dialects import connected_by_driver, on_postgres
from tests.support.eventually import eventually
from tests.support.postgres import database_of, with_database
from tests.support.runners import Awaiting
from yaoki import Yaoki
from yaoki.core.outcomes import Completed, Retried, settle
from yaoki.jobtypes.context import JobContext
from yaoki.store.ops.claims import Claim
from yaoki.store.ops.settling import Exchange, Settlement

Tell = Callable[..., None]
"""Writes down at once what the caller of yaoki has been promised by now."""


Act = Callable[[Yaoki, Tell], None]


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
    with callers_connection(app) as (connection, begin):
        for _ in range(2):
            connection.execute(begin)
            if yaoki.once(connection, "order-7"):
                connection.execute("UPDATE points SET total = total + 100")
            connection.execute("COMMIT")
            tell(100)


def enqueue_with_an_effect(app: Yaoki, tell: Tell) -> None:
    with callers_connection(app) as (connection, begin):
        connection.execute(begin)
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


@contextmanager
def callers_connection(app: Yaoki) -> Iterator[tuple[Any, str]]:
    """A connection on which each statement is as it is written, and how to begin on it."""
    with connected_by_driver(app.url) as connection:
        if on_postgres(app.url):
            connection.autocommit = True
            yield connection, "BEGIN"
        else:
            connection.isolation_level = None
            yield connection, "BEGIN IMMEDIATE"


BEGIN_WITH_A_CLAIM = (complete, fail, release, exchange, add_points_and_complete)
"""And tell of it first. Its moments are those of `claim`: on PostgreSQL they are not repeated."""


def child(act: Act, awaiting: bool, folder: Path, url: str, fatal: int) -> None:
    """Does the act, up to the fatal moment; never returns."""
    told = os.open(folder / "told", os.O_CREAT | os.O_WRONLY)
    death = Death(fatal, os.open(folder / "died", os.O_CREAT | os.O_WRONLY))

    def tell(what: object) -> None:
        os.write(told, f"{json.dumps(what)}\n".encode())
        death.sleeps = False

    try:
        app = Yaoki(url)
        if awaiting:
            app.store = Awaiting(app.store)  # type: ignore[assignment]
        if on_postgres(url) and act is not first_use:
            # It looks at the tables; that dying then does no harm is seen at the first use.
            app.migrate()
            death.sleeps = act in BEGIN_WITH_A_CLAIM
        make_mortal(death)
        act(app, tell)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(name: str, runner: str, folder: Path, prepared: str | None) -> int:
    act, awaiting = globals()[name], runner.endswith("awaiting")
    server = prepared and psycopg.connect(with_database(prepared, "postgres"), autocommit=True)
    for fatal in count(1):
        own = folder / f"{fatal:04}"
        own.mkdir()
        url = copied_database(server, prepared, own) if server and prepared else copied(folder, own)
        pid = os.fork()
        if pid == 0:
            child(act, awaiting, own, url, fatal)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        if server:
            wait_until_nobody_is_connected(server, url)
        if code != -signal.SIGKILL:
            return code
    return 1


def copied(folder: Path, own: Path) -> str:
    if (folder / "prepared.db").exists():
        shutil.copy(folder / "prepared.db", own / "jobs.db")
    return f"sqlite:///{own / 'jobs.db'}"


def copied_database(server: psycopg.Connection[Any], prepared: str, own: Path) -> str:
    name = f"{database_of(prepared)}_{own.name}"
    server.execute(f'CREATE DATABASE "{name}" TEMPLATE "{database_of(prepared)}"'.encode())
    return with_database(prepared, name)


def wait_until_nobody_is_connected(server: psycopg.Connection[Any], url: str) -> None:
    """The server goes on for a moment with what had reached it before the death."""
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
    eventually(lambda: server.execute(others, [database_of(url)]).fetchone() == (0,), every=0.002)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *(sys.argv[4:] or [None])))
