"""Writes, and writes the log back all the time: python -m tests.store.sqlite.checkpoint_often URL.

Prints how many jobs it has made.
"""

import sys
import time

from yaoki import Yaoki
from yaoki.store.sqlite import checkpoint

SECONDS = 1.5


def main(url: str) -> None:
    checkpoint.CHECKPOINT_AT = 10
    checkpoint.LOOK_EVERY = checkpoint.PUT_OFF = 0.0
    app = Yaoki(url)
    end, made = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        app.enqueue("mail", {"text": "x" * (made % 7) * 1_000})
        made += 1
        app.claim("w", limit=1)
    app.close()
    print(made, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
