"""A worker that ends by itself: when nothing runs, is due, or waits for a retry."""

import time

import pytest

from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, Working, work_off
from yaoki import RetryPolicy, Snooze, Yaoki, fixed


def test_it_ends_at_once_when_there_is_nothing_to_do(app: Yaoki) -> None:
    @app.job("a")
    def handler() -> None: ...

    began = time.monotonic()
    ending = work_off(app)

    assert time.monotonic() - began < 2
    assert ending.exit_code == 0


def test_it_waits_for_retries_and_for_what_was_put_off(app: Yaoki) -> None:
    calls = []

    @app.job("retried", retry=RetryPolicy(backoff=fixed(0.3)))
    def retried() -> None:
        calls.append("retried")
        if calls.count("retried") == 1:
            raise ValueError("x")

    @app.job("snoozed")
    def snoozed() -> None:
        calls.append("snoozed")
        if calls.count("snoozed") == 1:
            raise Snooze(0.4)

    jobs = [retried.enqueue(), snoozed.enqueue()]
    work_off(app)

    assert [app.get(job).status for job in jobs] == ["completed"] * 2


def test_it_does_not_wait_for_retries_beyond_its_patience(app: Yaoki) -> None:
    @app.job("a", retry=RetryPolicy(backoff=fixed(60)))
    def handler() -> None:
        raise ValueError("x")

    job = handler.enqueue()
    began = time.monotonic()
    work_off(app, max_wait=1)

    assert time.monotonic() - began < 5
    assert app.get(job).status == "pending"


def test_it_does_not_wait_for_first_runs_in_the_future(app: Yaoki) -> None:
    @app.job("a")
    def handler() -> None: ...

    job = handler.using(delay=60).enqueue()
    began = time.monotonic()
    work_off(app)

    assert time.monotonic() - began < 3
    assert app.get(job).status == "pending"


def test_it_does_what_handlers_enqueue(app: Yaoki) -> None:
    @app.job("count-down")
    def count_down(left: int) -> None:
        if left:
            count_down.enqueue(left=left - 1)

    count_down.enqueue(left=30)
    work_off(app)

    assert len(list(app.jobs(status="completed"))) == 31


def test_it_does_not_wait_for_what_it_may_not_claim(app: Yaoki) -> None:
    @app.job("a")
    def handler() -> None: ...

    app.pause("paused")
    jobs = [
        app.enqueue("unknown"),
        handler.using(queue="paused").enqueue(),
        handler.using(queue="not served").enqueue(),
    ]
    work_off(app, queues=["default", "paused"])

    assert [app.get(job).status for job in jobs] == ["pending"] * 3


def test_it_waits_for_a_job_that_another_worker_runs(app: Yaoki, start_worker: StartWorker) -> None:
    """If that worker dies, the job is this one's."""

    @app.job("a", retry=RetryPolicy(backoff=fixed(0)))
    def handler() -> str:
        return "done"

    job = handler.enqueue()
    app.claim("silent", lease_for=1)
    work_off(app, lease_for=1)

    assert (app.get(job).status, app.get(job).attempt) == ("completed", 2)


@pytest.mark.parametrize("concurrency", [1, 10])
def test_it_can_be_drained_before_it_is_empty(app: Yaoki, concurrency: int) -> None:
    @app.job("a")
    def handler() -> None:
        time.sleep(0.02)

    handler.enqueue_many([{}] * 1000)
    working = Working(app, until_empty=True, concurrency=concurrency)
    eventually(lambda: list(app.jobs(status="completed")))
    working.drain(within=5)

    [queue] = app.queues()
    assert queue.running == 0
    assert queue.due > 0
