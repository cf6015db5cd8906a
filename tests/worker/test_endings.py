"""How a handler says that its attempt ends, and what the rules make of errors."""

import logging
import time
from datetime import UTC, datetime, timedelta

import pytest

from tests.support.databases import ask
from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, work_off
from yaoki import (
    Cancel,
    GiveUp,
    JobContext,
    RetryAfter,
    RetryPolicy,
    Snooze,
    Yaoki,
    by_function,
    exponential,
    fixed,
)
from yaoki.core.retry import Rule

ONE_MORE = RetryPolicy(max_attempts=2, backoff=fixed(0))


def test_give_up_is_final_and_says_why(app: Yaoki) -> None:
    @app.job("a", retry=RetryPolicy(retry_on=(GiveUp, Exception)))
    def handler() -> None:
        raise GiveUp("the customer does not exist")

    job = handler.enqueue()
    work_off(app)

    ended = app.get(job)
    assert (ended.status, ended.attempt) == ("failed", 1)
    assert ended.error == "the customer does not exist"
    assert "handler" in str(ended.errors[0].traceback)


class Gone(GiveUp):
    def __init__(self, url: str) -> None:
        self.url = url


def test_a_subclass_of_give_up_is_final_too(app: Yaoki) -> None:
    """Also one that has an __init__ of its own and does not call ours."""

    @app.job("a")
    def handler() -> None:
        raise Gone("https://example.jp")

    job = handler.enqueue()
    work_off(app, max_wait=0)

    assert (app.get(job).status, app.get(job).attempt) == ("failed", 1)


def test_give_up_of_the_class_alone_is_final(app: Yaoki) -> None:
    @app.job("a")
    async def handler() -> None:
        raise GiveUp

    job = handler.enqueue()
    work_off(app, max_wait=0)

    assert (app.get(job).status, app.get(job).error) == ("failed", "gave up")


def test_retry_after_never_starts_earlier_than_said(app: Yaoki) -> None:
    starts: list[float] = []

    @app.job("a", retry=RetryPolicy(backoff=fixed(60)))
    def handler() -> None:
        starts.append(time.time())
        if len(starts) == 1:
            raise RetryAfter(0.4, "429: slow down")

    job = handler.enqueue()
    work_off(app)

    ended = app.get(job)
    assert (ended.status, ended.attempt) == ("completed", 2)
    assert ended.errors[0].error == "429: slow down"
    assert 0.4 <= starts[1] - ended.errors[0].ended_at.timestamp() + 0.001 < 1.5


def test_retry_after_uses_attempts_up(app: Yaoki) -> None:
    @app.job("a", retry=ONE_MORE)
    def handler() -> None:
        raise RetryAfter(timedelta(milliseconds=10))

    job = handler.enqueue()
    work_off(app)

    assert (app.get(job).status, app.get(job).attempt) == ("failed", 2)


@pytest.mark.parametrize("wait", [-1, float("nan"), float("inf"), "soon", None])
def test_a_wait_that_cannot_be_is_ten_seconds_and_a_warning(
    app: Yaoki, caplog: pytest.LogCaptureFixture, wait: float
) -> None:
    @app.job("retries")
    def retries() -> None:
        raise RetryAfter(wait)

    @app.job("snoozes")
    def snoozes() -> None:
        raise Snooze(wait)

    before = datetime.now(UTC)
    jobs = [retries.enqueue(), snoozes.enqueue()]
    work_off(app, max_wait=0)

    for job in jobs:
        again = app.get(job)
        assert again.status == "pending"
        assert 9 < (again.run_at - before).total_seconds() < 15
    assert caplog.text.count("10 s were taken instead") == 2


def test_a_hundred_snoozes_use_no_attempt_and_do_not_lengthen_the_back_off(app: Yaoki) -> None:
    calls: list[int] = []

    @app.job("a", retry=RetryPolicy(max_attempts=2, backoff=exponential(first=40, jitter="none")))
    def handler(ctx: JobContext) -> None:
        calls.append(ctx.attempt)
        if len(calls) <= 100:
            raise Snooze(0, "not yet")
        raise ValueError("now")

    job = handler.enqueue()
    work_off(app, max_wait=1)

    ended = app.get(job)
    wait = (ended.run_at - ended.errors[0].ended_at).total_seconds()
    assert calls == [1] * 101
    assert (ended.status, ended.attempt, ended.snoozes) == ("pending", 1, 100)
    assert wait == pytest.approx(40, abs=0.01)
    assert [one.outcome for one in ended.attempts].count("snoozed") == 100


def test_cancel_is_neither_a_failure_nor_retried(app: Yaoki) -> None:
    @app.job("a")
    def handler() -> None:
        raise Cancel("the order was withdrawn")

    job = handler.enqueue()
    work_off(app)

    ended = app.get(job)
    assert (ended.status, ended.error, ended.errors) == ("cancelled", None, ())
    assert ended.attempts[0].error == "the order was withdrawn"


class Base(Exception):
    pass


class Derived(Base):
    pass


@pytest.mark.parametrize(
    ("retry_on", "give_up_on", "error", "status"),
    [
        ((), (), ValueError("x"), "pending"),
        ((), (ValueError,), ValueError("x"), "failed"),
        ((), (Exception,), ValueError("x"), "failed"),
        ((ValueError,), (Exception,), ValueError("x"), "pending"),
        ((Base,), (Derived,), Derived("x"), "failed"),
        ((Derived,), (Base,), Derived("x"), "pending"),
        ((Base,), (Base,), Base("x"), "failed"),
        ((ConnectionError,), (), KeyError("x"), "pending"),
        ((), (lambda error: "x" in str(error),), ValueError("x"), "failed"),
        ((lambda error: True,), (ValueError,), ValueError("x"), "failed"),
        ((), (BaseException,), SystemExit(1), "failed"),
    ],
)
def test_the_nearest_rule_decides_and_a_tie_gives_up(
    app: Yaoki,
    retry_on: tuple[Rule, ...],
    give_up_on: tuple[Rule, ...],
    error: BaseException,
    status: str,
) -> None:
    @app.job("a", retry=RetryPolicy(retry_on=retry_on, give_up_on=give_up_on))
    def handler() -> None:
        raise error

    job = handler.enqueue()
    work_off(app, max_wait=0)

    assert app.get(job).status == status


def raises(attempt: int) -> float:
    raise SystemExit("the back-off itself")


@pytest.mark.parametrize(
    "broken",
    [raises, lambda a: None, lambda a: float("nan"), lambda a: -1, lambda a: "x", lambda a: 1e300],
)
def test_a_broken_back_off_warns_and_the_job_is_still_retried(
    app: Yaoki, caplog: pytest.LogCaptureFixture, broken: object
) -> None:
    policy = RetryPolicy(backoff=by_function(broken))  # type: ignore[arg-type]

    @app.job("a", retry=policy)
    def handler() -> None:
        raise ValueError("x")

    before = datetime.now(UTC)
    job = handler.enqueue()
    work_off(app, max_wait=0)

    again = app.get(job)
    assert (again.status, again.attempt) == ("pending", 1)
    assert 4 < (again.run_at - before).total_seconds() < 15
    assert any(each.levelno == logging.WARNING for each in caplog.records)
    assert f"job {job.id}" in caplog.text


def broken_rule(error: BaseException) -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["retry_on", "give_up_on"])
def test_a_broken_rule_warns_and_the_job_is_still_retried(
    app: Yaoki, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    policy = RetryPolicy(**{where: (broken_rule,)})  # type: ignore[arg-type]

    @app.job("a", retry=policy)
    def handler() -> None:
        raise ValueError("x")

    job = handler.enqueue()
    work_off(app, max_wait=0)

    assert app.get(job).status == "pending"
    assert "broken_rule" in caplog.text


def test_the_back_off_grows_with_the_attempts(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("a", retry=RetryPolicy(backoff=exponential(first=100, factor=3, jitter="none")))
    def handler() -> None:
        raise ValueError("x")

    job = handler.enqueue()
    start_worker()
    waits = []
    for attempt in (1, 2, 3):
        eventually(lambda number=attempt: len(app.get(job).errors) == number)  # type: ignore[misc]
        waiting = app.get(job)
        waits.append((waiting.run_at - waiting.errors[-1].ended_at).total_seconds())
        set_due(app, job.id)

    assert waits == pytest.approx([100, 300, 600], abs=0.01)


def set_due(app: Yaoki, job_id: int) -> None:
    """What an operator's retry does not do: run it now, and keep its attempts."""
    ask(app.store, "UPDATE yaoki.jobs SET run_at = 0 WHERE id = :id", {"id": job_id})


def test_attempts_of_one_job_win_over_those_of_its_type(app: Yaoki) -> None:
    calls = []

    @app.job("a", retry=RetryPolicy(max_attempts=5, backoff=fixed(0)))
    def handler() -> None:
        calls.append(1)
        raise ValueError("x")

    job = handler.using(max_attempts=2).enqueue()
    work_off(app)

    assert (app.get(job).status, len(calls)) == ("failed", 2)
