"""Jobs that wait for something else, as most do: 10 ms, 50 at once, so 5,000/s is the ideal."""

from bench.figures import Figure, Target
from bench.jobs import IO_SECONDS
from bench.limits.python import sleeps_in_tasks, sleeps_in_threads
from bench.setting import Setting
from bench.workloads.drain import drained

AT_ONCE = 50


def io(setting: Setting, target: Target | None, *, kind: str) -> list[Figure]:
    """One worker process; the limit is plain Python that sleeps as often."""
    jobs = setting.size.io_jobs
    filled = setting.filled_database(kind, jobs)
    is_async = "async" in kind
    sleeps = sleeps_in_tasks if is_async else sleeps_in_threads

    def ours() -> float:
        with setting.copied(filled) as url:
            return drained(setting, url, jobs, concurrency=AT_ONCE)

    def limit() -> float:
        return sleeps(jobs, AT_ONCE, IO_SECONDS)

    got, possible = setting.alternate(ours, limit)
    what = f"10 ms of {'asyncio' if is_async else 'time'}.sleep, {AT_ONCE} at once: rate"
    return [Figure(what, "/s", got, possible, target, jobs * len(got))]
