"""What may be said when a job is enqueued, and how it is checked."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypedDict

import msgspec

from yaoki.core import names
from yaoki.core.errors import InvalidOption
from yaoki.core.priority import priority_of
from yaoki.core.said import NO_LIMIT, NewJob
from yaoki.core.times import instant, micros
from yaoki.store.ops.jobs import OnExisting

MOST_ATTEMPTS = 1_000_000


class Options(TypedDict, total=False):
    """The options of one enqueue; each stands above what the job type's definition says.

    delay, timeout: seconds or timedelta (timeout=None: no limit); run_at: an aware datetime;
    priority: -100 to 100, or a label; on_existing: what to do when the idempotency key is known.
    """

    queue: str
    priority: int | str
    delay: float | timedelta
    run_at: datetime
    idempotency_key: str | None
    on_existing: OnExisting
    max_attempts: int
    max_retries: int
    timeout: float | timedelta | None
    tags: Sequence[str]


def check_options(options: Options) -> None:
    """Refuse options that do not exist; InvalidOption names those that do."""
    unknown = sorted(options.keys() - Options.__annotations__.keys())
    if unknown:
        known = ", ".join(sorted(Options.__annotations__))
        raise InvalidOption(f"there is no option {unknown[0]!r}; there are {known}")


def new_job(kind: str, payload: str, options: Options) -> NewJob:
    """The job that these options describe; InvalidOption says what is wrong with one."""
    if not options:
        return NewJob(kind, payload)
    check_options(options)
    if "delay" in options and "run_at" in options:
        raise InvalidOption("give delay or run_at, not both")
    key = options.get("idempotency_key")
    return NewJob(
        kind,
        payload,
        queue=names.check_queue(options["queue"]) if "queue" in options else None,
        priority=priority_of(options["priority"]) if "priority" in options else None,
        max_attempts=_max_attempts(options),
        timeout=_timeout(options["timeout"]) if "timeout" in options else None,
        run_at=instant(options["run_at"], "run_at") if "run_at" in options else None,
        delay=micros(options["delay"], "delay") if "delay" in options else 0,
        idempotency_key=None if key is None else names.check_key(key),
        tags=_tags(options["tags"]) if options.get("tags") else None,
    )


def on_existing(options: Options) -> OnExisting:
    """What to do with a known idempotency key."""
    choice = options.get("on_existing", "return")
    if choice not in ("return", "retry", "raise"):
        raise InvalidOption(f"on_existing is 'return', 'retry' or 'raise', not {choice!r}")
    return choice


def timeout_of(value: float | timedelta | None, what: str = "timeout") -> int | None:
    """Microseconds; None is no limit. Zero would end every attempt at once, so it is refused."""
    if value is None:
        return None
    limit = micros(value, what)
    if limit == 0:
        raise InvalidOption(f"{what} must be more than 0; None is no limit")
    return limit


def _timeout(value: float | timedelta | None) -> int:
    limit = timeout_of(value)
    return NO_LIMIT if limit is None else limit


def _max_attempts(options: Options) -> int | None:
    if "max_retries" in options:
        retries = _whole(options["max_retries"], "max_retries", 0)
        if options.get("max_attempts", retries + 1) != retries + 1:
            raise InvalidOption("max_attempts is max_retries + 1; give one of them")
        return retries + 1
    if "max_attempts" in options:
        return _whole(options["max_attempts"], "max_attempts", 1)
    return None


def _whole(value: object, what: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_ATTEMPTS:
        raise InvalidOption(f"{what} is a whole number from {least} to {MOST_ATTEMPTS:,}")
    return value


def _tags(tags: Sequence[str]) -> str:
    if isinstance(tags, str) or len(tags) > 50:
        raise InvalidOption("tags are a list of at most 50 words")
    return msgspec.json.encode([names.check_tag(tag) for tag in tags]).decode()
