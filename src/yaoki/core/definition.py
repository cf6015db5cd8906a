"""Everything said about a job type, as workers publish it for other processes to read."""

import msgspec

from yaoki.core.backoff import exponential
from yaoki.core.said import (
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_PRIORITY,
    DEFAULT_QUEUE,
    DEFAULT_TIMEOUT,
    Unsaid,
)


class Definition(msgspec.Struct, frozen=True, omit_defaults=False):
    """A job type without its code. Durations are microseconds; None is "no limit" or "for ever"."""

    type: str
    title: str | None = None
    description: str | None = None
    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    backoff: dict[str, object] | None = None
    timeout: int | None = DEFAULT_TIMEOUT
    secret: tuple[str, ...] = ()
    idempotency_key: str | None = None
    retry_on: tuple[str, ...] = ()
    give_up_on: tuple[str, ...] = ()
    keep: int | None = None
    keep_failed: int | None = None
    arguments: tuple[str, ...] = ()
    isolation: str | None = None
    memory_limit: int | None = None
    """Megabytes."""

    def unsaid(self) -> Unsaid:
        """What a job of this type gets where its caller said nothing."""
        own = self.backoff not in (None, exponential().to_dict())
        backoff = msgspec.json.encode(self.backoff).decode() if own else None
        return Unsaid(self.queue, self.priority, self.max_attempts, self.timeout, backoff)

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()


def read_definition(kind: str, text: str) -> Definition:
    """A published definition of a type; the defaults where this version cannot read it."""
    try:
        return msgspec.json.decode(text, type=Definition)
    except (msgspec.DecodeError, UnicodeError):
        return Definition(kind)
