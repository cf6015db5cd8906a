"""Minding the worker's own parts: what they say of themselves, and what is done when one dies."""

import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from yaoki.core.health import LoopHealth, WorkerHealth, stuck_after
from yaoki.loop import Loop
from yaoki.worker.slots import Slots

log = logging.getLogger("yaoki.health")

EVERY = 1.0

OVERSLEPT = 2.0
"""Seconds that a look may come late. If it does, this process did not run, nor did its loops."""

DEATHS = 3
"""So many deaths of one loop within DEATHS_WITHIN seconds end the worker."""

DEATHS_WITHIN = 60.0


class Notes(NamedTuple):
    """What else there is to say of a worker, in words.

    `fatal` is why it can do its work no more; `troubles` may pass.
    """

    troubles: tuple[str, ...] = ()
    fatal: str | None = None
    deaf: str | None = None


class Watch(Loop):
    """Looks at the other loops once a second; never at the database, so nothing holds it up.

    A loop whose thread has died is begun anew. If that does not help, the worker ends and says so,
    rather than look healthy and do nothing. Every change for the worse or the better is one line
    in the log, and is told to other processes with the next beat, which is at once.
    """

    def __init__(
        self,
        worker_id: str,
        loops: Sequence[Loop],
        slots: Slots,
        notes: Callable[[], Notes],
        beat: Callable[[], None],
        give_up: Callable[[str], None],
    ) -> None:
        super().__init__("watch")
        self._worker_id, self._loops, self._slots = worker_id, loops, slots
        self._notes, self._beat, self._give_up = notes, beat, give_up
        self._ended = False
        self._deaths: dict[str, list[float]] = {}
        self._looked_at = time.monotonic()
        self._told = _signs(WorkerHealth())
        self._ok = self._could_claim = True
        """As it was when something was last logged."""

    def once(self) -> float:
        now = time.monotonic()
        overslept = now - self._looked_at > EVERY + OVERSLEPT
        self._looked_at = now
        if not overslept:
            self._mind_deaths(now)
            fatal = self._notes().fatal
            if fatal is not None:
                self._end(fatal)
            self._say(self.health())
        return EVERY

    def health(self) -> WorkerHealth:
        """How the parts are, now."""
        now = time.monotonic()
        slots = self._slots
        running, notes = len(slots.running), self._notes()
        return WorkerHealth(
            loops=tuple(_seen(loop, now) for loop in self._loops),
            looked_ago=self._looked_ago(now),
            concurrency=slots.concurrency,
            running=running,
            claimed_ahead=slots.waiting,
            leaked=slots.leaked,
            unrecorded=len(slots.unrecorded()),
            notes=notes.troubles if notes.fatal is None else (notes.fatal, *notes.troubles),
            deaf=notes.deaf,
        )

    def for_beat(self) -> str:
        """The health as JSON, which is about to be told to the others."""
        health = self.health()
        self._told = _signs(health)
        return health.to_json()

    def _looked_ago(self, now: float) -> float | None:
        looked = [loop.worked_at for loop in self._loops if loop.name == "exchange"]
        return None if not looked or looked[0] is None else round(now - looked[0], 3)

    def _mind_deaths(self, now: float) -> None:
        for loop in self._loops:
            if not loop.died:
                continue
            deaths = [at for at in self._deaths.get(loop.name, ()) if now - at < DEATHS_WITHIN]
            self._deaths[loop.name] = [*deaths, now]
            if len(deaths) + 1 >= DEATHS:
                self._end(f"its loop {loop.name} has died {DEATHS} times")
                return
            log.critical(
                "worker %s: the thread of its loop %s has died, and is begun anew",
                self._worker_id,
                loop.name,
                extra={"event": "loop died", "worker": self._worker_id, "loop": loop.name},
            )
            try:
                loop.revive()
            except RuntimeError as error:
                log.error("worker %s: no thread could be begun: %s", self._worker_id, error)

    def _end(self, reason: str) -> None:
        if self._ended:
            return
        self._ended = True
        log.critical(
            "worker %s ends, for it can work no more: %s",
            self._worker_id,
            reason,
            extra={"event": "broken", "worker": self._worker_id},
        )
        self._give_up(reason)

    def _say(self, health: WorkerHealth) -> None:
        if _signs(health) != self._told:
            self._beat()
        extra: dict[str, object] = {
            "worker": self._worker_id,
            "checks": [check.to_dict() for check in health.checks],
            "looked_ago": health.looked_ago,
        }
        # One line for an outage, in which one loop after the other fails; two at the most.
        worse = not health.ok and (self._ok or (self._could_claim and not health.can_claim))
        if worse:
            extra["event"] = "degraded"
            reasons = "; ".join(check.message for check in health.problems)
            log.error("worker %s is not well: %s", self._worker_id, reasons, extra=extra)
        elif health.ok and not self._ok:
            extra["event"] = "recovered"
            log.info("worker %s is well again", self._worker_id, extra=extra)
        self._ok = health.ok
        # Not again for each success of a loop that fails now and then.
        self._could_claim = health.can_claim if health.ok or worse else self._could_claim


def _signs(health: WorkerHealth) -> tuple[bool, tuple[object, ...]]:
    """Whether it is well, and what is wrong, without the numbers that change all the time."""
    loops = [
        (loop.name, loop.alive, loop.stuck_for is not None, loop.failures > 0)
        for loop in health.loops
        if not loop.alive or loop.failures or loop.stuck_for is not None
    ]
    return health.ok, (*loops, *health.notes, health.leaked, health.deaf is None)


def _seen(loop: Loop, now: float) -> LoopHealth:
    return LoopHealth(
        loop.name,
        alive=not loop.died,
        failures=loop.failures,
        error=loop.error if loop.failures else "",
        worked_ago=None if loop.worked_at is None else round(now - loop.worked_at, 3),
        stuck_for=_stuck_for(loop, now),
    )


def _stuck_for(loop: Loop, now: float) -> float | None:
    """Seconds by which the round under way, or the next, is too late."""
    since = loop.busy_since
    if since is None:
        since = loop.due_at
    late = now - since
    return round(late, 3) if late > stuck_after(loop.name) else None
