"""What a worker uses: processor time while there is nothing to do, and memory."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import islice

from bench.figures import Figure, Target
from bench.jobs import new_app, payload
from bench.probe import Probe
from bench.processes import Workers, cpu_seconds, megabytes, stop, workers
from bench.setting import Setting

WARM_UP = 20
BATCH = 1_000
AT_REST = 0.5
"""Seconds after which a worker that has nothing to do has come to rest."""


def idle(setting: Setting, target: Target | None) -> list[Figure]:
    """After a few jobs, with nothing in the queue; there is no limit but zero."""
    seconds, databases = setting.size.idle_seconds, setting.databases
    shares: list[float] = []
    rates: list[float] = []
    with _worker(setting, WARM_UP) as (running, enqueue, url):
        enqueue(WARM_UP)
        for _ in range(setting.size.rounds):
            used, began = cpu_seconds(running.pid), time.perf_counter()
            ended = databases.transactions(url) or 0
            time.sleep(seconds)
            took = time.perf_counter() - began
            shares.append(100 * (cpu_seconds(running.pid) - used) / took)
            rates.append(((databases.transactions(url) or 0) - ended) / took)
            running.check_alive()
    figures = [Figure("idle worker, of one core", "%", shares, target=target)]
    if any(rates):
        figures.append(Figure("transactions of it", "/s", rates))
    return figures


def memory(setting: Setting, target: Target | None) -> list[Figure]:
    """Before and after many jobs; the limit is a Python that has imported nothing."""
    jobs = setting.size.jobs
    with _worker(setting, WARM_UP + jobs) as (running, enqueue, _), _bare_python() as bare:
        enqueue(WARM_UP)
        before, limit = megabytes(running.pid), megabytes(bare)
        enqueue(jobs)
        after = megabytes(running.pid)
    return [
        Figure("idle worker (PSS)", "MB", [before], [limit]),
        Figure(f"after {jobs:,} jobs (PSS)", "MB", [after], [limit], ran_once=WARM_UP + jobs),
    ]


Enqueue = Callable[[int], None]
"""Makes so many jobs more, and returns when the worker is through with them and at rest."""


@contextmanager
def _worker(setting: Setting, jobs: int) -> Iterator[tuple[Workers, Enqueue, str]]:
    url = setting.new_database()
    probe = Probe.create(setting.shared_file(), jobs)
    types = new_app(url)
    numbers = iter(range(jobs))
    made = 0

    def enqueue(more: int) -> None:
        nonlocal made
        made += more
        for batch in range(0, more, BATCH):
            some = islice(numbers, min(BATCH, more - batch))
            types.kind("noop").enqueue_many([payload(number) for number in some])
        running.wait_until_begun(made)
        time.sleep(AT_REST)

    with closing(types.app), workers(url, probe) as running:
        yield running, enqueue, url
    probe.check_ran_once()


@contextmanager
def _bare_python() -> Iterator[int]:
    command = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    try:
        yield process.pid
    finally:
        stop([process])
        process.stdin.close()
        process.stdout.close()
