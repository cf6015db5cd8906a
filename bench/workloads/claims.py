"""What a claim costs beside a million jobs that are not for it."""

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from statistics import median
from typing import NamedTuple

from bench.figures import Figure, NotMeasured, Target
from bench.jobs import new_app, payload, payload_text
from bench.limits import open_raw
from bench.setting import Setting
from yaoki.store import open_store
from yaoki.store.ops.claims import Claim

LIMITS = (1, 100)
"""Jobs for each claim: a worker whose slots become free one by one, and one with quick jobs."""


class Crowd(NamedTuple):
    """Jobs that a claim of `noop` in the queue `default` finds in its way, or beside it."""

    name: str
    values: str
    """Of _COLUMNS, as SQL; `n` counts from 1."""


_COLUMNS = "type, queue, priority, run_at, status, attempt, lease, result, finished_at"
_EARLY, _LATE = "1000000 + n", "4000000000000000 + n"
_WAITING = "'pending', 0, 0, NULL, NULL"

CROWDS = (
    Crowd("completed", f"'noop', 'default', 0, {_EARLY}, 'completed', 1, 2, 'null', {_EARLY}"),
    Crowd("for later, of the highest priority", f"'noop', 'default', 100, {_LATE}, {_WAITING}"),
    Crowd("of another queue", f"'noop', 'other', 0, {_EARLY}, {_WAITING}"),
    Crowd("of an unknown type", f"'other', 'default', 0, {_EARLY}, {_WAITING}"),
)


def claims(setting: Setting, target: Target | None) -> list[Figure]:
    """The median time of a claim; the limit is the same claim in a database without the crowd.

    Claims are made as a worker makes them: after one that found the head of the queue crowded, it
    goes around the head for a second. The first of each second is a figure of its own.
    """
    return [figure for crowd in CROWDS for figure in _beside(setting, crowd, target)]


def _beside(setting: Setting, crowd: Crowd, target: Target | None) -> list[Figure]:
    size = setting.size
    crowded, alone = _database(setting, crowd, size.crowd), _database(setting, crowd, 0)
    what = f"beside {size.crowd:,} {crowd.name}"
    with closing(_Claimer(crowded)) as ours, closing(_Claimer(alone)) as limit:
        figures = [
            _figure(
                setting,
                f"of {many}, {what}",
                partial(ours.claim, many),
                partial(limit.claim, many),
                target,
            )
            for many in LIMITS
        ]
        if ours.by_lanes:
            first = partial(ours.claim, 1, first=True)
            other = partial(limit.claim, 1, first=True)
            figures.append(_figure(setting, "the first of each second", first, other))
    setting.databases.drop(crowded)
    setting.databases.drop(alone)
    return figures


def _figure(
    setting: Setting,
    what: str,
    ours: Callable[[], float],
    limit: Callable[[], float],
    target: Target | None = None,
) -> Figure:
    """Of each round the median of many claims, each beside one of the limit."""
    ours()
    limit()
    pairs = [setting.alternate(ours, limit) for _ in range(setting.size.claims)]
    got, possible = (
        [median(times) for times in zip(*each, strict=True)] for each in zip(*pairs, strict=True)
    )
    return Figure(what, "ms", got, possible, target)


class _Claimer:
    """Claims as a worker does that takes one type from one queue."""

    def __init__(self, url: str) -> None:
        self._store = open_store(url)
        self.by_lanes = False

    def claim(self, limit: int, *, first: bool = False) -> float:
        """The milliseconds that it took."""
        claim = Claim(
            worker_id="bench",
            limit=limit,
            types=("noop",),
            queues=("default",),
            by_lanes=self.by_lanes and not first,
        )
        began = time.perf_counter()
        claimed = self._store.run(claim)
        took = time.perf_counter() - began
        if len(claimed.jobs) != limit:
            raise NotMeasured(f"a claim of {limit} brought {len(claimed.jobs)}")
        self.by_lanes = claimed.by_lanes
        return 1_000 * took

    def close(self) -> None:
        self._store.close()


def _database(setting: Setting, crowd: Crowd, size: int) -> str:
    """With so many of the crowd, and behind them as many jobs as will be claimed."""
    url = setting.new_database()
    with closing(open_raw(url)) as raw:
        raw.rows(_filled(crowd, size))
    types = new_app(url)
    for many in (*LIMITS, 1):
        for _ in range(1 + setting.size.claims * setting.size.rounds):
            types.kind("noop").enqueue_many([payload(number) for number in range(many)])
    types.app.close()
    setting.databases.settle(url)
    return url


def _filled(crowd: Crowd, size: int) -> str:
    return f"""
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {size})
    INSERT INTO {{jobs}} ({_COLUMNS}, payload, max_attempts, created_at, updated_at)
    SELECT {crowd.values}, '{payload_text(0)}', 4, 1000000, 1000000 FROM numbers WHERE n <= {size}
    """
