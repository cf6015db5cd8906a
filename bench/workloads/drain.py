"""Emptying a queue of jobs that do nothing: what a job costs beside its work."""

import time
from contextlib import closing

from bench.figures import Figure, NotMeasured, Target
from bench.limits import BATCHES, drain_rate, open_raw
from bench.probe import Probe
from bench.processes import PATIENCE, workers
from bench.setting import Setting


def drain(
    setting: Setting, target: Target | None, *, kind: str, processes: int = 1
) -> list[Figure]:
    """Workers as users run them, on a copy of one filled database; the limit drains another copy.

    The limit finishes a batch and claims the next in one transaction, the better of two sizes; on
    as many connections as there are workers, but for SQLite, which lets one write at a time.
    """
    jobs = setting.size.jobs
    filled = setting.filled_database(kind, jobs)
    connections = min(processes, setting.databases.writers)

    def ours() -> float:
        with setting.copied(filled) as url:
            return drained(setting, url, jobs, processes=processes)

    def limit() -> float:
        return max(_limit(setting, filled, batch, connections) for batch in BATCHES)

    got, possible = setting.alternate(ours, limit)
    workers_said = "1 worker" if processes == 1 else f"{processes} workers"
    handler = "async def" if "async" in kind else "def"
    what = f"no-op {handler}, {workers_said}: rate"
    return [Figure(what, "/s", got, possible, target, jobs * len(got))]


def drained(
    setting: Setting, url: str, jobs: int, *, processes: int = 1, concurrency: int = 10
) -> float:
    """Jobs a second, from the start of the first handler until the database shows none left.

    Processes are up and have the database open before any of them begins, so that starting Python
    is not measured; a worker's own beginning before its first handler is not, either.
    """
    probe = Probe.create(setting.shared_file(), jobs, processes)
    with (
        workers(url, probe, concurrency=concurrency) as running,
        closing(open_raw(url)) as store,
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


def _limit(setting: Setting, filled: str, batch: int, connections: int) -> float:
    with setting.copied(filled) as url:
        return drain_rate(url, batch, connections)
