"""What a handler says of itself while it runs, and what it leaves when it has ended."""

import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest

from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, work_off
from yaoki import InvalidOption, JobContext, Progress, RetryPolicy, Yaoki, fixed

# Progress


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_progress_is_written_at_most_four_times_a_second_and_the_last_always(
    app: Yaoki, kind: str
) -> None:
    @app.job("def")
    def plain(ctx: JobContext) -> None:
        for done in range(1001):
            ctx.progress(done, 1000, f"step {done}")
            time.sleep(0.001)

    @app.job("async def")
    async def coroutine(ctx: JobContext) -> None:
        for done in range(1001):
            await ctx.aprogress(done, 1000, f"step {done}")
            time.sleep(0.001)

    job = app.enqueue(kind)
    work_off(app)

    ended = app.get(job)
    ran = (ended.attempts[-1].ended_at - ended.created_at).total_seconds()
    # One change is the row itself, one the claim, one the completion.
    writes = ended.revision - 3
    assert ended.progress == Progress(1000, 1000, "step 1000")
    assert ended.progress.fraction == 1
    assert 3 <= writes <= 4 * ran + 1


def test_progress_is_seen_while_the_handler_goes_on(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("a")
    def handler(ctx: JobContext) -> None:
        ctx.progress(1, 4)
        ctx.progress(2, 4, "half")
        ctx.wait_stopping(10)

    job = handler.enqueue()
    start_worker()

    eventually(lambda: app.get(job).progress == Progress(2, 4, "half"), within=2)
    assert app.get(job).status == "running"


def test_progress_of_a_failed_attempt_is_kept_with_it(app: Yaoki) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(ctx: JobContext) -> None:
        for done in (1, 2, 3):
            ctx.progress(done, 4)
        raise ValueError("x")

    job = handler.enqueue()
    work_off(app)

    progress = app.get(job).progress
    assert progress is not None
    assert progress.done == 3


def test_progress_without_a_total_has_no_fraction(app: Yaoki) -> None:
    @app.job("a")
    def handler(ctx: JobContext) -> None:
        ctx.progress(17, message="十七\0\udc80")

    job = handler.enqueue()
    work_off(app)

    progress = app.get(job).progress
    assert progress is not None
    assert (progress.done, progress.total, progress.fraction) == (17, None, None)
    assert progress.message == "十七\\x00\\udc80"


@pytest.mark.parametrize("done", [float("nan"), float("inf"), "3", None, True, 1e300])
def test_progress_that_is_no_number_is_refused_in_the_handler(app: Yaoki, done: float) -> None:
    seen = []

    @app.job("a")
    def handler(ctx: JobContext) -> None:
        try:
            ctx.progress(done, 10)
        except InvalidOption as error:
            seen.append(str(error))

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).status == "completed"
    assert len(seen) == 1
    assert "done" in seen[0]


def test_a_new_attempt_starts_from_its_own_progress(app: Yaoki) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=2, backoff=fixed(0)))
    def handler(ctx: JobContext) -> None:
        if ctx.attempt == 1:
            ctx.progress(9, 10)
            raise ValueError("x")
        ctx.progress(1, 10)

    job = handler.enqueue()
    work_off(app)

    progress = app.get(job).progress
    assert progress is not None
    assert progress.done == 1


# Results


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (None, None),
        (0, 0),
        (False, False),
        ("", ""),
        ("日本語", "日本語"),
        (2**80, 2**80),
        (1.5, 1.5),
        ([1, [2, {"a": None}]], [1, [2, {"a": None}]]),
        ((1, 2), [1, 2]),
        (Decimal("1.10"), "1.10"),
        (datetime(2024, 2, 29, tzinfo=UTC), "2024-02-29T00:00:00Z"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (Point(1, 2), {"x": 1, "y": 2}),
        (b"ab", "YWI="),
    ],
)
def test_a_result_is_what_json_makes_of_it(app: Yaoki, value: object, stored: object) -> None:
    @app.job("a")
    def handler() -> object:
        return value

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).result == stored
    assert type(app.get(job).result) is type(stored)


class Unshowable:
    def __repr__(self) -> str:
        raise SystemExit(1)


cycle: list[object] = []
cycle.append(cycle)
deep: object = None
for _ in range(100):
    deep = [deep]


UNSTORABLE = [
    float("nan"),
    {"a": [1, float("inf")]},
    "a\0b",
    "\udc80",
    {(1, 2): 3},
    object(),
    threading.Lock(),
    Unshowable(),
    lambda: 1,
    cycle,
    deep,
    "x" * (1 << 20),
    list(range(400_000)),
]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_result_that_json_cannot_hold_is_noted_and_the_job_is_completed(
    app: Yaoki, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("def")
    def plain(which: int) -> object:
        return UNSTORABLE[which]

    @app.job("async def")
    async def coroutine(which: int) -> object:
        return UNSTORABLE[which]

    jobs = app.enqueue_many(kind, [{"which": which} for which in range(len(UNSTORABLE))])
    work_off(app)

    ended = [app.get(job) for job in jobs]
    assert {one.status for one in ended} == {"completed"}
    for one in ended:
        assert isinstance(one.result, dict)
        assert set(one.result) == {"unstorable", "repr"}
        assert len(one.result["repr"]) <= 200
        assert f"job {one.id} ({kind}, attempt 1): its result cannot be stored" in caplog.text


def test_the_result_of_a_failed_job_is_none(app: Yaoki) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler() -> int:
        raise ValueError("x")

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).result is None
