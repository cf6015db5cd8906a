"""What every limit can do, on a database that yaoki made: the same work, and nothing around it."""

import time
from collections.abc import Sequence
from typing import Protocol

from bench.jobs import payload_text
from yaoki.core.said import DEFAULT_TIMEOUT

Row = tuple[str, str, int, int, int, int]
"""type, payload, run_at, timeout, created_at, updated_at."""

BATCHES = (100, 500)
"""Jobs per transaction of a drain; which is better depends on the disk, so both are tried."""

WORKER_ID = "limit.example.com:12345:0123abcd"


class Raw(Protocol):
    """A connection with the driver's own ways and nothing else. One transaction for each call.

    tests/bench/test_limits.py compares the rows that it writes with those of yaoki.
    """

    def insert(self, row: Row) -> int:
        """Enqueue one; its id."""

    def insert_many(self, rows: Sequence[Row]) -> None:
        """Enqueue many."""

    def exchange(self, limit: int) -> list[int]:
        """Finish what was claimed before, and claim the next; their ids."""

    def insert_and_wake(self, row: Row, pipe: int) -> None:
        """Enqueue one, and wake the process that waits at the other end of this pipe."""

    def listen(self) -> None:
        """From now on `wait` hears of every job."""

    def wait(self, pipe: int) -> bool:
        """Until somebody has enqueued a job and said so; False when the pipe has been closed."""

    def left(self) -> bool:
        """Is any job pending or running?"""

    def completed(self) -> int:
        """How many jobs are completed."""

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        """What a statement brings; the table of jobs is called {jobs} in it."""

    def close(self) -> None: ...


def rows(count: int, first: int = 0) -> list[Row]:
    """Jobs to be inserted, numbered from `first`."""
    now = time.time_ns() // 1000
    return [
        ("noop", payload_text(number), now, DEFAULT_TIMEOUT, now, now)
        for number in range(first, first + count)
    ]
