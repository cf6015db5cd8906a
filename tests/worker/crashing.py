"""The program whose workers are killed.

    python -m tests.worker.crashing URL LEDGER [setting=value …]

Its handlers write lines to the file LEDGER, so a test sees what happened in which process, whatever
became of it.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import yaoki
from tests.support.dialects import connected_by_driver, mark
from yaoki import JobContext, RetryPolicy, Yaoki, fixed

AT_ONCE = RetryPolicy(max_attempts=3, backoff=fixed(0))


class Crashing(Yaoki):
    """An app, and the file in which its handlers write."""

    def __init__(self, url: str, ledger: Path) -> None:
        super().__init__(url)
        self.ledger = ledger


def build(url: str, ledger: Path) -> Crashing:
    """The app, also for the test that enqueues."""
    app = Crashing(url, ledger)
    insert = f"INSERT INTO effects VALUES ({mark(url)})"

    def write(*words: object) -> None:
        with ledger.open("a") as file:
            file.write(" ".join(map(str, (*words, os.getpid()))) + "\n")

    @app.job("short", retry=RetryPolicy(max_attempts=50, backoff=fixed(0)))
    def short(number: int) -> None:
        time.sleep(0.005)

    @app.job("long", retry=AT_ONCE)
    def long(ctx: JobContext, seconds: float) -> str:
        write("began", ctx.job.id)
        time.sleep(seconds)
        write("ended", ctx.job.id)
        return f"attempt {ctx.attempt}"

    @app.job("long-async", retry=AT_ONCE)
    async def long_async(ctx: JobContext, seconds: float) -> str:
        write("began", ctx.job.id)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            write("cancelled", ctx.job.id)
            raise
        write("ended", ctx.job.id)
        return f"attempt {ctx.attempt}"

    @app.job("polite", retry=AT_ONCE)
    def polite(ctx: JobContext, seconds: float) -> str:
        write("began", ctx.job.id)
        if ctx.wait_stopping(seconds):
            write("told", ctx.job.id, ctx.stopping)
            return "saved what it had"
        return "all of it"

    @app.job("poison", retry=AT_ONCE)
    def poison(ctx: JobContext) -> None:
        write("poisoned", ctx.job.id)
        os.kill(os.getpid(), signal.SIGKILL)

    @app.job("exits", retry=AT_ONCE)
    def exits(ctx: JobContext) -> None:
        write("exits", ctx.job.id)
        os._exit(1)

    @app.job("innocent", retry=RetryPolicy(max_attempts=20, backoff=fixed(0)))
    def innocent(ctx: JobContext) -> None:
        time.sleep(0.02)

    @app.job("in-transaction", retry=AT_ONCE)
    def in_transaction(ctx: JobContext, seconds: float) -> None:
        with ctx.transaction() as tx:
            tx.execute("CREATE TABLE effect (x INTEGER)")
            write("began", ctx.job.id)
            time.sleep(seconds)

    @app.job("effect", retry=RetryPolicy(max_attempts=50, backoff=fixed(0)))
    def effect(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(insert, [ctx.job.id])
            time.sleep(0.002)
        time.sleep(0.002)

    @app.job("effect-once", retry=RetryPolicy(max_attempts=50, backoff=fixed(0)))
    def effect_once(ctx: JobContext) -> None:
        with connected_by_driver(app.url) as connection, connection:
            if yaoki.once(connection, f"job {ctx.job.id}"):
                connection.execute(insert, [ctx.job.id])
        time.sleep(0.002)

    @app.job("wants-the-lock", retry=AT_ONCE)
    def wants_the_lock(ctx: JobContext, seconds: float) -> None:
        write("began", ctx.job.id)
        time.sleep(0.3)
        with ctx.transaction():
            time.sleep(seconds)

    @app.job("wants-the-lock-async", retry=AT_ONCE)
    async def wants_the_lock_async(ctx: JobContext, seconds: float) -> None:
        write("began", ctx.job.id)
        await asyncio.sleep(0.3)
        async with ctx.atransaction():
            await asyncio.sleep(seconds)

    @app.job("blocks-the-loop", retry=AT_ONCE)
    async def blocks_the_loop(ctx: JobContext, seconds: float) -> None:
        write("began", ctx.job.id)
        time.sleep(seconds)

    return app


def main(url: str, ledger: str, *said: str) -> int:
    settings: dict[str, Any] = {"lease_for": 1, "grace": 10, "concurrency": 2}
    for each in said:
        name, _, value = each.partition("=")
        settings[name] = int(value)
    own: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: own.append(number))
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    app = build(url, Path(ledger))
    ending = app.run_worker(**settings)
    after = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    app.close()
    print("handlers put back" if after == before and not own else "handlers lost", flush=True)
    return ending.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
