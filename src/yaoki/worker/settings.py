"""How a worker is to work: checked once, then passed to every part."""

import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from yaoki.core import names
from yaoki.core.errors import InvalidOption
from yaoki.core.times import micros

Duration = float | timedelta

MOST_CONCURRENT = 10_000


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """`queues` None is every queue; `caps` are limits per queue; durations are seconds."""

    worker_id: str
    queues: tuple[str, ...] | None
    caps: Mapping[str, int]
    concurrency: int
    lease_for: float
    grace: float
    until_empty: bool
    max_wait: float | None


def worker_settings(
    *,
    queues: Sequence[str] | Mapping[str, int | None] | None = None,
    concurrency: int = 10,
    lease_for: Duration = 60,
    grace: Duration = 30,
    until_empty: bool = False,
    max_wait: Duration | None = None,
    worker_id: str | None = None,
) -> WorkerSettings:
    """Checked settings; InvalidOption says what is wrong with one."""
    if isinstance(queues, str):
        raise InvalidOption(f"queues is a list: [{queues!r}]")
    caps = {
        names.check_queue(queue): _at_least_one(cap, f"the limit of queue {queue!r}")
        for queue, cap in (queues.items() if isinstance(queues, Mapping) else ())
        if cap is not None
    }
    lease = micros(lease_for, "lease_for") / 1_000_000
    if lease < 1:
        raise InvalidOption("lease_for is at least 1 second")
    return WorkerSettings(
        worker_id=new_worker_id(worker_id),
        queues=None if queues is None else tuple(names.check_queue(queue) for queue in queues),
        caps=caps,
        concurrency=_at_least_one(concurrency, "concurrency"),
        lease_for=lease,
        grace=micros(grace, "grace") / 1_000_000,
        until_empty=until_empty,
        max_wait=None if max_wait is None else micros(max_wait, "max_wait") / 1_000_000,
    )


def new_worker_id(label: str | None = None) -> str:
    """A name for people, with a part that no other worker has, ever: `label:random`.

    Two workers may be given one label (a pod's name, kept over a restart): neither takes what the
    other holds for its own.
    """
    if label is not None:
        return names.check_worker_id(f"{names.check_worker_id(label)}:{secrets.token_hex(4)}")
    host = "".join(c if c.isalnum() or c in "-." else "-" for c in socket.gethostname())[:100]
    return f"{host or 'host'}:{os.getpid()}:{secrets.token_hex(4)}"


def _at_least_one(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_CONCURRENT:
        raise InvalidOption(f"{what} is a whole number from 1 to {MOST_CONCURRENT:,}")
    return value
