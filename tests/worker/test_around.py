"""Middlewares around attempts: plain and async ones, around plain and async handlers."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import pytest

from tests.support.databases import ask
from tests.support.eventually import eventually
from tests.worker.support_around import handler, middleware, noting
from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker, Working, work_off
from yaoki import JobContext, JobSet, RetryPolicy, Yaoki

ONCE = RetryPolicy(max_attempts=1)

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")

Run = Callable[[], Any]


@pytest.fixture
def app(url: str) -> Iterator[Yaoki]:
    """On one store: what is around a handler asks no database."""
    made = Yaoki(url)
    yield made
    made.close()


def any_handler(test: Any) -> Any:
    return pytest.mark.parametrize("of", ["plain", "async"])(test)


def any_two(test: Any) -> Any:
    """Each kind of middleware around each kind of handler."""
    return pytest.mark.parametrize("around", ["plain", "async"])(any_handler(test))


def any_chain(test: Any) -> Any:
    """Also several middlewares, of kinds that take turns."""
    chains = [("plain",), ("async",), ("plain", "async", "plain"), ("async", "plain", "async")]
    return pytest.mark.parametrize("chain", chains, ids="-".join)(any_handler(test))


def worked_off(app: Yaoki, kind: Any) -> Any:
    """The job of this type, after a worker has had it."""
    job = kind.enqueue()
    work_off(app)
    return app.get(job)


@any_chain
def test_the_first_middleware_is_the_outermost(app: Yaoki, chain: tuple[str, ...], of: str) -> None:
    said: list[str] = []
    for number, kind in enumerate(chain):
        app.around(middleware(kind, lambda ctx, number=number: noting(said, f"{number}")))
    job = app.job("a")(handler(of, lambda ctx: said.append(f"attempt {ctx.attempt}")))

    assert worked_off(app, job).status == "completed"
    numbers = [str(number) for number in range(len(chain))]
    assert said == [
        *(f"{number} begins" for number in numbers),
        "attempt 1",
        *(f"{number} ends" for number in reversed(numbers)),
    ]


@any_chain
def test_context_variables_go_in_to_the_handler_and_come_back(
    app: Yaoki, chain: tuple[str, ...], of: str
) -> None:
    seen: list[str] = []

    @contextmanager
    def rented(ctx: JobContext) -> Iterator[None]:
        token = tenant.set(f"{tenant.get()}+")
        yield
        seen.append(tenant.get())
        tenant.reset(token)

    def body(ctx: JobContext) -> str:
        found = tenant.get()
        tenant.set("set by the handler")
        return found

    for kind in chain:
        app.around(middleware(kind, rented))
    job = worked_off(app, app.job("a")(handler(of, body)))

    assert job.result == "nobody" + "+" * len(chain)
    assert seen[0] == "set by the handler"
    assert seen[1:] == ["nobody" + "+" * n for n in range(len(chain) - 1, 0, -1)]


@any_two
def test_nothing_is_carried_to_the_next_job(app: Yaoki, around: str, of: str) -> None:
    @contextmanager
    def set_and_left(ctx: JobContext) -> Iterator[None]:
        before = tenant.get()
        tenant.set("left behind")
        yield
        assert before == "nobody"

    app.around(middleware(around, set_and_left))
    kind = app.job("a", retry=ONCE)(handler(of, lambda ctx: None))
    jobs = [kind.enqueue() for _ in range(20)]
    work_off(app, concurrency=1)

    assert {app.get(job).status for job in jobs} == {"completed"}


@any_handler
def test_a_middleware_may_change_the_result(app: Yaoki, of: str) -> None:
    @app.around
    async def doubled(ctx: JobContext, run: Run) -> int:
        result: int = await run()
        return 2 * result

    @app.around
    def one_more(ctx: JobContext, run: Run) -> int:
        result: int = run()
        return result + 1

    assert worked_off(app, app.job("a")(handler(of, lambda ctx: 20))).result == 42


def failing(ctx: JobContext) -> None:
    raise ValueError("no paper")


@any_two
def test_a_middleware_sees_the_exception_and_may_raise_another(
    app: Yaoki, around: str, of: str
) -> None:
    seen: list[BaseException] = []

    @contextmanager
    def renamed(ctx: JobContext) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(error)
            raise ConnectionError("the printer") from error

    app.around(middleware(around, renamed))
    job = worked_off(app, app.job("a", retry=ONCE)(handler(of, failing)))

    assert (job.status, job.error) == ("failed", "ConnectionError: the printer")
    assert [str(error) for error in seen] == ["no paper"]
    assert "ValueError: no paper" in job.attempts[-1].traceback


@any_two
def test_a_middleware_may_swallow_the_exception(app: Yaoki, around: str, of: str) -> None:
    @contextmanager
    def forgiving(ctx: JobContext) -> Iterator[None]:
        try:
            yield
        except ValueError:
            return

    app.around(middleware(around, forgiving))
    job = worked_off(app, app.job("a", retry=ONCE)(handler(of, failing)))

    assert (job.status, job.result) == ("completed", None)


@any_two
def test_an_error_of_a_middleware_is_the_attempts_and_is_retried_by_its_rules(
    app: Yaoki, around: str, of: str
) -> None:
    @contextmanager
    def broken(ctx: JobContext) -> Iterator[None]:
        if ctx.attempt == 1:
            raise ConnectionError("no tracer")
        yield

    app.around(middleware(around, broken))
    again = RetryPolicy(max_attempts=2, backoff=lambda attempt: 0)
    job = worked_off(app, app.job("a", retry=again)(handler(of, lambda ctx: ctx.attempt)))

    assert (job.status, job.result) == ("completed", 2)
    assert job.errors[0].error == "ConnectionError: no tracer"


@any_handler
def test_a_middleware_that_never_calls_run_decides_the_result(app: Yaoki, of: str) -> None:
    ran: list[int] = []

    @app.around
    def cached(ctx: JobContext, run: Run) -> str:
        return "from the cache"

    job = worked_off(app, app.job("a")(handler(of, lambda ctx: ran.append(1))))

    assert (job.status, job.result, ran) == ("completed", "from the cache", [])


@any_handler
@pytest.mark.parametrize("around", ["plain", "async"])
def test_a_handler_runs_once_even_if_run_is_called_twice(app: Yaoki, around: str, of: str) -> None:
    ran: list[int] = []

    def plain(ctx: JobContext, run: Run) -> None:
        run()
        run()

    async def awaiting(ctx: JobContext, run: Run) -> None:
        await run()
        await run()

    app.around(plain if around == "plain" else awaiting)
    job = worked_off(app, app.job("a", retry=ONCE)(handler(of, lambda ctx: ran.append(1))))

    assert ran == [1]
    assert job.error.startswith("NotHere: ")
    assert "called run() twice" in job.error


def test_a_run_that_nobody_awaits_is_told_to_the_author(app: Yaoki) -> None:
    @app.around
    async def forgetful(ctx: JobContext, run: Run) -> Any:
        return run()

    @app.job("a")
    async def kind() -> None: ...

    job = worked_off(app, kind)

    assert job.status == "failed"
    assert job.error == (
        "the handler, or a middleware around it, returned a coroutine that nobody awaited, so "
        "nothing was done; declare it with async def, and write await run() in async middlewares"
    )


def test_a_plain_middleware_does_not_block_the_event_loop(app: Yaoki) -> None:
    other_ran = threading.Event()

    @app.job("waits")
    async def waits() -> bool:
        return True

    @app.job("other")
    async def other() -> None:
        other_ran.set()

    @app.around
    def waiting(ctx: JobContext, run: Run) -> Any:
        if ctx.job.type == "waits":
            assert other_ran.wait(20), "the loop was blocked"
        return run()

    job = waits.enqueue()
    other.enqueue()
    work_off(app, concurrency=2)

    assert app.get(job).status == "completed"


def test_a_plain_handler_stays_on_its_own_thread_within_an_async_middleware(app: Yaoki) -> None:
    where: dict[str, str] = {}

    @app.around
    async def noted(ctx: JobContext, run: Run) -> Any:
        where["middleware"] = threading.current_thread().name
        return await run()

    @app.job("plain")
    def plain() -> None:
        where["handler"] = threading.current_thread().name

    worked_off(app, plain)

    assert where["middleware"] == "yaoki-loop"
    assert where["handler"] != "yaoki-loop"


@any_handler
def test_those_of_a_jobset_are_around_its_own_types_inside_those_of_the_app(
    app: Yaoki, of: str
) -> None:
    said: list[str] = []
    jobs = JobSet()
    jobs.around(middleware("plain", lambda ctx: noting(said, "set")))
    app.around(middleware("async", lambda ctx: noting(said, "app")))
    inside = jobs.job("inside")(handler(of, lambda ctx: said.append("handler")))
    outside = app.job("outside")(handler(of, lambda ctx: said.append("handler")))
    app.include(jobs)

    worked_off(app, inside)
    of_the_set, said[:] = list(said), []
    worked_off(app, outside)

    assert of_the_set == ["app begins", "set begins", "handler", "set ends", "app ends"]
    assert said == ["app begins", "handler", "app ends"]


def test_one_that_can_be_called_in_both_ways_is_called_as_the_handler_is(app: Yaoki) -> None:
    class Both:
        def __call__(self, ctx: JobContext, run: Run) -> Any:
            return ["called", run()]

        async def acall(self, ctx: JobContext, run: Run) -> Any:
            return ["awaited", await run()]

    app.around(Both())
    plain = app.job("plain")(handler("plain", lambda ctx: threading.current_thread().name))
    awaiting = app.job("async")(handler("async", lambda ctx: threading.current_thread().name))

    assert worked_off(app, awaiting).result == ["awaited", "yaoki-loop"]
    assert worked_off(app, plain).result[0] == "called"


@any_two
def test_a_time_limit_holds_with_a_middleware(app: Yaoki, around: str, of: str) -> None:
    release = threading.Event()

    def slow(ctx: JobContext) -> None:
        release.wait(20)

    async def aslow(ctx: JobContext) -> None:
        await asyncio.sleep(20)

    app.around(middleware(around, lambda ctx: noting([], "m")))
    kind = app.job("a", timeout=0.2, retry=ONCE)(slow if of == "plain" else aslow)
    job = kind.enqueue()
    working = Working(app)
    try:
        assert app.wait(job, timeout=20).status == "failed"
        assert "time limit" in str(app.get(job).error)
    finally:
        release.set()
        working.drain()


@any_two
def test_a_cancelled_job_ends_cancelled_with_a_middleware(app: Yaoki, around: str, of: str) -> None:
    began = threading.Event()
    left: list[str] = []

    def slow(ctx: JobContext) -> None:
        began.set()
        ctx.wait_stopping(20)

    async def aslow(ctx: JobContext) -> None:
        began.set()
        await asyncio.sleep(20)

    app.around(middleware(around, lambda ctx: noting(left, "m")))
    job = app.job("a")(slow if of == "plain" else aslow).enqueue()
    working = Working(app)
    assert began.wait(20)
    app.cancel(job)

    assert app.wait(job, timeout=20).status == "cancelled"
    working.drain()
    assert left == ["m begins", "m ends"]


def test_who_is_cancelled_before_the_handler_begins_does_not_begin_it(app: Yaoki) -> None:
    """A plain middleware cannot be interrupted; it hears of it where it calls run()."""
    began, told, ran = threading.Event(), threading.Event(), threading.Event()

    @app.around
    def waiting(ctx: JobContext, run: Run) -> Any:
        began.set()
        while ctx.stopping != "cancelled":
            time.sleep(0.005)
        told.wait(20)
        return run()

    @app.job("a")
    async def handler() -> None:
        ran.set()

    job = handler.enqueue()
    working = Working(app)
    assert began.wait(20)
    app.cancel(job)
    eventually(lambda: next(iter(working.worker.slots.in_hand)).cancelled, within=20)
    told.set()

    assert app.wait(job, timeout=20).status == "cancelled"
    assert not ran.is_set()
    working.drain()


@any_two
def test_a_shutdown_hands_back_what_does_not_end_within_the_grace(
    app: Yaoki, around: str, of: str
) -> None:
    began, release = threading.Event(), threading.Event()

    def slow(ctx: JobContext) -> None:
        began.set()
        release.wait(20)

    async def aslow(ctx: JobContext) -> None:
        began.set()
        await asyncio.sleep(20)

    app.around(middleware(around, lambda ctx: noting([], "m")))
    job = app.job("a")(slow if of == "plain" else aslow).enqueue()
    working = Working(app, grace=0.1)
    assert began.wait(20)
    ending = working.drain()
    release.set()

    assert ending.handed_back == 1
    assert (app.get(job).status, app.get(job).attempt) == ("pending", 0)


@pytest.mark.usefixtures("noted")
@any_two
def test_a_transaction_of_the_handler_completes_the_job_through_a_middleware(
    app: Yaoki, around: str, of: str
) -> None:
    def plain(ctx: JobContext) -> str:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "done"))
            tx.result = "from the transaction"
        return "not this"

    async def awaiting(ctx: JobContext) -> str:
        async with ctx.atransaction() as tx:
            tx.execute(*add(app, "done"))
            tx.result = "from the transaction"
        return "not this"

    app.around(middleware(around, lambda ctx: noting([], "m")))
    job = worked_off(app, app.job("a")(plain if of == "plain" else awaiting))

    assert (job.status, job.result) == ("completed", "from the transaction")
    assert notes(app) == ["done"]


def test_a_thousand_attempts_through_a_mixed_chain_leave_nothing_behind(app: Yaoki) -> None:
    app.around(middleware("plain", lambda ctx: noting([], "m")))
    app.around(middleware("async", lambda ctx: noting([], "m")))
    before = threading.active_count()
    for of in ("plain", "async"):
        app.job(of)(handler(of, lambda ctx: None)).enqueue_many([{}] * 500)
    work_off(app)

    [(left,)] = ask(app.store, "SELECT count(*) FROM yaoki.jobs WHERE status <> 'completed'")
    assert left == 0
    eventually(lambda: named("yaoki-around") == 0, within=20)
    assert threading.active_count() - before < 20


def named(name: str) -> int:
    return sum(thread.name == name for thread in threading.enumerate())


@pytest.mark.parametrize("waits", [0.01, None], ids=["begun", "not begun"])
def test_a_run_left_behind_in_a_task_ends_with_the_attempt(
    app: Yaoki, start_worker: StartWorker, waits: float | None
) -> None:
    """Who does not wait for the handler decides the outcome; if it has begun, it is waited for."""
    left: list[asyncio.Task[Any]] = []
    ran: list[bool] = []

    @app.around
    async def hasty(ctx: JobContext, run: Run) -> str:
        left.append(asyncio.ensure_future(run()))
        if waits is not None:
            await asyncio.sleep(waits)
        return "did not wait"

    @app.job("a")
    def kind() -> None:
        time.sleep(0.05)
        ran.append(True)

    job = kind.enqueue()
    start_worker()

    assert app.wait(job, timeout=20).result == "did not wait"
    assert ran == ([] if waits is None else [True])
    eventually(lambda: not asyncio.all_tasks(left[0].get_loop()), within=20)
    assert left[0].cancelled() == (waits is None)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_block_of_a_middleware_is_the_handlers_too(app: Yaoki, kind: str) -> None:
    """What the handler enqueues is there only if the middleware's transaction commits."""

    def plain(ctx: JobContext, run: Run) -> None:
        with ctx.transaction():
            run()

    async def awaiting(ctx: JobContext, run: Run) -> None:
        async with ctx.atransaction():
            await run()

    def enqueueing(ctx: JobContext) -> None:
        app.enqueue("follow-up")
        if ctx.attempt == 1:
            raise ValueError("rolled back")

    app.around(plain if kind == "plain" else awaiting)
    again = RetryPolicy(max_attempts=2, backoff=lambda attempt: 0)
    job = worked_off(app, app.job("a", retry=again)(handler(kind, enqueueing)))

    assert (job.status, job.attempt) == ("completed", 2)
    assert len(app.jobs(type="follow-up")) == 1


def test_an_async_middleware_that_hangs_around_a_plain_handler_is_cancelled_at_the_time_limit(
    app: Yaoki, start_worker: StartWorker
) -> None:
    cancelled = threading.Event()

    @app.around
    async def hanging(ctx: JobContext, run: Run) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    kind = app.job("a", timeout=0.2, retry=ONCE)(handler("plain", lambda ctx: None))
    job = kind.enqueue()
    working = start_worker()

    assert "time limit" in str(app.wait(job, timeout=20).error)
    assert cancelled.wait(20)
    eventually(lambda: working.worker.slots.leaked == 0, within=20)
