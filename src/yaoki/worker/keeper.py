"""Keeping what is in hand: leases, time limits, progress, and telling handlers to stop."""

import logging
import os
import socket
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import msgspec

from yaoki.core.errors import YaokiError
from yaoki.core.outcomes import Change, Released, settle
from yaoki.jobtypes import JobSet
from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.ops.settling import Held, Settle, Settlement
from yaoki.store.ops.upkeep import Cancelling, KeepAlive, Kept, MarkStarted, WorkerRow
from yaoki.worker.run import Run
from yaoki.worker.settings import WorkerSettings
from yaoki.worker.slots import TICK, Slots
from yaoki.worker.tasks import Tasks

log = logging.getLogger("yaoki.worker")

IDLE_TICK = 1.0

CANCEL_EVERY = 0.5
"""Seconds after which a running job that was cancelled is told at the latest."""

BEGUN_AFTER = 0.05
"""Seconds that a job claimed ahead runs before the database is told that it has begun."""

LINE_PATIENCE = 1.0
"""Seconds that a job claimed ahead waits in line before it is given to others."""

SWALLOW_PATIENCE = 1.0
"""Seconds that a cancelled async handler has to end before its slot is given on."""


class Keeper(Loop):
    """Renews every lease in hand at a third of its length, whatever the handlers do."""

    def __init__(
        self,
        store: Store,
        types: JobSet,
        settings: WorkerSettings,
        slots: Slots,
        tasks: Tasks,
        line_is_stale: Callable[[], None],
    ) -> None:
        super().__init__("keeper")
        self._store, self._settings, self._slots, self._tasks = store, settings, slots, tasks
        self._line_is_stale = line_is_stale
        self._state = "working"
        self._types = msgspec.json.encode([kind.name for kind in types]).decode()
        self._keep_at = self._cancel_at = 0.0
        self._strays: set[Held] = set()
        self._overrun: dict[Held, float] = {}

    def announce(self) -> None:
        """Before the first claim: a worker that claims is on the list."""
        self._keep()

    def drain(self) -> None:
        """Say that this worker takes no more; leases are renewed until the end."""
        self._state = "draining"
        self._keep_at = 0.0
        self.wake()

    def once(self) -> float:
        now = time.monotonic()
        running = self._slots.running
        self.proven = now >= self._keep_at
        self._enforce_limits(running, now)
        self._tasks.look()
        if now >= self._keep_at:
            self._keep()
        if running:
            self._write_progress(running)
            self._mark_begun(running, now)
            if now >= self._cancel_at:
                self._cancel_at = now + CANCEL_EVERY
                self._tell_cancelled()
        self._give_back_stale_line(now)
        now = time.monotonic()
        self._slots.watched_until = now + self._pause(now)
        return self._slots.watched_until - now

    def _pause(self, now: float) -> float:
        running = self._slots.running
        wakes = [self._keep_at, now + (TICK if running or self._slots.waiting else IDLE_TICK)]
        wakes += [run.deadline for run in running if run.deadline is not None]
        return max(min(wakes) - now, 0.001)

    # Leases

    def _keep(self) -> None:
        in_hand = {run.held: run for run in self._slots.in_hand if not run.context.completing}
        held = [*in_hand, *self._slots.unrecorded()]
        before = time.monotonic()
        try:
            kept = self._store.run(KeepAlive(self._row(), held))
        except Exception:
            # Well before the lease ends there is time for more than one further try.
            self._keep_at = before + min(1.0, self._settings.lease_for / 10)
            raise
        self._keep_at = before + self._settings.lease_for / 3
        for lost in kept.lost & in_hand.keys():
            if not in_hand[lost].context.completing:
                self._lose(in_hand[lost])
        self._release_strays(kept, held)

    def _lose(self, run: Run) -> None:
        run.context.stop("lease lost")
        if self._slots.forget(run):
            log.warning("%s: its lease was lost; its handler is told, and not listened to", run)
            run.context.break_off()
            self._tasks.cancel(run)

    def _release_strays(self, kept: Kept, held: list[Held]) -> None:
        """What the database says we hold, twice, and we do not: a claim whose answer was lost."""
        ours = {*held, *self._slots.unrecorded(), *(run.held for run in self._slots.in_hand)}
        strays = {one for one in kept.held if one not in ours}
        twice = list(strays & self._strays)
        self._strays = strays
        if twice:
            log.warning("handing back %d jobs whose claim was never answered", len(twice))
            change = settle(Released("the answer to its claim was lost", started=False))
            self._store.run(Settle([Settlement(one, change) for one in twice]))

    def _row(self) -> WorkerRow:
        settings = self._settings
        queues = settings.queues
        return WorkerRow(
            settings.worker_id,
            socket.gethostname(),
            os.getpid(),
            _version(),
            None if queues is None else msgspec.json.encode(queues).decode(),
            self._types,
            settings.concurrency,
            self._state,
            round(settings.lease_for * 1_000_000),
        )

    # Time limits

    def _enforce_limits(self, running: list[Run], now: float) -> None:
        for run in running:
            if run.deadline is None or now < run.deadline:
                continue
            if not run.kind.is_async:
                self._overran(run)
            elif run.held not in self._overrun:
                self._overrun[run.held] = now
                run.context.stop("timeout")
                self._tasks.cancel(run)
            elif now - self._overrun[run.held] >= SWALLOW_PATIENCE:
                self._overran(run)
        self._overrun = {
            run.held: self._overrun[run.held] for run in running if run.held in self._overrun
        }

    def _overran(self, run: Run) -> None:
        # Told afterwards: a handler that ends at once when it is told must not be the first.
        if self._slots.abandon(run, run.timed_out()):
            run.context.stop("timeout")
            run.context.break_off()
            log.error(
                "%s ran past its time limit and cannot be stopped; its slot was given on "
                "(%d handlers leaked)",
                run,
                self._slots.leaked,
            )

    # Telling the database, and the handlers

    def _write_progress(self, running: list[Run]) -> None:
        for run in running:
            if run.context.progress_is_due:
                try:
                    run.context.write_progress()
                except YaokiError as error:
                    log.debug("%s: progress not written: %s", run, error)

    def _mark_begun(self, running: list[Run], now: float) -> None:
        begun = [
            run
            for run in running
            if not run.marked and run.started is not None and now - run.started >= BEGUN_AFTER
        ]
        if begun:
            ages = [(run.held, round((now - (run.started or now)) * 1_000_000)) for run in begun]
            self._store.run(MarkStarted(ages))
            for run in begun:
                run.marked = True

    def _tell_cancelled(self) -> None:
        cancelling = self._store.run(Cancelling())
        wanted = set(cancelling)
        for run in self._slots.in_hand:
            if run.held in wanted and run.context.stopping != "cancelled":
                log.info("%s is being cancelled", run)
                run.context.stop("cancelled")
                self._tasks.cancel(run)

    def _give_back_stale_line(self, now: float) -> None:
        oldest = self._slots.oldest_waiting()
        if oldest is not None and now - oldest >= LINE_PATIENCE:
            self._line_is_stale()
            count = self._slots.give_back_line(_NOT_BEGUN)
            log.info(
                "handed back %d jobs that were claimed ahead: the ones before take long", count
            )


_NOT_BEGUN: Change = settle(Released("claimed ahead and not begun", started=False))


def _version() -> str:
    try:
        return version("yaoki")
    except PackageNotFoundError:
        return "unknown"
