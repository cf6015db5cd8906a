"""What the database tells of how the work goes: read in a few seeks, however much there is."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from yaoki.core.times import as_datetime
from yaoki.store.op import Op, Steps, ask
from yaoki.store.ops.queues import Paused, PausedName
from yaoki.store.ops.workers import Worker, Workers

MOST_LANES = 2_000
"""So many (type, queue, priority) are looked at."""

MOST_OVERDUE = 1_000


class Ready(NamedTuple):
    """The job of a type in a queue that could have run first; `waits` is seconds since then."""

    type: str
    queue: str
    job_id: int
    waits: float


class Survey(NamedTuple):
    """How the work goes.

    `ready` has the longest waiting job of each (type, queue) that has due ones, paused or not;
    `complete` is False when there were too many to look at. `overdue` jobs have been running
    without a lease for the length of one, the first of them is `first_overdue`.
    """

    ready: list[Ready]
    complete: bool
    overdue: int
    first_overdue: int | None
    paused: list[PausedName]
    workers: list[Worker]
    now: datetime


@dataclass(frozen=True, slots=True)
class LookAround(Op[Survey]):
    """See how the work goes. Changes nothing."""

    writes = False
    atomic = False

    def steps(self) -> Steps[Survey]:
        now = (yield ask("tiers")).now
        heads = (yield ask("heads", limit=MOST_LANES)).rows
        [(overdue, first_overdue)] = (yield ask("overdue", limit=MOST_OVERDUE)).rows
        paused = yield from Paused().steps()
        workers = yield from Workers().steps()
        longest: dict[tuple[str, str], Ready] = {}
        for kind, queue, _, run_at, job_id in sorted(heads, key=lambda head: -head[3]):
            if run_at <= now:
                waits = (now - run_at) / 1_000_000
                longest[kind, queue] = Ready(kind, queue, job_id, waits)
        ready = sorted(longest.values(), key=lambda one: (-one.waits, one.job_id))
        complete = len(heads) < MOST_LANES
        return Survey(ready, complete, overdue, first_overdue, paused, workers, as_datetime(now))
