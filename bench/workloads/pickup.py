"""How soon an idle worker in another process begins a job that was just enqueued."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from bench.figures import AtMost, Figure, NotMeasured, percentile
from bench.jobs import new_app, payload
from bench.limits.sqlite import RawSQLite, rows
from bench.probe import Probe
from bench.processes import ROOT, stop, workers
from bench.setting import Setting

PATIENCE = 10.0
APART = (0.020, 0.040)
"""Seconds between two jobs, random, so that no poll of the worker keeps step."""

WARM_UP = 5


def pickup(setting: Setting) -> list[Figure]:
    """From the call of enqueue to the handler's first line, one job at a time, taking turns.

    The limit is a raw INSERT, a byte through a pipe to a process that waits for it, and a raw
    claim there: two commits and one wake-up.
    """
    size = setting.size
    jobs = WARM_UP + size.pickups * size.rounds
    got: list[float] = []
    possible: list[float] = []
    with _ours(setting, jobs) as ours, _limit(setting, jobs) as limit:
        for number in range(jobs):
            for act, times in ((ours, got), (limit, possible)):
                time.sleep(random.uniform(*APART))
                times.append(act(number))
    got, possible = got[WARM_UP:], possible[WARM_UP:]
    rounds = [slice(n * size.pickups, (n + 1) * size.pickups) for n in range(size.rounds)]
    return [
        Figure(
            "idle worker, from the call to the handler: p50",
            "ms",
            [percentile(got[each], 0.5) for each in rounds],
            [percentile(possible[each], 0.5) for each in rounds],
            AtMost(3),
            jobs,
        ),
        Figure(
            f"the same: p99 of {len(got)}",
            "ms",
            [percentile(got, 0.99)],
            [percentile(possible, 0.99)],
        ),
    ]


Act = Callable[[int], float]
"""Makes the job of this number; the milliseconds until it began."""


@contextmanager
def _ours(setting: Setting, jobs: int) -> Iterator[Act]:
    path = setting.new_database()
    probe = Probe.create(setting.shared_file(), jobs)
    types = new_app(path)
    with closing(types.app), workers(path, probe):
        enqueue = types.kind("noop").enqueue

        def act(number: int) -> float:
            began = time.monotonic_ns()
            enqueue(**payload(number))
            return _until_begun(probe, number, began)

        yield act
    probe.check_ran_once()


@contextmanager
def _limit(setting: Setting, jobs: int) -> Iterator[Act]:
    path = setting.new_database()
    probe = Probe.create(setting.shared_file(), jobs)
    waiter = _waiter(path, probe)
    assert waiter.stdin is not None
    wake = waiter.stdin.fileno()
    try:
        with closing(RawSQLite(path)) as raw:

            def act(number: int) -> float:
                [row] = rows(1, number)
                began = time.monotonic_ns()
                raw.insert(row)
                os.write(wake, b"\0")
                return _until_begun(probe, number, began)

            yield act
    finally:
        waiter.stdin.close()
        stop([waiter])


def _waiter(path: Path, probe: Probe) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.limits.waiter", str(path), str(probe.path)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE)
    probe.go()
    return process


def _until_begun(probe: Probe, number: int, began: int) -> float:
    end = time.monotonic() + PATIENCE
    while not (when := probe.when(number)):
        if time.monotonic() > end:
            raise NotMeasured(f"job {number} did not begin within {PATIENCE:.0f} s")
        time.sleep(0.001)
    return (when - began) / 1e6
