"""A worker on a host of its own: `python -m tests.network.program URL LEDGER HOST`.

Its handlers write lines to the file LEDGER, which all hosts share. On the host `left` they take
long, in different ways; anywhere else they are quick. Each job's result is the host that did it.
"""

import logging
import sys
import time
from pathlib import Path

from yaoki import JobContext, RetryPolicy, Yaoki, fixed

AT_ONCE = RetryPolicy(max_attempts=5, backoff=fixed(0))


def build(url: str, ledger: Path, host: str = "") -> Yaoki:
    """The app, also for the test that enqueues."""
    app = Yaoki(url)

    def write(ctx: JobContext, *words: object) -> None:
        with ledger.open("a") as file:
            file.write(" ".join(map(str, (host, ctx.job.type, *words))) + "\n")

    @app.job("waits", retry=AT_ONCE)
    def waits(ctx: JobContext) -> str:
        """Until it is told to stop."""
        write(ctx, "began")
        if host == "left" and ctx.wait_stopping(60):
            write(ctx, "was told:", ctx.stopping)
        return host

    @app.job("returns", retry=AT_ONCE)
    def returns(ctx: JobContext, once: str) -> str:
        """As soon as a file is there, whatever it is told."""
        write(ctx, "began")
        while host == "left" and not Path(once).exists():
            time.sleep(0.02)
        write(ctx, "returned")
        return host

    @app.job("holds", retry=AT_ONCE)
    def holds(ctx: JobContext, once: str) -> None:
        """A transaction, in which its row is locked."""
        with ctx.transaction() as tx:
            tx.execute("INSERT INTO effects VALUES (%s)", [host])
            write(ctx, "began")
            while host == "left" and not Path(once).exists():
                time.sleep(0.02)
            tx.result = host

    @app.job("quick", retry=AT_ONCE)
    def quick(ctx: JobContext) -> str:
        return host

    return app


def main(url: str, ledger: str, host: str) -> int:
    logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
    app = build(url, Path(ledger), host)
    return app.run_worker(lease_for=2, grace=5, concurrency=4).exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
