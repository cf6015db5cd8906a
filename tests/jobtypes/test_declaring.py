"""Declaring job types: what can be said, what is refused at once, and where they belong."""

import asyncio
import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.worker.support_workers import work_off
from yaoki import InvalidArguments, InvalidOption, JobContext, JobSet, RetryPolicy, Yaoki


def test_a_job_type_is_called_after_its_function_unless_it_is_named(app: Yaoki) -> None:
    @app.job()
    def unnamed() -> None: ...

    @app.job("named")
    def other() -> None: ...

    assert unnamed.name.endswith("unnamed")
    assert unnamed.name.startswith(__name__)
    assert other.name == "named"


def test_calling_it_runs_the_function_here_and_now(app: Yaoki) -> None:
    @app.job("add")
    def add(a: int, b: int = 1) -> int:
        """Adds."""
        return a + b

    assert add(2) == 3
    assert add(2, b=5) == 7
    assert add.__doc__ == "Adds."
    assert add.__name__ == "add"


def test_parentheses_are_asked_for(app: Yaoki) -> None:
    with pytest.raises(InvalidOption, match="with parentheses"):

        @app.job  # type: ignore[arg-type]
        def handler() -> None: ...


def test_a_name_that_is_taken_is_refused(app: Yaoki) -> None:
    @app.job("a")
    def first() -> None: ...

    with pytest.raises(InvalidOption, match="'a' already"):

        @app.job("a")
        def second() -> None: ...


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"bogus": 1}, "no option 'bogus'"),
        ({"queue": ""}, "queue"),
        ({"queue": 5}, "queue"),
        ({"priority": 101}, "priority"),
        ({"priority": "urgent"}, "priority"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": "1h"}, "timeout"),
        ({"retry": 3}, "retry"),
        ({"retry": RetryPolicy}, "retry"),
        ({"keep": -1}, "keep"),
        ({"keep": "30 days"}, "keep"),
        ({"title": 5}, "title"),
        ({"idempotency_key": "{nothing}"}, "nothing"),
        ({"idempotency_key": "{a"}, "idempotency_key"),
        ({"idempotency_key": 5}, "idempotency_key"),
    ],
)
def test_what_cannot_be_said_is_refused_at_once(
    app: Yaoki, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidOption, match=says):

        @app.job("a", **options)
        def handler(a: int) -> None: ...


@pytest.mark.parametrize("name", ["", " a", "a\0b", "a\nb", "x" * 201, "\udc80"])
def test_a_name_that_cannot_be_is_refused(app: Yaoki, name: str) -> None:
    with pytest.raises(InvalidOption):

        @app.job(name)
        def handler() -> None: ...


def test_parameters_without_names_are_refused(app: Yaoki) -> None:
    with pytest.raises(InvalidOption, match="'args'"):

        @app.job("a")
        def handler(*args: int) -> None: ...

    with pytest.raises(InvalidOption, match="'a'"):

        @app.job("b")
        def other(a: int, /) -> None: ...


# What is called: a function that runs when it is called, or a coroutine function


def test_a_generator_function_is_refused(app: Yaoki) -> None:
    """Calling it runs nothing, so its job would complete without anything being done."""
    with pytest.raises(InvalidOption, match="generator"):

        @app.job("a")
        def generates() -> Iterator[int]:
            yield 1

    with pytest.raises(InvalidOption, match="generator"):

        @app.job("b")
        async def generates_too() -> AsyncIterator[int]:
            yield 1


def test_a_plain_function_that_returns_a_coroutine_does_not_complete_unrun(app: Yaoki) -> None:
    """A decorator often makes one of an async handler; its coroutine must not be dropped."""
    ran = []

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    @app.job("a", retry=RetryPolicy(max_attempts=1))
    @logged
    async def handler() -> str:
        await asyncio.sleep(0)
        ran.append(1)
        return "done"

    job = app.enqueue("a")
    work_off(app)

    ended = app.get(job)
    assert (ended.status == "completed") == (ran == [1])
    assert ended.status == "failed" or ended.result == "done"


def test_a_coroutine_function_behind_partial_is_awaited(app: Yaoki) -> None:
    async def greet(greeting: str, name: str) -> str:
        await asyncio.sleep(0)
        return f"{greeting} {name}"

    app.job("greet")(functools.partial(greet, "konnichiwa"))
    job = app.enqueue("greet", {"name": "Mai"})
    work_off(app)

    assert app.get(job).result == "konnichiwa Mai"


def test_an_object_with_an_async_call_is_awaited_or_refused(app: Yaoki) -> None:
    class Greeter:
        async def __call__(self, name: str) -> str:
            await asyncio.sleep(0)
            return f"hello {name}"

    try:
        app.job("greet")(Greeter())
    except InvalidOption:
        return
    job = app.enqueue("greet", {"name": "Mai"})
    work_off(app)

    assert app.get(job).result == "hello Mai"


def test_a_bound_method_is_a_handler(app: Yaoki) -> None:
    class Mailer:
        def send(self, to: str) -> str:
            return f"sent to {to}"

    app.job("send")(Mailer().send)
    job = app.enqueue("send", {"to": "mai"})
    work_off(app)

    assert app.get(job).result == "sent to mai"


def test_attributes_of_the_function_do_not_become_those_of_the_job_type(app: Yaoki) -> None:
    """Some decorators (tenacity's, for one) put a `retry` or a `name` on the function."""

    def handler() -> None:
        raise ValueError("x")

    handler.retry = handler.name = handler.signature = handler.secret = "somebody else's"  # type: ignore[attr-defined]
    kind = app.job("a", retry=RetryPolicy(max_attempts=1))(handler)
    job = app.enqueue("a")
    work_off(app, within=10)

    assert kind.name == "a"
    assert app.get(job).status == "failed"


def test_a_job_type_is_not_made_of_another(app: Yaoki) -> None:
    @app.job("a")
    def handler() -> None: ...

    with pytest.raises(InvalidOption, match="a job type already"):
        app.job("b")(handler)


@pytest.mark.parametrize("function", [5, "handler", None])
def test_what_cannot_be_called_is_no_handler(app: Yaoki, function: Any) -> None:
    with pytest.raises(InvalidOption):
        app.job("a")(function)


def test_the_context_is_found_wherever_it_stands(app: Yaoki) -> None:
    seen = []

    @app.job("first")
    def first(ctx: JobContext, a: int) -> None:
        seen.append((ctx.job.type, a))

    @app.job("last")
    def last(a: int, *, context: JobContext) -> None:
        seen.append((context.job.type, a))

    @app.job("in quotes")
    def quoted(job: "JobContext", a: int = 3) -> None:
        seen.append((job.job.type, a))

    first.enqueue(a=1)
    app.enqueue("last", {"a": 2})
    quoted.enqueue()
    work_off(app, concurrency=1)

    assert seen == [("first", 1), ("last", 2), ("in quotes", 3)]


# Sets of job types


def test_a_set_knows_no_app_until_one_includes_it(app: Yaoki) -> None:
    jobs = JobSet()

    @jobs.job("a")
    def handler(number: int) -> int:
        return number + 1

    with pytest.raises(InvalidOption, match=r"app\.include"):
        handler.enqueue(number=1)
    assert handler(1) == 2
    app.include(jobs)
    job = handler.enqueue(number=1)
    work_off(app)

    assert app.get(job).result == 2


def test_including_a_set_twice_changes_nothing(app: Yaoki) -> None:
    jobs = JobSet()

    @jobs.job("a")
    def handler() -> None: ...

    app.include(jobs)
    app.include(jobs)

    assert "a" in app.types
    assert len(app.types) == 1


def test_a_job_type_belongs_to_one_app(app: Yaoki) -> None:
    jobs = JobSet()

    @jobs.job("a")
    def handler() -> None: ...

    app.include(jobs)

    with pytest.raises(InvalidOption, match="another app"):
        Yaoki("sqlite:///:memory:").include(jobs)


def test_including_a_name_that_is_taken_is_refused_and_adds_nothing(app: Yaoki) -> None:
    jobs = JobSet()

    @jobs.job("new")
    def new() -> None: ...

    @jobs.job("taken")
    def theirs() -> None: ...

    @app.job("taken")
    def ours() -> None: ...

    with pytest.raises(InvalidOption, match="'taken' already"):
        app.include(jobs)

    assert "new" not in app.types


# Options of one enqueue


@pytest.mark.parametrize(
    "options",
    [
        {"bogus": 1},
        {"delay": 1, "run_at": 5},
        {"delay": -1},
        {"delay": "5"},
        {"max_attempts": 0},
        {"max_attempts": True},
        {"max_attempts": 2, "max_retries": 2},
        {"max_retries": -1},
        {"timeout": 0},
        {"priority": 1.5},
        {"priority": 1000},
        {"queue": None},
        {"idempotency_key": ""},
        {"idempotency_key": "k", "on_existing": "ignore"},
        {"tags": "one"},
        {"tags": [""]},
    ],
)
def test_options_that_cannot_be_are_refused(app: Yaoki, options: dict[str, Any]) -> None:
    @app.job("a")
    def handler() -> None: ...

    with pytest.raises(InvalidOption):
        handler.using(**options).enqueue()
    with pytest.raises(InvalidOption):
        app.enqueue("a", {}, **options)
    with pytest.raises(InvalidOption):
        app.enqueue("unknown here", {}, **options)
    assert list(app.jobs()) == []


def test_options_add_up_and_the_newer_win(app: Yaoki) -> None:
    @app.job("a", queue="mail", priority="high")
    def handler() -> None: ...

    job = handler.using(priority=1, tags=["x"]).using(priority=2, max_retries=0).enqueue()

    assert (job.queue, job.priority, job.max_attempts, job.tags) == ("mail", 2, 1, ("x",))


def test_what_a_caller_said_stands_above_the_definition_of_the_worker(app: Yaoki) -> None:
    elsewhere = Yaoki(app.url)
    said = elsewhere.enqueue("a", {}, max_attempts=7, timeout=9, priority=3, queue="q")
    unsaid = elsewhere.enqueue("a", {})
    elsewhere.close()

    @app.job("a", retry=RetryPolicy(max_attempts=2), timeout=5, priority=20, queue="mail")
    def handler() -> None: ...

    work_off(app)

    mine, other = app.get(said), app.get(unsaid)
    assert (mine.max_attempts, mine.timeout, mine.priority, mine.queue) == (7, 9, 3, "q")
    assert (other.max_attempts, other.timeout, other.priority, other.queue) == (2, 5, 20, "mail")


def test_a_key_template_is_filled_from_the_payload(app: Yaoki) -> None:
    @app.job("a", idempotency_key="{order[id]}-points")
    def handler(order: dict[str, int], note: str = "") -> None: ...

    first = handler.enqueue(order={"id": 7})
    again = handler.enqueue(order={"id": 7}, note="other payload")

    assert first.idempotency_key == "7-points"
    assert (again.id, again.created) == (first.id, False)


def test_a_key_template_whose_argument_is_missing_is_refused(app: Yaoki) -> None:
    @app.job("a", idempotency_key="{order_id}-points")
    def handler(order_id: int = 0) -> None: ...

    with pytest.raises(InvalidArguments, match="order_id"):
        handler.enqueue()
