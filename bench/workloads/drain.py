"""Emptying a queue of jobs that do nothing: what a job costs beside its work."""

import time
from contextlib import closing
from pathlib import Path

from bench.figures import Figure, NotMeasured, Target
from bench.limits.sqlite import BATCHES, RawSQLite, drain_rate
from bench.probe import Probe
from bench.processes import PATIENCE, workers
from bench.setting import Setting


def drain(
    setting: Setting, kind: str, processes: int = 1, target: Target | None = None
) -> list[Figure]:
    """Workers as users run them, on a copy of one filled file; the limit drains another copy.

    The limit is one connection that finishes a batch and claims the next in one transaction, the
    better of two sizes. It stands beside two workers as well: SQLite lets one write at a time.
    """
    jobs = setting.size.jobs
    filled = setting.filled_database(kind, jobs)

    def ours() -> float:
        with setting.copied(filled) as path:
            return drained(setting, path, jobs, processes=processes)

    def limit() -> float:
        return max(_limit(setting, filled, batch) for batch in BATCHES)

    got, possible = setting.alternate(ours, limit)
    workers_said = "1 worker" if processes == 1 else f"{processes} workers"
    handler = "async def" if "async" in kind else "def"
    what = f"no-op {handler}, {workers_said}: rate"
    return [Figure(what, "/s", got, possible, target, jobs * len(got))]


def drained(
    setting: Setting, path: Path, jobs: int, *, processes: int = 1, concurrency: int = 10
) -> float:
    """Jobs a second, from the start of the first handler until the file shows none left.

    Processes are up and have the file open before any of them begins, so that starting Python
    is not measured; a worker's own beginning before its first handler is not, either.
    """
    probe = Probe.create(setting.shared_file(), jobs, processes)
    with (
        workers(path, probe, concurrency=concurrency) as running,
        closing(RawSQLite(path)) as store,
    ):
        running.wait_until_begun(jobs)
        end = time.monotonic() + PATIENCE
        while store.left():
            if time.monotonic() > end:
                raise NotMeasured("every job ran, but not all are recorded as completed")
            time.sleep(0.000_5)
        took = (time.monotonic_ns() - probe.first()) / 1e9
        completed = store.completed()
    probe.check_ran_once()
    if completed != jobs:
        raise NotMeasured(f"{jobs} jobs ran, and {completed} are completed")
    return jobs / took


def _limit(setting: Setting, filled: Path, batch: int) -> float:
    with setting.copied(filled) as path:
        return drain_rate(path, batch)
