"""One attempt as its worker holds it, from the claim until its outcome is known."""

import asyncio
import inspect
import logging
import random
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from yaoki.core.errors import GiveUp, InvalidPayload, TimeLimitExceeded
from yaoki.core.failures import Failure, describe, kind_of, text
from yaoki.core.job import AT, Job
from yaoki.core.outcomes import (
    Cancelled,
    Change,
    Completed,
    Released,
    Retried,
    judge,
    settle,
)
from yaoki.core.payloads import encode_result
from yaoki.core.times import in_words
from yaoki.jobtypes import AnyJobType, JobContext
from yaoki.store.ops.settling import Held, Settlement

if TYPE_CHECKING:
    from yaoki.worker.around import Around

log = logging.getLogger("yaoki.worker")

_ID, _LEASE, _PAYLOAD, _TIMEOUT = AT["id"], AT["lease"], AT["payload"], AT["timeout"]
_WORKER = AT["worker_id"]

_rng = random.Random()


class Run:
    """A claimed job with its handler.

    `started` and `deadline` are monotonic seconds, None before it begins and without a limit.
    `ended` is set once, by whoever is first: the handler, the clock, or the end of the worker.
    """

    __slots__ = (
        "around",
        "cancelled",
        "claimed",
        "context",
        "deadline",
        "ended",
        "entered",
        "handed_back",
        "held",
        "id",
        "job",
        "kill",
        "kind",
        "marked",
        "queue",
        "started",
        "task",
        "thread",
    )

    def __init__(self, job: Job, kind: AnyJobType, context: JobContext, marked: bool) -> None:
        row = job._row
        self.id: int = row[_ID]
        self.held = Held(self.id, row[_LEASE])
        self.job, self.kind, self.context = job, kind, context
        if kind.secret:
            context.hide(kind.hidden)
        self.around: Around | None = None
        """How its handler is called, where middlewares are around it."""
        self.queue = row[2]
        self.claimed = time.monotonic()
        self.started: float | None = None
        self.deadline: float | None = None
        self.marked = marked
        """The database knows that it has begun."""
        self.ended = self.entered = self.cancelled = False
        self.handed_back = False
        self.kill: Callable[[str], None] | None = None
        """While an isolated handler runs: kill its process, for this reason."""
        self.thread: int | None = None
        self.task: asyncio.Task[None] | None = None

    def begin(self, now: float) -> None:
        self.started = now
        if not self.kind.isolated:  # else its time begins when a process has it
            self.limit(now)
        self.context.began(now)

    def limit(self, now: float) -> None:
        """Its time limit runs from now on."""
        timeout: int | None = self.job._row[_TIMEOUT]
        if timeout is not None:
            self.deadline = now + timeout / 1_000_000

    def arguments(self) -> dict[str, Any]:
        """The handler's keyword arguments; InvalidArguments when they do not fit any more."""
        signature = self.kind.signature
        arguments = signature.convert(self.job._row[_PAYLOAD])
        if signature.context is not None:
            arguments[signature.context] = self.context
        return arguments

    def enter(self) -> None:
        """In the handler's own contextvars.Context, before it: raises when it is to not begin."""
        self.entered = True
        self.context.enter()
        if self.cancelled or self.context.stopping in STOPPED:
            raise asyncio.CancelledError

    def returned(self, value: object) -> Change | None:
        """The change that a returned value asks for; None when the handler has recorded it."""
        if self.context.settled_by_handler or self.ended:
            return None
        if self.context.stopping == "timeout":
            return self.timed_out()
        if self.context.stopping == "lease lost":
            return self._lease_lost()
        if value is None:
            return _NOTHING
        if inspect.isawaitable(value):
            return self._not_run(value)
        encoded, problem = encode_result(value)
        if problem is not None:
            log.warning("%s: its result cannot be stored: %s", self, problem)
        return settle(Completed(encoded))

    def _not_run(self, value: object) -> Change:
        if inspect.iscoroutine(value):
            value.close()
        # With middlewares, what arrives here is what the outermost one made of it.
        who = "the handler" if self.around is None else "the handler, or a middleware around it,"
        cure = "" if self.around is None else ", and write await run() in async middlewares"
        return self._judged(
            GiveUp(
                f"{who} returned a {type(value).__name__} that nobody awaited, so nothing "
                f"was done; declare it with async def{cure}"
            )
        )

    def raised(self, error: BaseException) -> Change | None:
        """The change that an exception asks for, by the rules of the job type. Never raises."""
        try:
            return self._raised(error)
        except BaseException as problem:
            log.error("%s: its exception could not be judged: %s", self, kind_of(type(problem)))
            return settle(Retried(describe(error), _FALLBACK_WAIT))

    def _raised(self, error: BaseException) -> Change | None:
        reason = self.context.stopping
        cancelled = issubclass(type(error), asyncio.CancelledError)
        if self.context.settled_by_handler:
            failure = describe(error, self._hidden())
            log.error("%s raised after it had completed the job:\n%s", self, failure.traceback)
            return None
        if self.ended:
            return None
        if reason == "timeout":
            return self.timed_out()
        if cancelled and reason == "shutdown":
            self.handed_back = True
            return settle(Released("stopped when its worker shut down"))
        if cancelled and reason == "cancelled":
            return settle(Cancelled("cancelled"))
        if reason == "lease lost":
            return self._lease_lost()
        return self._judged(error)

    def _lease_lost(self) -> Change:
        """The change when the lease could not be renewed: as if somebody had taken it back."""
        why = f"lease lost (worker {self.job._row[_WORKER]}): it could not be renewed"
        wait, _ = self.kind.retry.wait(self.job.attempt, _rng)
        return settle(Retried(Failure(why, "", "yaoki.LeaseLost"), round(wait * 1_000_000)))

    def timed_out(self, *, logged: bool = True) -> Change:
        """The change when the time limit has passed, with where the handler was."""
        limit = (self.job._row[_TIMEOUT] or 0) / 1_000_000
        error = TimeLimitExceeded(f"ran longer than its time limit of {in_words(limit)}")
        change = self._judged(error, logged=logged)
        where = self._where()
        return change if where is None else _with_traceback(change, where)

    def break_off(self) -> None:
        """End the transaction that the handler is in, if it is; nobody waits for the database."""
        cutting = threading.Thread(target=self.context.break_off, name="yaoki-cut", daemon=True)
        with suppress(RuntimeError):
            cutting.start()

    def settlement(self, change: Change, now: float) -> Settlement:
        ran_for = 0 if self.started is None else round((now - self.started) * 1_000_000)
        progress, lines = self.context.take_progress(), self.context.lines_to_write()
        return Settlement(self.held, change, ran_for, progress, lines=lines)

    def facts(self, event: str) -> dict[str, object]:
        """What a log record says about the attempt besides its message."""
        job = self.job
        facts: dict[str, object] = {
            "event": event,
            "job": self.id,
            "type": self.kind.name,
            "attempt": job.attempt,
            "worker": job.worker_id,
        }
        if self.started is not None:
            facts["duration"] = round(time.monotonic() - self.started, 6)
        return facts

    def __str__(self) -> str:
        return f"job {self.id} ({self.kind.name}, attempt {self.job.attempt})"

    def _judged(self, error: BaseException, *, logged: bool = True) -> Change:
        verdict = judge(error, self.kind.retry, self.job.attempt, _rng, self._hidden())
        for warning in verdict.warnings:
            log.warning("%s: %s", self, warning)
        change = settle(verdict.outcome)
        if logged and change.outcome in ("failed", "retried"):
            self.log_failure(change)
        return change

    def log_failure(self, change: Change) -> None:
        attempts = f"{self.job.attempt}/{self.job.max_attempts}"
        last = change.outcome == "failed" or self.job.attempt >= self.job.max_attempts
        log.log(
            logging.ERROR if last else logging.WARNING,
            "job %d (%s) failed, attempt %s%s: %s",
            self.id,
            self.kind.name,
            attempts,
            ", for good" if last else "",
            text(change.error or "", 300).replace("\n", " "),
            extra=self.facts("failed" if last else "retried"),
        )

    def _hidden(self) -> Collection[str]:
        try:
            return self.kind.hidden(self.job.payload) if self.kind.secret else ()
        except InvalidPayload:
            return ()

    def _where(self) -> str | None:
        """The stack of a handler that is still running in its thread."""
        frame = None if self.thread is None else sys._current_frames().get(self.thread)
        if frame is None:
            return None
        return "".join(traceback.format_stack(frame)[-20:])


STOPPED = frozenset({"cancelled", "timeout", "lease lost"})
"""Reasons to stop after which nothing that the handler does is recorded."""

_FALLBACK_WAIT = 10_000_000
_NOTHING = settle(Completed("null"))


def _with_traceback(change: Change, where: str) -> Change:
    stack = text(f"The handler was still running here:\n{where}", 16_000)
    return Change(change.outcome, change.wait, change.error, stack, change.result, change.started)
