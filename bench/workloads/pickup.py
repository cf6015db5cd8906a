"""How soon an idle worker in another process begins a job that was just enqueued."""

import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import NamedTuple

from bench.figures import Figure, NotMeasured, Target, percentile
from bench.jobs import new_app, payload
from bench.limits import open_raw, rows
from bench.probe import Probe
from bench.processes import ROOT, stop, workers
from bench.setting import Setting

PATIENCE = 10.0
APART = (0.020, 0.040)
"""Seconds between two jobs, random, so that no poll of the worker keeps step."""

WARM_UP = 5


class Picked(NamedTuple):
    """The milliseconds until a job began: since enqueue was called, and since it returned."""

    since_call: float
    since_return: float


def pickup(setting: Setting, target: Target | None) -> list[Figure]:
    """From enqueue to the handler's first line, one job at a time, taking turns.

    The limit is a raw INSERT, a wake-up (a byte through a pipe on SQLite, NOTIFY in the same
    commit on PostgreSQL) of a process that waits for it, and a raw claim there.
    """
    size = setting.size
    jobs = WARM_UP + size.pickups * size.rounds
    got: list[Picked] = []
    possible: list[Picked] = []
    with _ours(setting, jobs) as ours, _limit(setting, jobs) as limit:
        for number in range(jobs):
            for act, times in ((ours, got), (limit, possible)):
                time.sleep(random.uniform(*APART))
                times.append(act(number))
    called = _times(setting, [[one.since_call for one in times] for times in (got, possible)])
    returned = _times(setting, [[one.since_return for one in times] for times in (got, possible)])
    return [
        called.figure("idle worker, from the call to the handler: p50", 0.5, target, jobs),
        called.figure("p95", 0.95),
        called.figure("p99", 0.99),
        returned.figure("the same from the return of enqueue: p50", 0.5),
        returned.figure("p95", 0.95),
    ]


class _Times(NamedTuple):
    """Of each round."""

    got: list[list[float]]
    possible: list[list[float]]

    def figure(
        self, what: str, part: float, target: Target | None = None, ran_once: int = 0
    ) -> Figure:
        got = [percentile(each, part) for each in self.got]
        possible = [percentile(each, part) for each in self.possible]
        return Figure(what, "ms", got, possible, target, ran_once)


def _times(setting: Setting, both: list[list[float]]) -> _Times:
    size = setting.size
    rounds = [slice(n * size.pickups, (n + 1) * size.pickups) for n in range(size.rounds)]
    got, possible = ([times[WARM_UP:][each] for each in rounds] for times in both)
    return _Times(got, possible)


Act = Callable[[int], Picked]
"""Makes the job of this number, and waits until it has begun."""


@contextmanager
def _ours(setting: Setting, jobs: int) -> Iterator[Act]:
    url = setting.new_database()
    probe = Probe.create(setting.shared_file(), jobs)
    types = new_app(url)
    with closing(types.app), workers(url, probe):
        enqueue = types.kind("noop").enqueue

        def act(number: int) -> Picked:
            began = time.monotonic_ns()
            enqueue(**payload(number))
            return _until_begun(probe, number, began, time.monotonic_ns())

        yield act
    probe.check_ran_once()


@contextmanager
def _limit(setting: Setting, jobs: int) -> Iterator[Act]:
    url = setting.new_database()
    probe = Probe.create(setting.shared_file(), jobs)
    waiter = _waiter(url, probe)
    assert waiter.stdin is not None
    pipe = waiter.stdin.fileno()
    try:
        with closing(open_raw(url)) as raw:

            def act(number: int) -> Picked:
                [row] = rows(1, number)
                began = time.monotonic_ns()
                raw.insert_and_wake(row, pipe)
                return _until_begun(probe, number, began, time.monotonic_ns())

            yield act
    finally:
        waiter.stdin.close()
        stop([waiter])


def _waiter(url: str, probe: Probe) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.limits.waiter", url, str(probe.path)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)
    end = time.monotonic() + PATIENCE
    while not probe.ready:
        if process.poll() is not None or time.monotonic() > end:
            raise NotMeasured("the process that waits did not get ready")
        time.sleep(0.002)
    probe.go()
    return process


def _until_begun(probe: Probe, number: int, called: int, returned: int) -> Picked:
    end = time.monotonic() + PATIENCE
    while not (when := probe.when(number)):
        if time.monotonic() > end:
            raise NotMeasured(f"job {number} did not begin within {PATIENCE:.0f} s")
        time.sleep(0.001)
    return Picked((when - called) / 1e6, (when - returned) / 1e6)
