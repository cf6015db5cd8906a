"""OpenTelemetry: one trace from who enqueued to the first attempt, and links from later ones."""

import asyncio
import importlib
import json
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from tests.support.databases import ask
from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, work_off
from yaoki import (
    Cancel,
    GiveUp,
    InvalidArguments,
    InvalidOption,
    JobContext,
    RetryPolicy,
    Snooze,
    Yaoki,
    fixed,
)
from yaoki.contrib.otel import context_of, instrument

AGAIN = RetryPolicy(max_attempts=3, backoff=fixed(0))


class Spans:
    """What was recorded, with a tracer of the program's own."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("the program")

    def all(self, name: str, count: int = 1) -> list[ReadableSpan]:
        """The ended spans of this name, in the order of their beginnings; waits for so many."""
        eventually(lambda: len(self._named(name)) >= count, within=20)
        found = self._named(name)
        assert len(found) == count
        return found

    def one(self, name: str) -> ReadableSpan:
        [found] = self.all(name)
        return found

    def _named(self, name: str) -> list[ReadableSpan]:
        found = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)


@pytest.fixture
def spans(app: Yaoki) -> Iterator[Spans]:
    made = Spans()
    instrument(app, made.provider)
    yield made
    made.provider.shutdown()


def trace_id(span: ReadableSpan) -> int:
    return span.get_span_context().trace_id


def parent_id(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def span_id(span: ReadableSpan) -> int:
    return span.get_span_context().span_id


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {}).get(name)


def outcomes(spans: list[ReadableSpan]) -> list[Any]:
    return [attribute(span, "yaoki.job.outcome") for span in spans]


def test_the_first_attempt_goes_on_with_the_enqueuers_trace(app: Yaoki, spans: Spans) -> None:
    @app.job("plain", queue="mail")
    def plain() -> None:
        with spans.tracer.start_as_current_span("inside plain"):
            pass

    @app.job("async", queue="mail")
    async def coroutine() -> None:
        with spans.tracer.start_as_current_span("inside async"):
            await asyncio.sleep(0)

    with spans.tracer.start_as_current_span("request") as request:
        jobs = {"plain": plain.enqueue(), "async": asyncio.run(coroutine.aenqueue())}
    work_off(app)

    for name, job in jobs.items():
        enqueue = spans.one(f"enqueue {name}")
        process = spans.one(f"process {name}")
        inside = spans.one(f"inside {name}")
        assert {trace_id(span) for span in (enqueue, process, inside)} == {
            request.get_span_context().trace_id
        }
        assert parent_id(enqueue) == request.get_span_context().span_id
        assert parent_id(process) == span_id(enqueue)
        assert parent_id(inside) == span_id(process)
        assert (enqueue.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        for span, operation in ((enqueue, "send"), (process, "process")):
            assert attribute(span, "messaging.system") == "yaoki"
            assert attribute(span, "messaging.operation.type") == operation
            assert attribute(span, "messaging.destination.name") == "mail"
            assert attribute(span, "messaging.message.id") == str(job.id)
            assert attribute(span, "yaoki.job.type") == name
        assert attribute(process, "yaoki.job.attempt") == 1
        assert outcomes([process]) == ["completed"]
        assert process.status.is_unset


def test_later_attempts_are_traces_of_their_own_with_a_link(app: Yaoki, spans: Spans) -> None:
    @app.job("fails", retry=AGAIN)
    def fails() -> None:
        raise ValueError("no")

    fails.enqueue()
    work_off(app, max_wait=5)

    enqueue = spans.one("enqueue fails")
    first, second, third = spans.all("process fails", 3)
    assert parent_id(first) == span_id(enqueue)
    assert first.links == ()
    assert len({trace_id(span) for span in (first, second, third)}) == 3
    for later in (second, third):
        assert later.parent is None
        assert [link.context.span_id for link in later.links] == [span_id(enqueue)]
    assert outcomes([first, second, third]) == ["retried", "retried", "failed"]
    assert [attribute(span, "yaoki.job.attempt") for span in (first, second, third)] == [1, 2, 3]


def test_an_error_is_recorded_and_secrets_are_not(app: Yaoki, spans: Spans) -> None:
    @app.job("pay", secret=("card",), retry=RetryPolicy(max_attempts=1))
    def pay(card: str, note: str) -> None:
        raise ConnectionError(f"refused: {card}")

    with pytest.raises(InvalidArguments):
        app.enqueue("pay", {"card": "4111-1111", "nonsense": 1})
    pay.enqueue(card="4111-1111", note="personal")
    work_off(app)

    span = spans.one("process pay")
    [event] = span.events
    assert not span.status.is_ok
    assert span.status.description == "ConnectionError: refused: ***"
    assert attribute(span, "error.type") == "ConnectionError"
    assert event.name == "exception"
    assert event.attributes is not None
    assert "in pay" in str(event.attributes["exception.stacktrace"])
    everything = "".join(span.to_json() for span in spans.exporter.get_finished_spans())
    assert "4111" not in everything
    assert "personal" not in everything


def test_every_outcome_is_named_and_only_failures_are_errors(app: Yaoki, spans: Spans) -> None:
    @app.job("ends", retry=RetryPolicy(max_attempts=2, give_up_on=ZeroDivisionError))
    async def ends(ctx: JobContext, how: str) -> None:
        if how == "snoozed" and not ctx.job.snoozes:
            raise Snooze(0)
        if how == "cancelled":
            raise Cancel
        if how == "gave up":
            raise GiveUp
        if how == "final":
            raise ZeroDivisionError

    for how in ("snoozed", "cancelled", "gave up", "final"):
        ends.enqueue(how=how)
    work_off(app, max_wait=5, concurrency=1)

    found = spans.all("process ends", 5)
    told = dict(zip(map(span_id, found), outcomes(found), strict=True))
    assert sorted(told.values()) == ["cancelled", "completed", "failed", "failed", "snoozed"]
    errors = [told[span_id(span)] for span in found if not span.status.is_unset]
    assert errors == ["failed", "failed"]


@pytest.mark.parametrize("awaits", [False, True], ids=["plain", "async"])
def test_a_time_limit_is_an_error(app: Yaoki, spans: Spans, awaits: bool) -> None:
    if awaits:

        @app.job("slow", timeout=0.1, retry=RetryPolicy(max_attempts=1))
        async def slow() -> None:
            await asyncio.sleep(30)
    else:

        @app.job("slow", timeout=0.1, retry=RetryPolicy(max_attempts=1))
        def slow_plain(ctx: JobContext) -> None:
            ctx.wait_stopping(30)

    app.enqueue("slow")
    work_off(app)

    span = spans.one("process slow")
    assert outcomes([span]) == ["failed"]
    assert attribute(span, "error.type") == "yaoki.core.errors.TimeLimitExceeded"


def test_many_jobs_are_one_span_and_each_belongs_to_it(app: Yaoki, spans: Spans) -> None:
    @app.job("a")
    def handler(number: int) -> None: ...

    handler.enqueue_many([{"number": number} for number in range(3)])
    asyncio.run(app.aenqueue_many("a", [{"number": 9}]))
    assert app.enqueue_many("a", []) == []
    work_off(app)

    many, single = spans.all("enqueue a", 2)
    processed = spans.all("process a", 4)
    assert attribute(many, "messaging.batch.message_count") == 3
    assert [parent_id(span) for span in processed].count(span_id(many)) == 3
    assert [parent_id(span) for span in processed].count(span_id(single)) == 1


def test_what_a_handler_enqueues_goes_on_with_its_attempt(app: Yaoki, spans: Spans) -> None:
    @app.job("second")
    def second() -> None: ...

    @app.job("first")
    def first(ctx: JobContext) -> None:
        with ctx.transaction():
            second.enqueue()

    @app.job("first async")
    async def first_async() -> None:
        await second.aenqueue()

    first.enqueue()
    first_async.enqueue()
    work_off(app)

    starts = {span_id(spans.one(f"process {name}")) for name in ("first", "first async")}
    assert {parent_id(span) for span in spans.all("enqueue second", 2)} == starts
    enqueues = {span_id(span) for span in spans.all("enqueue second", 2)}
    assert {parent_id(span) for span in spans.all("process second", 2)} == enqueues


def test_no_span_is_left_over_for_the_next_job(app: Yaoki, spans: Spans) -> None:
    seen: list[bool] = []

    @app.job("a")
    def handler() -> None:
        seen.append(trace.get_current_span().get_span_context().is_valid)
        raise GiveUp

    for _ in range(4):
        handler.enqueue()
    work_off(app, concurrency=1)

    assert seen == [True] * 4
    assert len({trace_id(span) for span in spans.all("process a", 4)}) == 4
    assert not trace.get_current_span().get_span_context().is_valid


def test_the_job_of_a_key_keeps_the_trace_of_who_made_it(app: Yaoki, spans: Spans) -> None:
    made = app.enqueue("a", idempotency_key="k")
    app.enqueue("a", idempotency_key="k")

    first, second = spans.all("enqueue a", 2)
    kept = trace.get_current_span(context_of(app.get(made))).get_span_context()
    assert kept.span_id == span_id(first)
    assert [attribute(span, "yaoki.job.created") for span in (first, second)] == [True, False]


def test_without_a_provider_everything_works_and_nothing_is_written(
    app: Yaoki, start_worker: StartWorker
) -> None:
    instrument(app)

    @app.job("a")
    def handler() -> None: ...

    job = handler.enqueue()
    start_worker()

    assert app.wait(job, timeout=20).status == "completed"
    assert ask(app.store, "SELECT trace FROM yaoki.jobs") == [(None,)]


@pytest.mark.parametrize("written", ["not JSON", "[]", '{"traceparent":"nonsense"}', "7"])
def test_a_trace_that_cannot_be_read_is_none(app: Yaoki, spans: Spans, written: str) -> None:
    @app.job("a")
    def handler() -> None: ...

    handler.enqueue()
    ask(app.store, "UPDATE yaoki.jobs SET trace = :trace", {"trace": written})
    work_off(app)

    assert spans.one("process a").parent is None


def test_what_is_kept_is_a_w3c_header(app: Yaoki, spans: Spans) -> None:
    app.enqueue("a")

    [(kept,)] = ask(app.store, "SELECT trace FROM yaoki.jobs")

    context = spans.one("enqueue a").get_span_context()
    carrier = json.loads(kept)
    assert carrier.keys() == {"traceparent"}
    ids = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
    assert carrier["traceparent"].startswith(ids)


def test_an_app_is_instrumented_once(app: Yaoki, spans: Spans) -> None:
    with pytest.raises(InvalidOption, match="already"):
        instrument(app)


PROGRAM = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from yaoki import Yaoki
from yaoki.contrib.otel import instrument

told = open({told!r}, "a", buffering=1)
provider = TracerProvider()
exporter = ConsoleSpanExporter(out=told, formatter=lambda span: span.to_json(None) + "\\n")
provider.add_span_processor(SimpleSpanProcessor(exporter))
app = Yaoki({url!r})
instrument(app, provider)


@app.job(isolation="process")
def plain():
    coroutine.enqueue()


@app.job(isolation="process")
async def coroutine():
    pass
"""


def test_isolated_handlers_are_traced_in_their_processes(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "spans.jsonl"
    (tmp_path / "traced_program.py").write_text(PROGRAM.format(told=str(told), url=url))
    monkeypatch.syspath_prepend(tmp_path)
    program = importlib.import_module("traced_program")
    program.plain.enqueue()
    work_off(program.app, concurrency=1)
    spans = [json.loads(line) for line in told.read_text().splitlines()]
    program.app.close()
    program.told.close()
    del sys.modules["traced_program"]

    by_name = {span["name"].replace("traced_program.", ""): span for span in spans}
    names = ["enqueue plain", "process plain", "enqueue coroutine", "process coroutine"]
    assert sorted(by_name) == sorted(names)
    for before, after in pairwise(names):
        assert by_name[after]["parent_id"] == by_name[before]["context"]["span_id"]
    assert {span["context"]["trace_id"] for span in spans} == {spans[0]["context"]["trace_id"]}
    assert by_name["process coroutine"]["attributes"]["yaoki.job.outcome"] == "completed"
