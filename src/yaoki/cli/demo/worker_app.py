"""The app that the demo's worker processes run; its database is YAOKI_URL."""

import os
import signal
import threading

from yaoki.app import Yaoki
from yaoki.cli.demo.shop import jobs

app = Yaoki()
app.include(jobs)


def _end_with_the_demo() -> None:
    """Standard input is a pipe from the demo: when it ends, so did the demo, however it died."""
    # Not through sys.stdin: its lock, held here, would crash the interpreter when it ends.
    while os.read(0, 1):
        pass
    # One whose supervisor is gone drains anyway, and whoever is its parent then is not to be hurt.
    if os.getppid() == SUPERVISOR:
        os.kill(SUPERVISOR, signal.SIGTERM)


SUPERVISOR = os.getppid()

threading.Thread(target=_end_with_the_demo, daemon=True).start()
