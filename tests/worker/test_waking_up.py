"""An idle worker starts what comes at once, sleeps until exactly what is due next, never early."""

import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker
from yaoki import RetryPolicy, Yaoki, fixed


def idle(app: Yaoki) -> None:
    """Wait until the worker has looked, found nothing, and sleeps."""
    eventually(app.workers)
    eventually(lambda: not list(app.jobs(status="running")))


def latencies(app: Yaoki) -> list[float]:
    """Seconds from when each job was due until it began."""
    began = [(job.attempts[-1].started_at, job.run_at) for job in map(app.get, ids(app))]
    return [(start - due).total_seconds() for start, due in began if start is not None]


def ids(app: Yaoki) -> list[int]:
    return [job.id for job in app.jobs(status="completed", limit=1000)]


def test_a_job_of_the_same_process_starts_at_once(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("a")
    def handler() -> None: ...

    start_worker()
    idle(app)
    for _ in range(20):
        app.wait(handler.enqueue(), timeout=5)

    assert sorted(latencies(app))[10] < 0.1
    assert max(latencies(app)) < 0.7


def test_a_job_of_another_process_starts_at_once(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("a")
    def handler() -> None: ...

    start_worker()
    idle(app)
    program = f"""
import time
from yaoki import Yaoki
app = Yaoki({app.url!r})
for _ in range(15):
    app.enqueue("a")
    time.sleep(0.05)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)
    eventually(lambda: len(ids(app)) == 15)

    assert sorted(latencies(app))[7] < 0.1
    assert max(latencies(app)) < 0.9


def test_a_delayed_job_starts_when_it_is_due_and_never_early(
    app: Yaoki, start_worker: StartWorker
) -> None:
    starts: dict[int, float] = {}

    @app.job("a")
    def handler(number: int) -> None:
        starts[number] = time.time()

    start_worker()
    idle(app)
    due = {number: time.time() + 0.3 + number * 0.137 for number in range(8)}
    for number, instant in due.items():
        at = datetime.fromtimestamp(instant, UTC)
        handler.using(run_at=at).enqueue(number=number)
    eventually(lambda: len(starts) == 8, within=5)

    late = [starts[number] - due[number] for number in due]
    assert min(late) > -0.000_01
    assert sorted(late)[4] < 0.1
    assert max(late) < 0.6


def test_a_delay_is_never_cut_short(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("a", retry=RetryPolicy(backoff=fixed(0.25)))
    def handler() -> None:
        raise ValueError("x")

    start_worker()
    job = handler.using(delay=timedelta(seconds=0.4), max_attempts=3).enqueue()
    ended = app.wait(job, timeout=5)

    claims = [one.claimed_at for one in ended.attempts]
    ends = [one.ended_at for one in ended.attempts]
    assert claims[0] >= ended.created_at + timedelta(seconds=0.4)
    assert claims[1] >= ends[0] + timedelta(seconds=0.25)
    assert claims[2] >= ends[1] + timedelta(seconds=0.25)


def test_many_delayed_jobs_cost_an_idle_worker_nothing(
    app: Yaoki, start_worker: StartWorker
) -> None:
    @app.job("a")
    def handler() -> None: ...

    handler.using(delay=3600, priority=100).enqueue_many([{}] * 5_000)
    start_worker()
    idle(app)
    before = time.process_time()
    threading.Event().wait(1.0)
    used = time.process_time() - before
    app.wait(handler.enqueue(), timeout=5)

    assert used < 0.2
    assert latencies(app)[0] < 0.5


def test_a_job_that_is_put_back_wakes_the_worker(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler() -> None:
        raise ValueError("x")

    start_worker()
    job = handler.enqueue()
    app.wait(job, timeout=5)
    began = time.monotonic()
    app.retry(job)
    app.wait(job, timeout=5)

    assert len(app.get(job).errors) == 2
    assert time.monotonic() - began < 0.7
