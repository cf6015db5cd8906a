"""What the machine could do at best: the same work with nothing around it."""

import time
from concurrent.futures import ThreadPoolExecutor

from bench.limits.postgres import RawPostgres
from bench.limits.raw import BATCHES, Raw, Row, rows
from bench.limits.sqlite import RawSQLite

__all__ = ["BATCHES", "Raw", "Row", "drain_rate", "open_raw", "rows"]


def open_raw(url: str, durability: str = "full") -> Raw:
    """A connection to a database that yaoki made."""
    kind = RawSQLite if url.startswith("sqlite:") else RawPostgres
    return kind(url, durability)


def drain_rate(url: str, batch: int, connections: int = 1) -> float:
    """Jobs a second until everything is completed, by so many connections at once."""
    raws = [open_raw(url) for _ in range(connections)]
    with ThreadPoolExecutor(connections) as threads:
        began = time.perf_counter()
        done = sum(threads.map(lambda raw: _drain(raw, batch), raws))
        took = time.perf_counter() - began
    assert not raws[0].left()
    assert raws[0].completed() == done
    for raw in raws:
        raw.close()
    return done / took


def _drain(raw: Raw, batch: int) -> int:
    done = 0
    while claimed := raw.exchange(batch):
        done += len(claimed)
    return done
