"""Who works here, and what they say of their job types."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from yaoki.core.definition import Definition, read_definition
from yaoki.core.health import WorkerHealth, read_worker_health
from yaoki.core.times import as_datetime
from yaoki.store.op import Op, Statement, Steps, ask, tell

FORGOTTEN_AFTER = 24 * 3_600 * 1_000_000
"""Microseconds after which a silent worker is no longer listed."""


class Worker(msgspec.Struct, frozen=True):
    """A worker as it announced itself.

    `silent` says that it has not been heard of for longer than its lease; what it held has been,
    or is about to be, taken back.
    """

    worker_id: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...] | None
    types: tuple[str, ...]
    concurrency: int
    state: str
    started_at: datetime
    seen_at: datetime
    silent: bool
    health: WorkerHealth | None = None
    """What it said of its own parts when it was last heard of."""

    @property
    def is_well(self) -> bool:
        """It is heard of, and says of itself that all its parts work."""
        return not self.silent and (self.health is None or self.health.ok)

    def to_dict(self) -> dict[str, object]:
        """The worker as JSON shows it."""
        built: dict[str, object] = msgspec.to_builtins(self)
        return built | {"health": None if self.health is None else self.health.to_dict()}


@dataclass(frozen=True, slots=True)
class Workers(Op[list[Worker]]):
    """Every worker that announced itself and did not take leave, the oldest first."""

    writes = False
    atomic = False

    def steps(self) -> Steps[list[Worker]]:
        return [_worker(*row) for row in (yield ask("workers")).rows]


@dataclass(frozen=True, slots=True)
class Leave(Op[None]):
    """Strike a worker off the list, and those that fell silent long ago."""

    worker_id: str

    def steps(self) -> Steps[None]:
        yield tell("leave", worker_id=self.worker_id)
        yield tell("forget_workers", silent_for=FORGOTTEN_AFTER)


@dataclass(frozen=True, slots=True)
class Publish(Op[None]):
    """Write down what this program says of its job types.

    Jobs that were enqueued by name before anybody had said what their type is get it now for
    all that their callers left open.
    """

    definitions: Sequence[Definition]
    published_by: str

    @property
    def wakes(self) -> bool:
        return True

    def steps(self) -> Steps[None]:
        for definition in sorted(self.definitions, key=lambda each: each.type):
            known = (yield ask("definition", type=definition.type)).rows
            said = definition.to_json()
            if known and known[0][0] == said:
                # Nothing is written, so nobody who starts waits for one who does so and is frozen.
                continue
            yield tell(
                "publish", type=definition.type, definition=said, published_by=self.published_by
            )
            if not known:
                yield _adopt(definition)


@dataclass(frozen=True, slots=True)
class Adopt(Op[None]):
    """Take in jobs that were enqueued by name at the very moment of the first Publish.

    Where transactions run side by side, one of them may have looked for a definition before it was
    published, and committed its jobs after these were looked for.
    """

    atomic = False
    definitions: Sequence[Definition]

    def steps(self) -> Steps[None]:
        for definition in self.definitions:
            yield _adopt(definition)


def _adopt(definition: Definition) -> Statement:
    unsaid = definition.unsaid()
    return tell(
        "adopt",
        type=definition.type,
        queue=unsaid.queue,
        priority=unsaid.priority,
        max_attempts=unsaid.max_attempts,
        timeout=unsaid.timeout,
    )


@dataclass(frozen=True, slots=True)
class Definitions(Op[dict[str, Definition]]):
    """What workers have published, by job type."""

    writes = False
    atomic = False

    def steps(self) -> Steps[dict[str, Definition]]:
        rows = (yield ask("definitions")).rows
        return {kind: read_definition(kind, text) for kind, text, _, _ in rows}


def _worker(
    worker_id: str,
    host: str,
    pid: int,
    version: str,
    queues: str | None,
    types: str,
    concurrency: int,
    state: str,
    lease_for: int,
    started_at: int,
    seen_at: int,
    health: str | None,
    now: int,
) -> Worker:
    return Worker(
        worker_id,
        host,
        pid,
        version,
        None if queues is None else msgspec.json.decode(queues, type=tuple[str, ...]),
        msgspec.json.decode(types, type=tuple[str, ...]),
        concurrency,
        state,
        as_datetime(started_at),
        as_datetime(seen_at),
        silent=seen_at + lease_for < now,
        health=read_worker_health(health),
    )
