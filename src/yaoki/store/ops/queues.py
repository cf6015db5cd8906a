"""Named queues: how deep they are, and holding them back."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import msgspec

from yaoki.core.times import as_datetime
from yaoki.store.op import Op, Steps, ask

Kind = Literal["queue", "type"]


class Queue(msgspec.Struct, frozen=True):
    """A queue: jobs that are due, delayed (or waiting for a retry), running and dead.

    `oldest_due_at` is since when its longest waiting job could have run.
    """

    name: str
    due: int
    delayed: int
    running: int
    failed: int
    oldest_due_at: datetime | None
    paused: bool

    def to_dict(self) -> dict[str, object]:
        """The queue as JSON shows it."""
        built: dict[str, object] = msgspec.to_builtins(self)
        return built


class PausedName(msgspec.Struct, frozen=True):
    """A queue or a type whose jobs nobody may claim, and since when."""

    kind: Kind
    name: str
    paused_at: datetime

    def to_dict(self) -> dict[str, object]:
        """The same as JSON shows it."""
        built: dict[str, object] = msgspec.to_builtins(self)
        return built


@dataclass(frozen=True, slots=True)
class Paused(Op[list[PausedName]]):
    """Every queue and type that is paused."""

    writes = False
    atomic = False

    def steps(self) -> Steps[list[PausedName]]:
        rows = (yield ask("paused")).rows
        return [PausedName(kind, name, as_datetime(since)) for kind, name, since in rows]


@dataclass(frozen=True, slots=True)
class Queues(Op[list[Queue]]):
    """Every queue that has open or dead jobs or is paused, by name."""

    writes = False

    def steps(self) -> Steps[list[Queue]]:
        rows = (yield ask("queues")).rows
        held_back = yield from Paused().steps()
        paused = {one.name for one in held_back if one.kind == "queue"}
        queues = [
            Queue(
                name,
                due,
                delayed,
                running,
                failed,
                None if oldest is None else as_datetime(oldest),
                name in paused,
            )
            for name, due, delayed, running, failed, oldest, _ in rows
        ]
        empty = paused - {queue.name for queue in queues}
        queues += [Queue(name, 0, 0, 0, 0, None, True) for name in empty]
        return sorted(queues, key=lambda queue: queue.name)


@dataclass(frozen=True, slots=True)
class Pause(Op[None]):
    """Let nobody claim jobs of this queue or type until it is resumed; running ones go on."""

    atomic = False
    kind: Kind
    name: str

    def steps(self) -> Steps[None]:
        yield ask("pause", kind=self.kind, name=self.name)


@dataclass(frozen=True, slots=True)
class Resume(Op[None]):
    """Let jobs of this queue or type be claimed again."""

    atomic = False
    kind: Kind
    name: str

    @property
    def wakes(self) -> bool:
        return True

    def steps(self) -> Steps[None]:
        yield ask("resume", kind=self.kind, name=self.name)
