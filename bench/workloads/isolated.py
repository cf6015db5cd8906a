"""What an attempt takes longer when its handler runs in a process of its own."""

import time
from collections.abc import Callable
from contextlib import closing
from statistics import median

from bench.figures import Figure, Target
from bench.isolated import app
from bench.jobs import payload
from bench.limits.python import Echo
from bench.setting import Setting
from yaoki.core.outcomes import Change
from yaoki.jobtypes import JobContext
from yaoki.store import open_store
from yaoki.worker.isolated import Pool
from yaoki.worker.perform import perform
from yaoki.worker.run import Run

Perform = Callable[[Run], Change | None]


def isolated(setting: Setting, target: Target | None) -> list[Figure]:
    """The median of many no-op attempts, less that of a no-op on a thread.

    The limit is a message to another process and one back, over a bare pipe.
    """
    app.store = open_store(setting.new_database())
    pool = Pool(app.store, app.types, 60.0)
    with closing(app), closing(Echo()) as echo:
        try:
            pool.warm_up(lambda: False)
            return [
                _figure(setting, "isolated", pool.perform, echo, target),
                _figure(setting, "isolated-async", pool.perform, echo, None),
            ]
        finally:
            pool.end_children(in_a_hurry=False)
            pool.stop()


def _figure(
    setting: Setting, kind: str, performed: Perform, echo: Echo, target: Target | None
) -> Figure:
    calls = setting.size.calls

    def ours() -> float:
        return 1_000 * (_median(kind, calls, performed) - _median("on-a-thread", calls, perform))

    def limit() -> float:
        return 1_000 * echo.median_of(calls)

    got, possible = setting.alternate(ours, limit)
    handler = "async def" if "async" in kind else "def"
    return Figure(f"no-op {handler}, what it takes longer", "ms", got, possible, target)


def _median(kind: str, calls: int, performed: Perform) -> float:
    """Seconds of one attempt; the job is claimed once, for only its handler is of interest."""
    found = app.types.get(kind)
    assert found is not None
    app.enqueue(kind, payload(0))
    [job] = app.claim("bench", types=[kind])
    times = []
    for _ in range(calls):
        run = Run(job, found, JobContext(app.store, job), marked=True)
        run.begin(time.monotonic())
        began = time.perf_counter()
        change = performed(run)
        times.append(time.perf_counter() - began)
        assert change is not None
        assert change.outcome == "completed", change
    return median(times)
