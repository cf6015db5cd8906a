"""What can be registered around attempts, and for the beginning and end of a worker."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

from yaoki import InvalidOption, JobSet, Yaoki


@pytest.fixture
def app() -> Yaoki:
    return Yaoki("sqlite:///nowhere.db")


KINDS = ["around", "on_startup", "on_shutdown"]


@pytest.mark.parametrize("what", KINDS)
def test_a_decorator_gives_the_function_back(app: Yaoki, what: str) -> None:
    def function(*given: object) -> None: ...

    assert getattr(app, what)(function) is function


@pytest.mark.parametrize("what", KINDS)
def test_parentheses_are_refused_with_what_to_write(app: Yaoki, what: str) -> None:
    with pytest.raises(InvalidOption, match=f"write @{what} without parentheses"):
        getattr(app, what)()


@pytest.mark.parametrize("what", KINDS)
def test_what_cannot_be_called_is_refused(app: Yaoki, what: str) -> None:
    with pytest.raises(InvalidOption, match=f"@{what} stands above a function"):
        getattr(app, what)("name")


@pytest.mark.parametrize("what", KINDS)
def test_what_yields_is_refused(app: Yaoki, what: str) -> None:
    """As it would be written for pytest, or for contextlib."""

    def plain(*given: object) -> Any:
        yield

    async def awaiting(*given: object) -> Any:
        yield

    for function in (plain, awaiting):
        with pytest.raises(InvalidOption, match="yields, so"):
            getattr(app, what)(function)


@pytest.mark.parametrize(
    ("what", "function", "takes"),
    [
        ("around", lambda: None, r"\(ctx, run\)"),
        ("around", lambda run: None, r"\(ctx, run\)"),
        ("around", lambda ctx, run, more: None, r"\(ctx, run\)"),
        ("on_startup", lambda app: None, "no arguments"),
        ("on_shutdown", lambda app: None, "no arguments"),
    ],
)
def test_a_signature_that_does_not_fit_is_refused(
    app: Yaoki, what: str, function: Callable[..., Any], takes: str
) -> None:
    with pytest.raises(InvalidOption, match=f"is to take {takes}"):
        getattr(app, what)(function)


@pytest.mark.parametrize("what", KINDS)
def test_one_function_is_registered_once(app: Yaoki, what: str) -> None:
    def function(*given: object) -> None: ...

    getattr(app, what)(function)

    with pytest.raises(InvalidOption, match="is registered already"):
        getattr(app, what)(function)


def test_a_function_that_takes_more_by_default_may_be_registered(app: Yaoki) -> None:
    def function(ctx: object, run: object, more: int = 1, **options: object) -> None: ...

    app.around(function)
    app.around(functools.partial(function, more=2))

    assert len(app.hooks.around) == 2


def test_a_jobset_has_middlewares_of_its_own(app: Yaoki) -> None:
    jobs = JobSet()

    @jobs.around
    def inner(ctx: object, run: object) -> None: ...

    @app.around
    def outer(ctx: object, run: object) -> None: ...

    @jobs.job("theirs")
    def theirs() -> None: ...

    @app.job("ours")
    def ours() -> None: ...

    app.include(jobs)

    assert app.hooks.chain(theirs.around) == (outer, inner)
    assert app.hooks.chain(ours.around) == (outer,)
