"""Making jobs: one call at a time, and a thousand."""

import time
from collections.abc import Callable
from itertools import count
from typing import Any

from bench.figures import Figure, Target, percentile
from bench.jobs import new_app, payload
from bench.limits import open_raw, rows
from bench.setting import Setting

BATCH = 1_000


def enqueue_one(setting: Setting, target: Target | None, *, durability: str) -> list[Figure]:
    """Calls one after the other, each a commit of its own; the limit is an autocommit INSERT."""
    types = new_app(setting.new_database(), durability=durability)
    raw = open_raw(setting.new_database(), durability)
    enqueue, calls, numbers = types.kind("noop").enqueue, setting.size.calls, count()

    def ours() -> list[float]:
        payloads = [payload(next(numbers)) for _ in range(calls)]
        return _timed(lambda one: enqueue(**one), payloads)

    def limit() -> list[float]:
        return _timed(raw.insert, rows(calls, next(numbers)))

    ours()
    limit()
    got, possible = setting.alternate(ours, limit)
    types.app.close()
    raw.close()
    return [
        Figure(
            f"{durability} durability: rate",
            "/s",
            [calls / sum(each) for each in got],
            [calls / sum(each) for each in possible],
            target,
        ),
        _latency("p50", 0.5, got, possible),
        _latency("p99", 0.99, got, possible),
    ]


def enqueue_many(setting: Setting, target: Target | None) -> list[Figure]:
    """A thousand in each call, a commit each; the limit is executemany on SQLite, else COPY."""
    types, raw = new_app(setting.new_database()), open_raw(setting.new_database())
    numbers = count()

    def ours() -> float:
        batches = [
            [payload(next(numbers)) for _ in range(BATCH)] for _ in range(setting.size.batches)
        ]
        return BATCH * len(batches) / sum(_timed(types.kind("noop").enqueue_many, batches))

    def limit() -> float:
        batches = [rows(BATCH, next(numbers)) for _ in range(setting.size.batches)]
        return BATCH * len(batches) / sum(_timed(raw.insert_many, batches))

    ours()
    limit()
    got, possible = setting.alternate(ours, limit)
    types.app.close()
    raw.close()
    return [Figure(f"{BATCH:,} at a time: rate", "/s", got, possible, target)]


def _timed(call: Callable[[Any], object], arguments: list[Any]) -> list[float]:
    """The seconds that each call took."""
    clock, took = time.perf_counter, []
    for argument in arguments:
        began = clock()
        call(argument)
        took.append(clock() - began)
    return took


def _latency(name: str, part: float, got: list[list[float]], possible: list[list[float]]) -> Figure:
    return Figure(
        f"{name} of the call",
        "ms",
        [1_000 * percentile(each, part) for each in got],
        [1_000 * percentile(each, part) for each in possible],
    )
