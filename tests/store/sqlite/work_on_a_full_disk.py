"""A worker whose disk gets full: python -m tests.store.sqlite.work_on_a_full_disk URL LEDGER.

On SIGUSR1 its files may not grow any more, nor be written to beyond a few bytes; on SIGUSR2 they
may again.
"""

import logging
import resource
import signal
import sys
from pathlib import Path

from yaoki import JobContext, RetryPolicy, Yaoki, fixed

LITTLE = 4_096


def main(url: str, folder: str) -> int:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def set_limit(most: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGUSR1, lambda number, frame: set_limit(LITTLE))
    signal.signal(signal.SIGUSR2, lambda number, frame: set_limit(hard))
    app = Yaoki(url)

    @app.job("waits", retry=RetryPolicy(backoff=fixed(0)))
    def waits(ctx: JobContext) -> str:
        """Runs until it may end."""
        Path(folder, f"began-{ctx.job.id}-{ctx.attempt}").touch()
        while not Path(folder, "go").exists():
            ctx.wait_stopping(0.02)
        return "x" * 50_000

    return app.run_worker(lease_for=1, concurrency=4).exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
