"""Which options of a job its caller chose, and the policy that decides the others.

What a caller said is never overwritten; what nobody said follows the definition of the worker
that claims the job, and stands on the row from then on.
"""

from dataclasses import dataclass
from typing import NamedTuple

DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = 0
DEFAULT_MAX_ATTEMPTS = 4
DEFAULT_TIMEOUT = 3_600_000_000
DEFAULT_LEASE = 60_000_000


# The bits of the column `said`; the SQL names them by number.
SAID_QUEUE = 1
SAID_PRIORITY = 2
SAID_MAX_ATTEMPTS = 4
SAID_TIMEOUT = 8
SAID_BY_NOBODY = 16
"""Enqueued when no definition of its type was known; adopted by the first that is."""


@dataclass(frozen=True, slots=True)
class Unsaid:
    """What a job gets where its caller said nothing: its type's definition, or the defaults.

    `timeout` is microseconds, None for no limit; `backoff` is the JSON that a row keeps, None for
    the default back-off.
    """

    queue: str = DEFAULT_QUEUE
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    timeout: int | None = DEFAULT_TIMEOUT
    backoff: str | None = None


class NewJob(NamedTuple):
    """A job to be made; None is what the caller left open.

    `delay` and `run_at` are microseconds; `timeout` is too, and -1 says "no limit". `trace` is a
    JSON object: the headers of the trace that its caller is in.
    """

    type: str
    payload: str
    queue: str | None = None
    priority: int | None = None
    max_attempts: int | None = None
    timeout: int | None = None
    run_at: int | None = None
    delay: int = 0
    idempotency_key: str | None = None
    tags: str | None = None
    trace: str | None = None


NO_LIMIT = -1
