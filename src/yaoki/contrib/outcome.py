"""What will be recorded of an attempt, for tools that stand around it."""

import asyncio
from collections.abc import Collection

from yaoki.app import Yaoki
from yaoki.core.errors import Cancel, GiveUp, InvalidPayload, RetryAfter, Snooze, TimeLimitExceeded
from yaoki.core.retry import RetryPolicy
from yaoki.jobtypes import JobContext


def outcome_of(app: Yaoki, ctx: JobContext, error: BaseException | None) -> str:
    """How an attempt ends that returned (None) or raised `error`, as `job.attempts` will say.

    completed, retried (an attempt remains), failed (for good), snoozed, cancelled, released (handed
    back at a shutdown), or lost: its lease is another's, and nothing is recorded.
    """
    if ctx.stopping == "lease lost":
        return "lost"
    if ctx.settled_by_handler:
        return "completed"
    if ctx.stopping == "cancelled":
        return "cancelled"
    if ctx.stopping == "timeout":
        error = TimeLimitExceeded()
    if error is None:
        return "completed"
    kind = type(error)
    if issubclass(kind, asyncio.CancelledError) and ctx.stopping == "shutdown":
        return "released"
    if issubclass(kind, Snooze):
        return "snoozed"
    if issubclass(kind, Cancel):
        return "cancelled"
    if ctx.attempt >= ctx.job.max_attempts or _is_final(app, ctx, error):
        return "failed"
    return "retried"


def secrets_of(app: Yaoki, ctx: JobContext) -> Collection[str]:
    """What is not to be shown of the arguments of this job."""
    kind = app.types.get(ctx.job.type)
    try:
        return kind.hidden(ctx.job.payload) if kind is not None and kind.secret else ()
    except InvalidPayload:
        return ()


def _is_final(app: Yaoki, ctx: JobContext, error: BaseException) -> bool:
    if issubclass(type(error), GiveUp):
        return True
    if issubclass(type(error), RetryAfter):
        return False
    kind = app.types.get(ctx.job.type)
    return (RetryPolicy() if kind is None else kind.retry).final(error)
