"""A program that adds 100 points and dies the first time: python -m tests.experiments.points."""

import os
import signal
import sys
from collections.abc import Callable

import yaoki
from tests.support.dialects import connected_by_driver, mark
from yaoki import JobContext, RetryPolicy, Yaoki


def add(app: Yaoki, account: str) -> tuple[str, list[str]]:
    """The statement for the driver of the queue's database."""
    statement = f"UPDATE points SET balance = balance + 100 WHERE account = {mark(app.url)}"
    return statement, [account]


def die_the_first_time(ctx: JobContext) -> None:
    if ctx.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)


def without_protection(app: Yaoki, ctx: JobContext, account: str) -> None:
    with connected_by_driver(app.url) as connection, connection:
        connection.execute(*add(app, account))
    die_the_first_time(ctx)


def with_once(app: Yaoki, ctx: JobContext, account: str) -> None:
    with connected_by_driver(app.url) as connection, connection:
        if yaoki.once(connection, f"{account}-welcome"):
            connection.execute(*add(app, account))
    die_the_first_time(ctx)


def with_transaction(app: Yaoki, ctx: JobContext, account: str) -> None:
    with ctx.transaction() as tx:
        tx.execute(*add(app, account))
        die_the_first_time(ctx)


def after_transaction(app: Yaoki, ctx: JobContext, account: str) -> None:
    with ctx.transaction() as tx:
        tx.execute(*add(app, account))
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
