"""A program that adds 100 points and dies the first time: python -m tests.experiments.points."""

import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import yaoki
from yaoki import JobContext, RetryPolicy, Yaoki

ADD = "UPDATE points SET balance = balance + 100 WHERE account = ?"


def die_the_first_time(ctx: JobContext) -> None:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def connected(app: Yaoki) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(app.url.removeprefix("sqlite:///"))
    try:
        yield connection
    finally:
        connection.close()


def without_protection(app: Yaoki, ctx: JobContext, account: str) -> None:
    with connected(app) as connection, connection:
        connection.execute(ADD, [account])
    die_the_first_time(ctx)


def with_once(app: Yaoki, ctx: JobContext, account: str) -> None:
    with connected(app) as connection, connection:
        if yaoki.once(connection, f"{account}-welcome"):
            connection.execute(ADD, [account])
    die_the_first_time(ctx)


def with_transaction(app: Yaoki, ctx: JobContext, account: str) -> None:
    with ctx.transaction() as tx:
        tx.execute(ADD, [account])
        die_the_first_time(ctx)


def after_transaction(app: Yaoki, ctx: JobContext, account: str) -> None:
    with ctx.transaction() as tx:
        tx.execute(ADD, [account])
    die_the_first_time(ctx)


WAYS: dict[str, Callable[[Yaoki, JobContext, str], None]] = {
    "without protection": without_protection,
    "with once": with_once,
    "with transaction": with_transaction,
    "after transaction": after_transaction,
}


def main(url: str, way: str) -> None:
    app = Yaoki(url)

    @app.job("add-points", retry=RetryPolicy(backoff=yaoki.fixed(0)))
    def add_points(ctx: JobContext, account: str) -> None:
        WAYS[way](app, ctx, account)

    app.run_worker(concurrency=1, lease_for=1, until_empty=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
