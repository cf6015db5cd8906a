"""Ending what has run for too long, whatever the database does meanwhile."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from yaoki.core.outcomes import Released, settle
from yaoki.loop import Loop
from yaoki.worker.run import STOPPED, Run
from yaoki.worker.slots import LINE_PATIENCE, TICK, Slots
from yaoki.worker.tasks import Tasks

log = logging.getLogger("yaoki.worker")

IDLE_TICK = 1.0

SWALLOW_PATIENCE = 1.0
"""Seconds that a handler which is stopped at its limit has to end before its slot is given on."""

KILL_PATIENCE = 10.0
"""The same after its process was killed, which ends it for sure, but not before its turn comes."""

CANCEL_PATIENCE = 5.0
"""Seconds that an isolated handler, once it is told to stop, has to end before it is killed."""

UNOWNED = 1.5
"""Lease lengths without a renewal after which others may have our jobs (worker/rescuer.py)."""

SILENCE = 90.0
"""Seconds that a database may be away, however short the leases, before handlers are told to stop.

In most outages nobody can take a job from another, and what runs is recorded afterwards.
"""

AGAIN = 3.0
"""Seconds after which an async handler that has swallowed its cancellation is cancelled again."""


class Limits(Loop):
    """Enforces time limits, and sees to it that those who were told to stop do so.

    It never asks the database, so a server that hangs holds up nothing here.
    """

    def __init__(
        self, slots: Slots, tasks: Tasks, lease_for: float, line_is_stale: Callable[[], None]
    ) -> None:
        super().__init__("limits")
        self._slots, self._tasks, self._lease_for = slots, tasks, lease_for
        self._line_is_stale = line_is_stale
        self._told: dict[Run, _Told] = {}
        self._rest = IDLE_TICK
        self._looked_at = self._awake_since = time.monotonic()

    def once(self) -> float:
        now = time.monotonic()
        self._mind_leases(now)
        running, leaking = self._slots.running, self._slots.leaking
        problem: Exception | None = None
        for run in [*running, *leaking]:
            try:
                self._mind(run, now)
            except Exception as error:
                # The others have limits, too.
                problem = error
        self._told = {run: self._told[run] for run in (*running, *leaking) if run in self._told}
        self._tasks.look()
        self._give_back_stale_line(now)
        minded, now = now, time.monotonic()
        self._rest = self._pause(minded, now)
        self._slots.watched_until = now + self._rest
        if problem is not None:
            raise problem
        return self._rest

    def _pause(self, minded: float, now: float) -> float:
        running = self._slots.running
        busy = running or self._slots.waiting or self._slots.leaked
        wakes = [now + (TICK if busy else IDLE_TICK)]
        wakes += [end for run in running if (end := run.deadline) is not None and end > minded]
        return max(min(wakes) - now, 0.001)

    def _mind_leases(self, now: float) -> None:
        """What could not be renewed for long may be somebody else's by now."""
        if now - self._looked_at > 3 * self._rest + self._lease_for / 10:
            # The process was suspended. The keeper was, too, and gets the time to ask.
            self._awake_since = now
        self._looked_at = now
        unkept = min(now - self._slots.kept_at, now - self._awake_since + self._lease_for / 2)
        if unkept < self._lease_for:
            return
        if not self._slots.unkept:
            self._slots.unkept = True
            log.error("leases could not be renewed for %.0f s; nothing more is claimed", unkept)
            self._give_back_line("handed back %d jobs that were claimed ahead")
        patience = max(UNOWNED * self._lease_for, SILENCE)
        for run in self._slots.running if unkept >= patience else ():
            if now - run.claimed >= patience and run.context.stopping not in STOPPED:
                log.error(
                    "%s: its lease could not be renewed; its handler is told to stop",
                    run,
                    extra=run.facts("lease lost"),
                )
                run.context.stop("lease lost")
                self._tasks.cancel(run)

    def _mind(self, run: Run, now: float) -> None:
        deadline = run.deadline
        if deadline is not None and run.kind.isolated and run.kill is None:
            # The limit is one of its process, which it does not have yet, or not any more.
            deadline += SWALLOW_PATIENCE
        overran = not run.ended and deadline is not None and now >= deadline
        if overran and run.kill is None and not run.kind.on_loop:
            self._give_on(run)
        elif overran or run.context.stopping in STOPPED:
            self._see_it_end(run, now, overran)

    def _see_it_end(self, run: Run, now: float, overran: bool) -> None:
        told = self._told.setdefault(run, _Told(now, again_at=now + AGAIN))
        if overran and told.overran_at is None:
            told.overran_at = told.again_at = now
            run.context.stop("timeout")
        elif told.overran_at is not None and now - told.overran_at >= _patience(run):
            self._give_on(run)
        if run.kill is not None and not told.killed:
            if overran or now - told.since >= CANCEL_PATIENCE:
                told.killed = True
                run.kill(run.context.stopping or "timeout")
        elif run.kind.on_loop and now >= told.again_at:
            told.again_at = now + AGAIN
            self._tasks.cancel(run)

    def _give_on(self, run: Run) -> None:
        """Let others have the slot of a handler that has run past its limit, and goes on."""
        # Told afterwards: a handler that ends at once when it is told must not be the first.
        change = run.timed_out(logged=False)
        if self._slots.abandon(run, change):
            # Only now is it so: its handler may have been the first.
            run.log_failure(change)
            run.context.stop("timeout")
            run.break_off()
            log.error(
                "%s ran past its time limit and cannot be stopped; its slot was given on "
                "(%d handlers leaked)",
                run,
                self._slots.leaked,
                extra=run.facts("given on"),
            )
            # Of a plain handler an async middleware may be what does not end.
            self._tasks.cancel(run)

    def _give_back_stale_line(self, now: float) -> None:
        oldest = self._slots.oldest_waiting()
        if oldest is not None and now - oldest >= LINE_PATIENCE:
            self._give_back_line(
                "handed back %d jobs that were claimed ahead: the ones before take long"
            )

    def _give_back_line(self, why: str) -> None:
        self._line_is_stale()
        count = self._slots.give_back_line(_NOT_BEGUN)
        if count:
            log.info(why, count)


def _patience(run: Run) -> float:
    return KILL_PATIENCE if run.kind.isolated else SWALLOW_PATIENCE


@dataclass(slots=True)
class _Told:
    """When (monotonic) a handler was seen to be told to stop, and what was done since."""

    since: float
    again_at: float
    overran_at: float | None = None
    killed: bool = False


_NOT_BEGUN = settle(Released("claimed ahead and not begun", started=False))
