"""OpenTelemetry: a span for each enqueue and each attempt, in one trace from the one to the other.

Needs the extra `otel` (opentelemetry-api). Without a provider nothing is recorded, at next to no
cost. No arguments and no results are in the spans, and secret values are hidden in error texts.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from yaoki.app import Yaoki
from yaoki.contrib.outcome import outcome_of, secrets_of
from yaoki.core.errors import InvalidOption, TimeLimitExceeded
from yaoki.core.failures import describe
from yaoki.core.job import AT, Job
from yaoki.core.said import NewJob
from yaoki.jobtypes import JobContext

_carriers = TraceContextTextMapPropagator()


def instrument(app: Yaoki, tracer_provider: TracerProvider | None = None) -> None:
    """Trace what `app` enqueues and runs; with the global provider unless one is given.

    Call it once, where the app is made: workers and isolated handlers import that module too.
    """
    if app.tracing is not None:
        raise InvalidOption("this app is instrumented already")
    tracer = trace.get_tracer("yaoki", metadata.version("yaoki"), tracer_provider)
    app.tracing = _Enqueues(app, tracer)
    app.hooks.around.insert(0, _Attempts(app, tracer))


def context_of(job: Job) -> Context:
    """The context that the job was enqueued in, for workers of your own."""
    return _carriers.extract(_carrier(job), Context())


class _Enqueuing:
    """The span of an enqueue, and how its context is written on the jobs."""

    def __init__(self, span: Span) -> None:
        self._span = span
        carrier: dict[str, str] = {}
        _carriers.inject(carrier)
        self.trace = json.dumps(carrier) if carrier else None

    def made(self, jobs: Sequence[Job]) -> None:
        if len(jobs) == 1:
            self._span.set_attribute("messaging.message.id", str(jobs[0].id))
            self._span.set_attribute("yaoki.job.id", jobs[0].id)
            self._span.set_attribute("yaoki.job.created", jobs[0].created)
        queues = {job.queue for job in jobs}
        if len(queues) == 1:
            self._span.set_attribute("messaging.destination.name", queues.pop())


class _Enqueues:
    """Makes a PRODUCER span of each enqueue: one for many jobs that are enqueued at once."""

    def __init__(self, app: Yaoki, tracer: Tracer) -> None:
        self._app, self._tracer = app, tracer

    @contextmanager
    def enqueuing(self, jobs: Sequence[NewJob]) -> Iterator[_Enqueuing]:
        attributes: dict[str, str | int] = {
            "messaging.system": "yaoki",
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
            "yaoki.job.type": jobs[0].type,
        }
        if len(jobs) > 1:
            attributes["messaging.batch.message_count"] = len(jobs)
        with self._tracer.start_as_current_span(
            f"enqueue {jobs[0].type}", kind=SpanKind.PRODUCER, attributes=attributes
        ) as span:
            yield _Enqueuing(span)


class _Attempts:
    """Makes a CONSUMER span of each attempt, around all other middlewares.

    The first attempt is part of the enqueuer's trace. Later ones may come days afterwards: each is
    a trace of its own, with a link to the enqueuer's span.
    """

    def __init__(self, app: Yaoki, tracer: Tracer) -> None:
        self._app, self._tracer = app, tracer

    def __call__(self, ctx: JobContext, run: Callable[[], Any]) -> Any:
        with self._span(ctx) as span:
            try:
                value = run()
            except BaseException as error:
                self._ended(span, ctx, error)
                raise
            self._ended(span, ctx, None)
            return value

    async def acall(self, ctx: JobContext, run: Callable[[], Awaitable[Any]]) -> Any:
        with self._span(ctx) as span:
            try:
                value = await run()
            except BaseException as error:
                self._ended(span, ctx, error)
                raise
            self._ended(span, ctx, None)
            return value

    @contextmanager
    def _span(self, ctx: JobContext) -> Iterator[Span]:
        job = ctx.job
        enqueued = context_of(job)
        origin = trace.get_current_span(enqueued).get_span_context()
        links = [Link(origin)] if origin.is_valid and ctx.attempt > 1 else []
        with self._tracer.start_as_current_span(
            f"process {job.type}",
            context=enqueued if ctx.attempt == 1 else Context(),
            kind=SpanKind.CONSUMER,
            attributes={
                "messaging.system": "yaoki",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": job.queue,
                "messaging.message.id": str(job.id),
                "messaging.client.id": job.worker_id or "",
                "yaoki.job.id": job.id,
                "yaoki.job.type": job.type,
                "yaoki.job.attempt": job.attempt,
                "yaoki.job.max_attempts": job.max_attempts,
            },
            links=links,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            yield span

    def _ended(self, span: Span, ctx: JobContext, error: BaseException | None) -> None:
        if not span.is_recording():
            return
        outcome = outcome_of(self._app, ctx, error)
        span.set_attribute("yaoki.job.outcome", outcome)
        if outcome not in ("retried", "failed"):
            return
        if ctx.stopping == "timeout" or error is None:
            error = TimeLimitExceeded("ran longer than its time limit")
        failure = describe(error, secrets_of(self._app, ctx))
        kind = failure.kind.removeprefix("builtins.")
        span.set_status(StatusCode.ERROR, failure.error)
        span.set_attribute("error.type", kind)
        span.add_event(
            "exception",
            {
                "exception.type": kind,
                "exception.message": failure.error,
                "exception.stacktrace": failure.traceback,
            },
        )


def _carrier(job: Job) -> Mapping[str, str]:
    text: str | None = job._row[AT["trace"]]
    if text is None:
        return {}
    try:
        carrier = json.loads(text)
    except ValueError:
        return {}
    return carrier if isinstance(carrier, dict) else {}
