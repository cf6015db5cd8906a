"""What a middleware can know of an attempt's outcome is what will be recorded of it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, let_lease_end, work_off
from yaoki import Cancel, GiveUp, JobContext, RetryAfter, RetryPolicy, Snooze, Yaoki, fixed
from yaoki.contrib import outcome_of

POLICY = RetryPolicy(max_attempts=2, backoff=fixed(0), give_up_on=ZeroDivisionError)


class Told:
    """A middleware that writes down what it foresees of each attempt, by job."""

    def __init__(self, app: Yaoki) -> None:
        self._app = app
        self.outcomes: dict[int, list[str]] = {}

    def __call__(self, ctx: JobContext, run: Callable[[], Any]) -> Any:
        try:
            value = run()
        except BaseException as error:
            self._note(ctx, error)
            raise
        self._note(ctx, None)
        return value

    async def acall(self, ctx: JobContext, run: Callable[[], Awaitable[Any]]) -> Any:
        try:
            value = await run()
        except BaseException as error:
            self._note(ctx, error)
            raise
        self._note(ctx, None)
        return value

    def _note(self, ctx: JobContext, error: BaseException | None) -> None:
        self.outcomes.setdefault(ctx.job.id, []).append(outcome_of(self._app, ctx, error))


@pytest.fixture
def told(app: Yaoki) -> Told:
    made = Told(app)
    app.around(made)
    return made


def recorded(app: Yaoki, job_id: int) -> list[str]:
    return [attempt.outcome for attempt in app.get(job_id).attempts]


def test_what_is_foreseen_is_what_is_recorded(app: Yaoki, told: Told) -> None:
    def behave(ctx: JobContext, how: str) -> None:
        match how:
            case "snoozes" if not ctx.job.snoozes:
                raise Snooze(0)
            case "cancels":
                raise Cancel
            case "gives up":
                raise GiveUp
            case "is final":
                raise ZeroDivisionError
            case "fails":
                raise ValueError
            case "asks for time":
                raise RetryAfter(0)
            case "exits":
                raise SystemExit

    @app.job("plain", retry=POLICY)
    def plain(ctx: JobContext, how: str) -> None:
        behave(ctx, how)
        if how == "completes itself":
            with ctx.transaction():
                pass
            raise ValueError("too late")
        if how == "takes too long":
            ctx.wait_stopping(30)

    @app.job("async", retry=POLICY, timeout=0.2)
    async def coroutine(ctx: JobContext, how: str) -> None:
        behave(ctx, how)
        if how == "takes too long":
            await asyncio.sleep(30)

    ways = ["works", "snoozes", "cancels", "gives up", "is final", "fails", "asks for time"]
    for how in [*ways, "exits", "completes itself"]:
        plain.enqueue(how=how)
    plain.using(timeout=0.2).enqueue(how="takes too long")
    for how in [*ways, "takes too long"]:
        coroutine.enqueue(how=how)
    work_off(app, max_wait=10)

    assert len(told.outcomes) == 18
    assert told.outcomes == {number: recorded(app, number) for number in told.outcomes}
    assert {one for each in told.outcomes.values() for one in each} == {
        *("completed", "retried", "failed", "snoozed", "cancelled"),
    }


def test_an_attempt_that_is_stopped_from_outside_is_foreseen_too(
    app: Yaoki, told: Told, start_worker: StartWorker
) -> None:
    begun: list[int] = []

    @app.job("long", retry=POLICY)
    async def long(ctx: JobContext) -> None:
        begun.append(ctx.job.id)
        await asyncio.sleep(60)

    cancelled, lost, stopped = (long.enqueue().id for _ in range(3))
    working = start_worker(grace=0.1, concurrency=3, lease_for=2)
    eventually(lambda: len(begun) == 3, within=20)
    app.cancel(cancelled)
    let_lease_end(app, lost)
    app.rescue()
    eventually(lambda: len(told.outcomes) == 2, within=20)
    working.drain()

    assert told.outcomes == {cancelled: ["cancelled"], lost: ["lost"], stopped: ["released"]}
    assert recorded(app, cancelled) == ["cancelled"]
    assert recorded(app, stopped) == ["released"]
