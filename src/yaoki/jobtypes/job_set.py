"""Job types by name: a module can declare them before there is an app."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import (
    Any,
    Concatenate,
    Literal,
    ParamSpec,
    Protocol,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from yaoki.core.errors import InvalidOption
from yaoki.core.retry import RetryPolicy
from yaoki.jobtypes.context import JobContext
from yaoki.jobtypes.hooks import M, Middleware, add_middleware
from yaoki.jobtypes.job_type import About, AnyJobType, JobType, KeyRule

P = ParamSpec("P")
R = TypeVar("R")


class AboutOptions(TypedDict, total=False):
    """What may be said at the decorator; see design of a job type in the documentation.

    timeout: seconds or timedelta for one attempt (an hour unless said; None: no limit);
    secret: arguments whose values are never shown; idempotency_key: a template over the payload
    ("{order_id}-points") or a function of it; keep, keep_failed: how long the job is kept after
    it completed or was cancelled, and after it failed (None: until somebody deletes it);
    isolation: "process" runs it in a process of its own, which can be killed; memory_limit: the
    megabytes that such a process may use.
    """

    queue: str
    priority: int | str
    retry: RetryPolicy
    timeout: float | timedelta | None
    title: str | None
    secret: Sequence[str]
    idempotency_key: KeyRule | None
    keep: timedelta | None
    keep_failed: timedelta | None
    isolation: Literal["process"] | None
    memory_limit: int | None


class Decorator(Protocol):
    """Makes a job type of a function; a first parameter that is the context is filled in."""

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> JobType[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> JobType[P, R]: ...


class JobSet:
    """Job types of a module that knows no app: `@jobs.job(…)`, then `app.include(jobs)`."""

    def __init__(self) -> None:
        self._types: dict[str, AnyJobType] = {}
        self.middlewares: list[Middleware] = []

    def job(self, name: str | None = None, /, **about: Unpack[AboutOptions]) -> Decorator:
        """A decorator that makes a job type of a function, called `module.function` unless named.

        Raises InvalidOption for options that cannot be, and for a name that is taken.
        """
        if name is not None and not isinstance(name, str):
            raise InvalidOption("write @app.job() with parentheses, or @app.job('name')")
        unknown = sorted(about.keys() - AboutOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(sorted(AboutOptions.__annotations__))
            raise InvalidOption(f"@job has no option {unknown[0]!r}; there are {known}")

        def decorate(function: Callable[..., Any]) -> AnyJobType:
            kind: AnyJobType = JobType(function, name, About(**about))
            kind.around = self.middlewares
            self.add(kind)
            return kind

        return decorate

    def around(self, middleware: M | None = None, /) -> M:
        """Like Yaoki.around, for the job types of this set; inside those of the app."""
        add_middleware(self.middlewares, middleware)
        assert middleware is not None
        return middleware

    def add(self, kind: AnyJobType) -> None:
        """Register a job type; its name must be new."""
        self.check_new(kind.name)
        self._types[kind.name] = kind

    def check_new(self, name: str) -> None:
        """InvalidOption when there is a job type of this name."""
        if name in self._types:
            raise InvalidOption(
                f"there is a job type {name!r} already; give one of them another name"
            )

    def get(self, name: str) -> AnyJobType | None:
        return self._types.get(name)

    def __iter__(self) -> Iterator[AnyJobType]:
        return iter(list(self._types.values()))

    def __len__(self) -> int:
        return len(self._types)

    def __contains__(self, name: object) -> bool:
        return name in self._types
