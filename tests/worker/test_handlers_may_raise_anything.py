"""Whatever a handler raises, its attempt ends by the rules, and the next job runs."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from tests.support.databases import ask
from tests.worker.support_workers import work_off
from yaoki import RetryPolicy, Yaoki


class OfItsOwn(BaseException):
    pass


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


class ExitsWhenShown(Exception):
    def __str__(self) -> str:
        raise SystemExit(9)

    __repr__ = __str__


class LiesAboutItsClass(Exception):
    @property
    def __class__(self) -> type:  # type: ignore[override]
        raise RuntimeError("no class today")


def deep() -> None:
    deep()


def raiser(error: BaseException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


ANYTHING = {
    "SystemExit(0)": raiser(SystemExit(0)),
    "SystemExit(3)": raiser(SystemExit(3)),
    "KeyboardInterrupt": raiser(KeyboardInterrupt()),
    "GeneratorExit": raiser(GeneratorExit()),
    "CancelledError": raiser(asyncio.CancelledError()),
    "StopIteration": raiser(StopIteration()),
    "StopAsyncIteration": raiser(StopAsyncIteration()),
    "MemoryError": raiser(MemoryError()),
    "a BaseException of its own": raiser(OfItsOwn("mine")),
    "one that cannot be shown": raiser(Unshowable()),
    "one that exits when it is shown": raiser(ExitsWhenShown()),
    "one that lies about its class": raiser(LiesAboutItsClass()),
    "a group": raiser(ExceptionGroup("two things", [ValueError("a"), KeyError("b")])),
    "a base group": raiser(BaseExceptionGroup("worse", [SystemExit(1), KeyboardInterrupt()])),
    "a text with NUL and surrogates": raiser(ValueError("a\0b\udc80")),
    "a text of 3 MB": raiser(ValueError("x" * 3_000_000)),
    "endless recursion": deep,
}


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize("what", ANYTHING)
def test_the_attempt_fails_and_the_next_job_runs(app: Yaoki, kind: str, what: str) -> None:
    act, ran = ANYTHING[what], []
    rules = RetryPolicy(max_attempts=1)

    @app.job("bad def", retry=rules)
    def bad() -> None:
        act()

    @app.job("bad async def", retry=rules)
    async def bad_async() -> None:
        act()

    @app.job("good def")
    def good() -> None:
        ran.append("good")

    @app.job("good async def")
    async def good_async() -> None:
        ran.append("good")

    first = app.enqueue(f"bad {kind}")
    second = app.enqueue(f"good {kind}")
    ending = work_off(app, concurrency=1)

    ended = app.get(first)
    assert (ended.status, ended.attempt) == ("failed", 1)
    assert ended.error
    assert app.get(second).status == "completed"
    assert ran == ["good"]
    assert ending.exit_code == 0


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_it_is_retried_like_any_other_error(app: Yaoki, kind: str) -> None:
    rules = RetryPolicy(max_attempts=2, backoff=lambda attempt: 0.01)

    @app.job("def", retry=rules)
    def plain() -> None:
        raise SystemExit(3)

    @app.job("async def", retry=rules)
    async def coroutine() -> None:
        raise SystemExit(3)

    job = app.enqueue(kind)
    work_off(app)

    assert [one.outcome for one in app.get(job).errors] == ["retried", "failed"]
    assert app.get(job).error == "SystemExit: 3"


def test_a_handler_that_raises_cancelled_error_itself_has_failed(
    app: Yaoki,
) -> None:
    """It was not asked to stop, so this is no cancellation and no shutdown."""

    @app.job("a", retry=RetryPolicy(max_attempts=1))
    async def cancels_itself() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(5)

    job = cancels_itself.enqueue()
    work_off(app)

    assert app.get(job).status == "failed"
    assert app.get(job).error == "CancelledError"


def test_a_hundred_bad_jobs_do_not_cost_a_slot(app: Yaoki) -> None:
    @app.job("bad", retry=RetryPolicy(max_attempts=1))
    def bad() -> None:
        raise SystemExit(1)

    @app.job("bad async", retry=RetryPolicy(max_attempts=1))
    async def bad_async() -> None:
        raise KeyboardInterrupt

    bad.enqueue_many([{}] * 100)
    bad_async.enqueue_many([{}] * 100)
    work_off(app, concurrency=2)

    assert {queue.failed for queue in app.queues()} == {200}


def test_a_logged_failure_names_the_job_its_attempt_and_the_error(
    app: Yaoki, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("send", retry=RetryPolicy(max_attempts=2, backoff=lambda attempt: 0.01))
    def send() -> None:
        raise ValueError("line one\nline two")

    job = send.enqueue()
    work_off(app)

    told = [each for each in caplog.records if "failed, attempt" in each.getMessage()]
    assert [each.levelno for each in told] == [logging.WARNING, logging.ERROR]
    assert told[0].getMessage() == (
        f"job {job.id} (send) failed, attempt 1/2: ValueError: line one line two"
    )
    assert ", for good" in told[1].getMessage()


def test_an_unreadable_payload_fails_the_job_and_not_the_worker(app: Yaoki) -> None:
    """A row that was changed by hand; with a secret, the error's text needs the payload too."""
    ran = []

    @app.job("pay", secret=("card",), retry=RetryPolicy(max_attempts=1))
    def pay(card: str) -> None:
        ran.append(card)

    broken = pay.enqueue(card="4111-1111")
    other = pay.enqueue(card="4222-2222")
    ask(app.store, "UPDATE yaoki.jobs SET payload = '{no' WHERE id = :id", {"id": broken.id})
    work_off(app, within=15)

    assert app.get(broken).status == "failed"
    assert app.get(other).status == "completed"
    assert ran == ["4222-2222"]
