"""What an app does around its attempts, and when a process that runs them begins and ends."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from yaoki.core.errors import InvalidOption
from yaoki.jobtypes.context import JobContext

Middleware = Callable[[JobContext, Callable[[], Any]], Any]
"""`def around(ctx, run): return run()`, or `async def around(ctx, run): return await run()`."""

Hook = Callable[[], object]
"""Plain or async; what it returns is nobody's concern."""

M = TypeVar("M", bound=Middleware)
H = TypeVar("H", bound=Hook)


class Hooks:
    """What was registered, in its order.

    Of `around` the first one is the outermost. `shutdown` runs in the opposite order.
    """

    def __init__(self) -> None:
        self.around: list[Middleware] = []
        self.startup: list[Hook] = []
        self.shutdown: list[Hook] = []

    def chain(self, own: Sequence[Middleware]) -> tuple[Middleware, ...]:
        """What is around the attempts of a job type whose JobSet has `own` ones."""
        inner = () if own is self.around else own
        return (*self.around, *inner)


def add_middleware(to: list[Middleware], middleware: object) -> None:
    """Append a middleware; InvalidOption for what can be none."""
    _add(to, middleware, "around", (None, None), "(ctx, run)")


def add_hook(to: list[Hook], hook: object, what: str) -> None:
    """Append a hook; InvalidOption for what can be none."""
    _add(to, hook, what, (), "no arguments")


def is_async(function: Any) -> bool:
    """Has it to be awaited? Also of an object whose __call__ has."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


def name_of(function: Any) -> str:
    """How a message calls a function."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{module}.{name}" if module else name


def _add(to: list[Any], function: Any, what: str, given: tuple[object, ...], takes: str) -> None:
    if function is None:
        raise InvalidOption(f"write @{what} without parentheses")
    if not callable(function):
        raise InvalidOption(f"@{what} stands above a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        more = "; one around attempts calls run()" if given else ""
        raise InvalidOption(f"{name_of(function)} yields, so @{what} would run nothing of it{more}")
    try:
        inspect.signature(function).bind(*given)
    except TypeError:
        raise InvalidOption(f"@{what}: {name_of(function)} is to take {takes}") from None
    except ValueError:
        pass  # a function of C without a signature
    if any(each is function for each in to):
        raise InvalidOption(f"@{what}: {name_of(function)} is registered already")
    to.append(function)
