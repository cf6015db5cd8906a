"""A job type: a function, its name, and everything said about it."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import update_wrapper
from string import Formatter
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar, Unpack, cast

from yaoki.core import names, payloads
from yaoki.core.definition import Definition
from yaoki.core.errors import InvalidArguments, InvalidOption
from yaoki.core.job import Job
from yaoki.core.priority import priority_of
from yaoki.core.retry import RetryPolicy
from yaoki.core.said import DEFAULT_QUEUE, NewJob, Unsaid
from yaoki.core.times import micros
from yaoki.jobtypes.context import JobContext
from yaoki.jobtypes.options import Options, check_options, new_job, timeout_of
from yaoki.jobtypes.signature import Signature

P = ParamSpec("P")
R = TypeVar("R")

KeyRule = str | Callable[[dict[str, Any]], str | None]

THIRTY_DAYS = timedelta(days=30)

MOST_MEMORY = 1_000_000
"""Megabytes."""


class Owner(Protocol):
    """Who enqueues for a job type: the app that it is registered with."""

    def enqueue_type(
        self, kind: "AnyJobType", payload: dict[str, Any], options: Options
    ) -> Job: ...

    async def aenqueue_type(
        self, kind: "AnyJobType", payload: dict[str, Any], options: Options
    ) -> Job: ...

    def enqueue_many_type(
        self, kind: "AnyJobType", payloads: Iterable[Mapping[str, Any]], options: Options
    ) -> list[Job]: ...

    async def aenqueue_many_type(
        self, kind: "AnyJobType", payloads: Iterable[Mapping[str, Any]], options: Options
    ) -> list[Job]: ...


@dataclass(frozen=True, kw_only=True)
class About:
    """What is said at the decorator of a job type."""

    queue: str = DEFAULT_QUEUE
    priority: int | str = 0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout: float | timedelta | None = 3600
    title: str | None = None
    secret: Sequence[str] = ()
    idempotency_key: KeyRule | None = None
    keep: timedelta | None = THIRTY_DAYS
    keep_failed: timedelta | None = None
    isolation: Literal["process"] | None = None
    memory_limit: int | None = None


class JobType(Generic[P, R]):
    """A function that can run as a job. Calling it runs it here and now, as ever."""

    def __init__(self, function: Callable[..., R], name: str | None, about: About) -> None:
        _check_function(function)
        _check_about(about)
        self.function = function
        self.name = names.check_type(_full_name(function) if name is None else name)
        self.about = about
        self.retry = about.retry
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        self.isolated = about.isolation is not None
        self.on_loop = self.is_async and not self.isolated
        """It runs on the event loop of the worker; all others have a thread of it."""
        self.memory_limit = about.memory_limit
        self.secret = _secret_names(about.secret)
        self.signature = Signature(function, self.name, JobContext, self.secret)
        self.definition = self._defined()
        self.unsaid: Unsaid = self.definition.unsaid()
        self.owner: Owner | None = None
        self.around: Sequence[Callable[..., Any]] = ()
        """The middlewares of the JobSet that it was declared in."""
        self._check_names()
        # Its name and docstring, not its attributes: some would take the place of ours.
        update_wrapper(self, function, updated=())

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Have it done later, with these arguments; the job, which is stored when this returns.

        Inside `with app.on(connection):` it becomes visible when that transaction commits, and
        never if it rolls back. Raises InvalidArguments when they do not fit the function's
        signature, InvalidPayload when JSON cannot hold them.
        """
        return self._enqueue(self.signature.bind(args, kwargs), {})

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """The same, awaiting."""
        return await self._aenqueue(self.signature.bind(args, kwargs), {})

    def enqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[Job]:
        """A job for each of the payloads, in their order; all of them or none."""
        return self._owned().enqueue_many_type(self, payloads, {})

    async def aenqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[Job]:
        """The same, awaiting."""
        return await self._owned().aenqueue_many_type(self, payloads, {})

    def using(self, **options: Unpack[Options]) -> "Prepared[P, R]":
        """The same job type with options for the jobs that are enqueued through it."""
        check_options(options)
        return Prepared(self, options)

    def new_job(self, payload: dict[str, Any], options: Options) -> NewJob:
        """A checked job to be made, with the key that its definition says."""
        context = self.signature.context
        if context is not None and context in payload:
            raise InvalidArguments(
                f"{self.name}: {context!r} is filled in by the worker, and cannot be an argument"
            )
        text = payloads.encode_payload(payload)
        self.signature.check(text)
        if self.about.idempotency_key is not None and "idempotency_key" not in options:
            options = options | {"idempotency_key": self._key(payloads.decode_payload(text))}
        return new_job(self.name, text, options)

    def hidden(self, payload: Mapping[str, object]) -> list[str]:
        """The secret values of a payload, as they would stand in an error's text."""
        return [leaf for name in self.secret for leaf in _leaves(payload.get(name))]

    def __repr__(self) -> str:
        return f"<JobType {self.name}>"

    def _enqueue(self, payload: dict[str, Any], options: Options) -> Job:
        return self._owned().enqueue_type(self, payload, options)

    async def _aenqueue(self, payload: dict[str, Any], options: Options) -> Job:
        return await self._owned().aenqueue_type(self, payload, options)

    def _owned(self) -> Owner:
        if self.owner is None:
            raise InvalidOption(
                f"job type {self.name!r} belongs to a JobSet that no app has included; call "
                "app.include(jobs) first"
            )
        return self.owner

    def _key(self, payload: dict[str, Any]) -> str | None:
        rule = self.about.idempotency_key
        if not isinstance(rule, str):
            return None if rule is None else rule(payload)
        try:
            return rule.format_map(payload)
        except (KeyError, IndexError, AttributeError, TypeError, ValueError) as error:
            raise InvalidArguments(
                f"{self.name}: its idempotency key {rule!r} needs an argument that was not "
                f"given ({type(error).__name__}: {error}); pass it, or say idempotency_key=…"
            ) from None

    def _check_names(self) -> None:
        rule = self.about.idempotency_key
        wanted = list(self.secret)
        if isinstance(rule, str):
            fields = _fields(rule, self.name)
            named = [_first_name(field) for field in fields]
            wanted += named
            if shown := set(named) & set(self.secret):
                raise InvalidOption(
                    f"job type {self.name!r}: its idempotency key would show the secret argument "
                    f"{min(shown)!r}; make the key of something else"
                )
        for name in wanted:
            if not self.signature.open and name not in self.signature.names:
                raise InvalidOption(
                    f"job type {self.name!r}: there is no argument {name!r} "
                    f"(in secret or idempotency_key); there are {sorted(self.signature.names)}"
                )

    def _defined(self) -> Definition:
        about, rule = self.about, self.about.idempotency_key
        return Definition(
            type=self.name,
            title=about.title,
            description=inspect.getdoc(self.function),
            queue=names.check_queue(about.queue),
            priority=priority_of(about.priority),
            max_attempts=about.retry.max_attempts,
            backoff=about.retry.backoff.to_dict(),
            timeout=timeout_of(about.timeout),
            secret=self.secret,
            idempotency_key=rule if isinstance(rule, str) or rule is None else "(a function)",
            retry_on=_named(about.retry.retry_on),
            give_up_on=_named(about.retry.give_up_on),
            keep=None if about.keep is None else micros(about.keep, "keep"),
            keep_failed=None if about.keep_failed is None else micros(about.keep_failed, "keep"),
            arguments=tuple(sorted(self.signature.names)),
            isolation=about.isolation,
            memory_limit=about.memory_limit,
        )


AnyJobType = JobType[Any, Any]


class Prepared(Generic[P, R]):
    """A job type with options: what `using` gives."""

    def __init__(self, kind: JobType[P, R], options: Options) -> None:
        self._kind, self._options = kind, options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """Like JobType.enqueue, with the options."""
        return self._kind._enqueue(self._kind.signature.bind(args, kwargs), self._options)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job:
        """The same, awaiting."""
        return await self._kind._aenqueue(self._kind.signature.bind(args, kwargs), self._options)

    def enqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[Job]:
        """Like JobType.enqueue_many, with the options."""
        return self._kind._owned().enqueue_many_type(self._kind, payloads, self._options)

    async def aenqueue_many(self, payloads: Iterable[Mapping[str, Any]]) -> list[Job]:
        """The same, awaiting."""
        return await self._kind._owned().aenqueue_many_type(self._kind, payloads, self._options)

    def using(self, **options: Unpack[Options]) -> "Prepared[P, R]":
        """More options; the newer ones win."""
        check_options(options)
        return Prepared(self._kind, self._options | options)


def _check_function(function: object) -> None:
    if isinstance(function, JobType):
        raise InvalidOption(f"{function.name!r} is a job type already; declare the function once")
    if not callable(function):
        raise InvalidOption("@app.job(...) stands above a function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidOption(
            f"{_full_name(function)} yields, so calling it would run nothing of it; a handler is "
            "a plain or an async function"
        )


def _check_about(about: About) -> None:
    kinds: tuple[tuple[str, object, tuple[type, ...]], ...] = (
        ("retry", about.retry, (RetryPolicy,)),
        ("title", about.title, (str, type(None))),
        ("keep", about.keep, (timedelta, type(None))),
        ("keep_failed", about.keep_failed, (timedelta, type(None))),
    )
    for what, value, allowed in kinds:
        if not isinstance(value, allowed):
            known = " or ".join("None" if kind is type(None) else kind.__name__ for kind in allowed)
            raise InvalidOption(f"{what} is a {known}, not {value!r}")
    rule = about.idempotency_key
    if rule is not None and not isinstance(rule, str) and not callable(rule):
        raise InvalidOption(f"idempotency_key is a template or a function, not {rule!r}")
    _check_isolation(about.isolation, about.memory_limit)


def _check_isolation(isolation: object, memory_limit: object) -> None:
    if isolation not in (None, "process"):
        raise InvalidOption(f"isolation is 'process', or None, not {isolation!r}")
    if memory_limit is None:
        return
    whole = isinstance(memory_limit, int) and not isinstance(memory_limit, bool)
    if not whole or not 1 <= cast(int, memory_limit) <= MOST_MEMORY:
        raise InvalidOption(
            f"memory_limit is a whole number of megabytes from 1 to {MOST_MEMORY:,}, not "
            f"{memory_limit!r}"
        )
    if isolation is None:
        raise InvalidOption(
            "memory_limit needs isolation='process': a thread has no memory of its own"
        )


def _full_name(function: Any) -> str:
    named = function if hasattr(function, "__qualname__") else type(function)
    # A process that multiprocessing spawned imports the program under another name.
    module = "__main__" if named.__module__ == "__mp_main__" else named.__module__
    return f"{module}.{named.__qualname__}"


def _fields(template: str, name: str) -> list[str]:
    try:
        return [field for _, field, _, _ in Formatter().parse(template) if field is not None]
    except ValueError as error:
        raise InvalidOption(
            f"job type {name!r}: idempotency_key={template!r} is no template of an idempotency "
            f"key: {error}"
        ) from None


def _leaves(value: object) -> Iterator[str]:
    """The texts and numbers in a secret value, however deep they are."""
    if isinstance(value, Mapping):
        for part in value.values():
            yield from _leaves(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _leaves(part)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _secret_names(secret: Sequence[str]) -> tuple[str, ...]:
    if isinstance(secret, str):
        raise InvalidOption(f"secret is a list of argument names: ({secret!r},)")
    return tuple(secret)


def _first_name(field: str) -> str:
    return field.partition(".")[0].partition("[")[0]


def _named(rules: Any) -> tuple[str, ...]:
    listed = rules if isinstance(rules, tuple) else (rules,)
    return tuple(getattr(rule, "__qualname__", None) or repr(rule) for rule in listed)
