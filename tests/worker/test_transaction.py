"""ctx.transaction(): the handler's effect and the job's completion in one commit, or neither."""

import asyncio
import threading
import time

import pytest

from tests.support.databases import ask
from tests.support.eventually import eventually
from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker, let_lease_end, work_off
from yaoki import (
    JobContext,
    NotHere,
    RetryPolicy,
    Yaoki,
    fixed,
)

ONCE = RetryPolicy(max_attempts=1)
AGAIN = RetryPolicy(max_attempts=2, backoff=fixed(0))

pytestmark = pytest.mark.usefixtures("noted")


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_effect_result_and_completion_are_one_commit(app: Yaoki, kind: str) -> None:
    seen: list[object] = []

    @app.job("def")
    def plain(ctx: JobContext) -> str:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "a"))
            tx.executemany(add(app, "")[0], [["b"], ["c"]])
            tx.result = {"points": 3}
            seen.append((notes(app), status(app, ctx.job.id)))
        seen.append((notes(app), status(app, ctx.job.id)))
        return "not this"

    @app.job("async def")
    async def coroutine(ctx: JobContext) -> str:
        async with ctx.atransaction() as tx:
            tx.execute(*add(app, "a"))
            tx.executemany(add(app, "")[0], [["b"], ["c"]])
            tx.result = {"points": 3}
            seen.append((notes(app), status(app, ctx.job.id)))
        seen.append((notes(app), status(app, ctx.job.id)))
        return "not this"

    job = app.enqueue(kind)
    work_off(app)

    ended = app.get(job)
    assert seen == [([], "running"), (["a", "b", "c"], "completed")]
    assert (ended.status, ended.result, ended.attempt) == ("completed", {"points": 3}, 1)


def status(app: Yaoki, job_id: int) -> str:
    """As others see it: on a connection outside the transaction."""
    [(value,)] = ask(app.store, "SELECT status FROM yaoki.jobs WHERE id = :id", {"id": job_id})
    return str(value)


def test_a_percent_sign_in_a_statement_without_parameters_is_one(app: Yaoki) -> None:
    """To psycopg it is the beginning of a placeholder, where there are parameters."""

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            [(tx.result,)] = tx.execute("SELECT '100%' WHERE 'abc' LIKE '%b%'").fetchall()

    job = handler.enqueue()
    work_off(app)

    assert (app.get(job).result, app.get(job).error) == ("100%", None)


def test_an_exception_inside_rolls_back_and_the_attempt_fails_by_the_rules(app: Yaoki) -> None:
    @app.job("a", retry=AGAIN)
    def handler(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, f"attempt {ctx.attempt}"))
            if ctx.attempt == 1:
                raise ValueError("half way")

    job = handler.enqueue()
    work_off(app)

    assert notes(app) == ["attempt 2"]
    assert [one.error for one in app.get(job).errors] == ["ValueError: half way"]
    assert (app.get(job).status, app.get(job).attempt) == ("completed", 2)


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_is_raised_inside_rolls_back(app: Yaoki, error: BaseException) -> None:
    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "a"))
            raise error

    job = handler.enqueue()
    work_off(app)

    assert notes(app) == []
    assert app.get(job).status == "failed"


def test_an_error_after_the_block_is_only_logged(
    app: Yaoki, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("a", retry=AGAIN)
    def handler(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "a"))
        raise ValueError("after the end")

    job = handler.enqueue()
    work_off(app)

    assert notes(app) == ["a"]
    assert (app.get(job).status, app.get(job).error) == ("completed", None)
    assert "raised after it had completed the job" in caplog.text
    assert "ValueError: after the end" in caplog.text


@pytest.mark.parametrize("commits", [True, False])
def test_calls_of_ours_inside_are_part_of_it(app: Yaoki, commits: bool) -> None:
    @app.job("follow-up")
    def follow_up(step: int) -> None: ...

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "a"))
            first = follow_up.enqueue(step=1)
            app.enqueue_many("follow-up", [{"step": 2}, {"step": 3}])
            ctx.progress(1, 2, "half")
            assert app.get(first).status == "pending"
            if not commits:
                raise ValueError("no")

    job = handler.enqueue()
    work_off(app)

    followed = app.jobs(type="follow-up")
    assert len(list(followed)) == (3 if commits else 0)
    assert {one.status for one in followed} <= {"completed"}
    assert app.get(job).status == ("completed" if commits else "failed")
    assert notes(app) == (["a"] if commits else [])


def test_awaiting_calls_of_ours_inside_are_part_of_it(app: Yaoki) -> None:
    @app.job("follow-up")
    async def follow_up() -> None: ...

    @app.job("a", retry=ONCE, timeout=3)
    async def handler(ctx: JobContext) -> None:
        async with ctx.atransaction():
            await follow_up.aenqueue()
            await app.aenqueue_many("follow-up", [{}, {}])
            await ctx.aprogress(1, 2, "half")

    job = handler.enqueue()
    work_off(app, lease_for=6)

    ended = app.get(job)
    assert (ended.status, ended.error) == ("completed", None)
    assert ended.progress is not None
    assert len(list(app.jobs(type="follow-up", status="completed"))) == 3


def test_two_async_handlers_may_be_in_a_transaction_at_once(app: Yaoki) -> None:
    """One waits for the other, and must not hold up the loop that the other needs to go on."""

    @app.job("a", retry=ONCE)
    async def handler(ctx: JobContext, note: str) -> None:
        async with ctx.atransaction() as tx:
            tx.execute(*add(app, note))
            await asyncio.sleep(0.05)

    jobs = [handler.enqueue(note=f"{number}") for number in range(3)]
    work_off(app, lease_for=6)

    assert [app.get(job).status for job in jobs] == ["completed"] * 3
    assert sorted(notes(app)) == ["0", "1", "2"]


def test_a_time_limit_shorter_than_the_lease_limits_the_block(
    app: Yaoki, start_worker: StartWorker
) -> None:
    @app.job("hogs", timeout=0.3, retry=ONCE)
    def hogs(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "never"))
            time.sleep(1.5)

    job = hogs.enqueue()
    start_worker(lease_for=30)

    ended = app.wait(job, timeout=1.4)
    assert ended.status == "failed"
    assert notes(app) == []


def test_a_second_block_after_the_first_is_refused(app: Yaoki) -> None:
    seen = []

    @app.job("a")
    def handler(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "a"))
        try:
            with ctx.transaction():
                seen.append("inside")
        except NotHere as error:
            seen.append(str(error))

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).status == "completed"
    assert len(seen) == 1
    assert "earlier ctx.transaction()" in seen[0]


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_nested_block_is_refused_at_once(app: Yaoki, kind: str) -> None:
    """It would wait for the lock that its own handler holds."""
    seen = []

    @app.job("def", retry=ONCE)
    def plain(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "a"))
            began = time.monotonic()
            try:
                with ctx.transaction():
                    seen.append("inside")
            except NotHere:
                seen.append(time.monotonic() - began < 0.5)

    @app.job("async def", retry=ONCE)
    async def coroutine(ctx: JobContext) -> None:
        async with ctx.atransaction() as tx:
            tx.execute(*add(app, "a"))
            began = time.monotonic()
            try:
                async with ctx.atransaction():
                    seen.append("inside")
            except NotHere:
                seen.append(time.monotonic() - began < 0.5)

    job = app.enqueue(kind)
    work_off(app, lease_for=3)

    assert seen == [True]
    assert (app.get(job).status, app.get(job).error) == ("completed", None)


def test_a_handler_may_catch_what_it_raised_inside_and_go_on(app: Yaoki) -> None:
    """The block is rolled back, and the attempt is not over: it may try again, or return."""

    @app.job("a")
    def handler(ctx: JobContext) -> str:
        try:
            with ctx.transaction() as tx:
                tx.execute(*add(app, "first"))
                raise ValueError("no")
        except ValueError:
            pass
        with ctx.transaction() as tx:
            tx.execute(*add(app, "second"))
            tx.result = "second"
        return "ignored"

    job = handler.enqueue()
    work_off(app)

    assert notes(app) == ["second"]
    assert (app.get(job).status, app.get(job).result) == ("completed", "second")


def test_a_result_that_cannot_be_stored_is_noted_and_warned_about(
    app: Yaoki, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("a")
    def handler(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "a"))
            tx.result = float("nan")

    job = handler.enqueue()
    work_off(app)

    assert notes(app) == ["a"]
    assert app.get(job).status == "completed"
    assert "unstorable" in str(app.get(job).result)
    assert "its result cannot be stored" in caplog.text


def test_progress_just_before_the_block_is_not_lost(app: Yaoki) -> None:
    @app.job("a")
    def handler(ctx: JobContext) -> None:
        ctx.progress(1, 3)
        ctx.progress(2, 3)
        with ctx.transaction() as tx:
            tx.execute(*add(app, "a"))
            ctx.progress(3, 3)

    job = handler.enqueue()
    work_off(app)

    progress = app.get(job).progress
    assert progress is not None
    assert progress.done == 3


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_handler_may_go_on_after_the_block_for_longer_than_its_lease(
    app: Yaoki, start_worker: StartWorker, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """Its job is completed: there is no lease left that it could lose."""
    seen = []

    @app.job("def")
    def plain(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "a"))
        seen.append(ctx.wait_stopping(1))

    @app.job("async def")
    async def coroutine(ctx: JobContext) -> None:
        async with ctx.atransaction() as tx:
            tx.execute(*add(app, "a"))
        await asyncio.sleep(1)
        seen.append(ctx.stopping is not None)

    job = app.enqueue(kind)
    start_worker(lease_for=1)
    eventually(lambda: seen, within=5)

    assert seen == [False]
    assert "lost" not in caplog.text
    assert (app.get(job).status, app.get(job).attempt) == ("completed", 1)


def test_a_dozen_async_handlers_that_wait_for_the_lock_leave_threads_for_the_one_inside(
    app: Yaoki,
) -> None:
    """asyncio's own pool has six threads here: name look-ups and to_thread need one, too."""

    @app.job("a", retry=ONCE)
    async def handler(ctx: JobContext, note: str) -> None:
        async with ctx.atransaction() as tx:
            await asyncio.to_thread(time.sleep, 0.01)
            tx.execute(*add(app, note))

    jobs = [handler.enqueue(note=f"{number:02}") for number in range(40)]
    began = time.monotonic()
    work_off(app, lease_for=6, concurrency=40)

    assert time.monotonic() - began < 2
    assert {app.get(job).error for job in jobs} == {None}
    assert len(notes(app)) == 40


def test_a_job_whose_lease_was_lost_cannot_open_a_transaction(
    app: Yaoki, start_worker: StartWorker
) -> None:
    """Somebody took it back at once (app.rescue with a clock far ahead does the same)."""
    started, go_on, seen = threading.Event(), threading.Event(), []

    @app.job("a", retry=AGAIN)
    def handler(ctx: JobContext) -> None:
        if ctx.attempt > 1:
            return
        started.set()
        go_on.wait(10)
        try:
            with ctx.transaction() as tx:
                tx.execute(*add(app, "late"))
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    job = handler.enqueue()
    start_worker(lease_for=60)
    started.wait(5)
    let_lease_end(app, job.id)
    app.rescue()
    go_on.set()
    app.wait(job, timeout=10)
    eventually(lambda: seen)

    assert seen == ["LeaseLost"]
    assert notes(app) == []
    assert (app.get(job).status, app.get(job).attempt) == ("completed", 2)
