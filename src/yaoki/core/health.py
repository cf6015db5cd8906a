"""What it means to be well: checks, what a worker says of itself, and the rules of both."""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from yaoki.core.times import in_words

Level = Literal["ok", "warning", "problem"]

STUCK_AFTER = {"exchange": 5.0}
"""Seconds that a round of a loop may take, or come late, before the loop counts as stuck."""

STUCK_AFTER_AT_MOST = 30.0
"""The same of all other loops: what they do may take a while."""


class Check(msgspec.Struct, frozen=True):
    """Something that was looked at: how it is, in words, and what to do about it.

    `code` is for programs, and stays the same. A `warning` may become a problem; with a `problem`
    jobs wait, or are in danger.
    """

    code: str
    level: Level
    message: str
    advice: str = ""

    def to_dict(self) -> dict[str, object]:
        """The check as JSON shows it."""
        built: dict[str, object] = msgspec.to_builtins(self)
        return built


class LoopHealth(msgspec.Struct, frozen=True):
    """One of a worker's loops.

    `failures` in a row, 0 while all is well; `error` is what the last one said. `worked_ago` is
    seconds since a round went well, None before the first. `stuck_for` is seconds that the round
    under way lasts too long, or the next one is late; None while it is not.
    """

    name: str
    alive: bool = True
    failures: int = 0
    error: str = ""
    worked_ago: float | None = None
    stuck_for: float | None = None


class WorkerHealth(msgspec.Struct, frozen=True):
    """What a worker knows of its own parts.

    `looked_ago` is seconds since it last looked for jobs, or claimed, with success; None before
    the first time. A worker whose slots are all taken does not look. `claimed_ahead` jobs wait for
    a slot; `leaked` handlers outlived their time limit and still run; `unrecorded` outcomes are
    not in the database yet.
    """

    loops: tuple[LoopHealth, ...] = ()
    looked_ago: float | None = None
    concurrency: int = 0
    running: int = 0
    claimed_ahead: int = 0
    leaked: int = 0
    unrecorded: int = 0
    notes: tuple[str, ...] = ()
    """Other trouble, in words."""
    deaf: str | None = None
    """Why it is not woken by other processes, though it should be: then it looks once a second."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """What is wrong with it; nothing when all is well."""
        return (
            *(check for loop in self.loops if (check := _of_loop(loop)) is not None),
            *(Check("worker-trouble", "problem", note) for note in self.notes),
            *self._warnings(),
        )

    @property
    def problems(self) -> tuple[Check, ...]:
        return of_level(self.checks, "problem")

    @property
    def warnings(self) -> tuple[Check, ...]:
        return of_level(self.checks, "warning")

    @property
    def ok(self) -> bool:
        """No problem; there may be warnings."""
        return not self.problems

    @property
    def can_claim(self) -> bool:
        """Does the loop that claims work?"""
        return not any(check.code == "cannot-claim" for check in self.checks)

    def to_dict(self) -> dict[str, object]:
        """The same as JSON shows it."""
        built: dict[str, object] = msgspec.to_builtins(self)
        checks = [check.to_dict() for check in self.checks]
        return {"ok": self.ok, "can_claim": self.can_claim, "checks": checks} | built

    def to_json(self) -> str:
        """For the row of the worker in the database."""
        return msgspec.json.encode(self).decode()

    def _warnings(self) -> Iterable[Check]:
        if self.deaf is not None:
            yield Check(
                "wake-ups",
                "warning",
                f"it cannot listen for notifications, and looks once a second: {self.deaf}",
            )
        if self.leaked:
            one = self.leaked == 1
            yield Check(
                "leaked-handlers",
                "warning",
                f"{self.leaked} handler{'' if one else 's'} ran past the time limit and still "
                f"run{'s' if one else ''}",
                "restart the worker to be rid of them, and let them look at ctx.stopping",
            )


def read_worker_health(text: str | None) -> WorkerHealth | None:
    """What another worker wrote, which may be newer or older than this program; None: nothing."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=WorkerHealth)
    except (msgspec.DecodeError, ValueError):
        return None


def of_level(checks: Sequence[Check], level: Level) -> tuple[Check, ...]:
    """Those of one level."""
    return tuple(check for check in checks if check.level == level)


def stuck_after(loop: str) -> float:
    """Seconds that a round of this loop may take, or come late."""
    return STUCK_AFTER.get(loop, STUCK_AFTER_AT_MOST)


def _of_loop(loop: LoopHealth) -> Check | None:
    if not loop.alive:
        what = "has ended"
    elif loop.stuck_for is not None:
        what = f"has not come on for {in_words(round(loop.stuck_for, 1))}"
    elif loop.failures:
        times = "once" if loop.failures == 1 else f"{loop.failures} times in a row"
        what = f"has failed {times}: {loop.error}"
    else:
        return None
    if loop.name == "exchange":
        return Check("cannot-claim", "problem", f"it cannot claim jobs: its loop exchange {what}")
    return Check("worker-trouble", "problem", f"its loop {loop.name} {what}")
