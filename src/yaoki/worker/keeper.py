"""Keeping what is in hand: leases, progress, and telling handlers that they were cancelled."""

import logging
import os
import socket
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

import msgspec

from yaoki.core.errors import StoreBusy, StoreUnavailable, YaokiError
from yaoki.core.outcomes import Released, settle
from yaoki.jobtypes import JobSet
from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.ops.logs import Lines, WriteLines
from yaoki.store.ops.settling import Held, Settle, Settlement
from yaoki.store.ops.upkeep import Cancelling, KeepAlive, Kept, MarkStarted, WorkerRow
from yaoki.store.patience import of_lease
from yaoki.worker.run import STOPPED, Run
from yaoki.worker.settings import WorkerSettings
from yaoki.worker.slots import TICK, Slots
from yaoki.worker.tasks import Tasks

log = logging.getLogger("yaoki.worker")

IDLE_TICK = 1.0

CANCEL_EVERY = 0.5
"""Seconds after which a running job that was cancelled is told at the latest."""

BEGUN_AFTER = 0.05
"""Seconds that a job claimed ahead runs before the database is told that it has begun."""


class Keeper(Loop):
    """Renews every lease in hand at a third of its length, whatever the handlers do."""

    def __init__(
        self,
        store: Store,
        types: JobSet,
        settings: WorkerSettings,
        slots: Slots,
        tasks: Tasks,
    ) -> None:
        super().__init__("keeper", of_lease(settings.lease_for))
        self._store, self._settings, self._slots, self._tasks = store, settings, slots, tasks
        self.tell_health: Callable[[], str | None] = lambda: None
        """What is written of the worker's health with each beat."""
        self._state = "working"
        self._types = msgspec.json.encode([kind.name for kind in types]).decode()
        self._keep_at = self._cancel_at = 0.0
        self._strays: set[Held] = set()

    def announce(self) -> None:
        """Before the first claim: a worker that claims is on the list."""
        self._keep()

    def beat_soon(self) -> None:
        """Something is to be told that does not wait for the next beat."""
        self._keep_at = 0.0
        self.wake()

    def drain(self) -> None:
        """Say that this worker takes no more; leases are renewed until the end."""
        self._state = "draining"
        self._keep_at = 0.0
        self.wake()

    def once(self) -> float:
        now = time.monotonic()
        running = self._slots.running
        self.proven = now >= self._keep_at
        if now >= self._keep_at:
            self._keep()
        if running:
            self._write_progress(running)
            self._mark_begun(running, now)
            if now >= self._cancel_at:
                self._cancel_at = now + CANCEL_EVERY
                self._tell_cancelled()
            self._write_lines(running)
        now = time.monotonic()
        self._slots.kept_until = now + self._pause(now)
        return self._slots.kept_until - now

    def _pause(self, now: float) -> float:
        running = self._slots.running
        tick = TICK if running else IDLE_TICK
        return max(min(self._keep_at, now + tick) - now, 0.001)

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
        self._slots.were_kept(before)
        for lost in kept.lost & in_hand.keys():
            if not in_hand[lost].context.completing:
                self._lose(in_hand[lost])
        self._release_strays(kept, held)

    def _lose(self, run: Run) -> None:
        run.context.stop("lease lost")
        if self._slots.forget(run):
            log.warning(
                "%s: its lease was lost; its handler is told, and not listened to",
                run,
                extra=run.facts("lease lost"),
            )
            run.break_off()
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
            self.tell_health(),
        )

    # Telling the database, and the handlers

    def _write_progress(self, running: list[Run]) -> None:
        for run in running:
            if run.context.progress_is_due:
                try:
                    run.context.write_progress()
                except YaokiError as error:
                    log.debug("%s: progress not written: %s", run, error)

    def _write_lines(self, running: list[Run]) -> None:
        due = [run for run in running if run.context.lines_are_due]
        said = [(run, lines) for run in due if (lines := run.context.lines_to_write()) is not None]
        if not said:
            return
        try:
            self._store.run(WriteLines([(run.held, lines) for run, lines in said]))
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception:
            # Lines that cannot be stored must not keep those of others from being so.
            for run, lines in said:
                self._write_lines_of(run, lines)
        for run, lines in said:
            run.context.lines_written(lines)

    def _write_lines_of(self, run: Run, lines: Lines) -> None:
        try:
            self._store.run(WriteLines([(run.held, lines)]))
        except (StoreBusy, StoreUnavailable):
            raise
        except Exception as error:
            log.warning("%s: %d log lines are not kept: %s", run, len(lines.each), error)

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
        in_hand = self._slots.in_hand
        cancelling = self._store.run(Cancelling([run.held for run in in_hand]))
        wanted = set(cancelling)
        for run in in_hand:
            if run.held in wanted and run.context.stopping not in STOPPED:
                log.info("%s is being cancelled", run, extra=run.facts("cancelling"))
                run.context.stop("cancelled")
                self._tasks.cancel(run)


def _version() -> str:
    try:
        return version("yaoki")
    except PackageNotFoundError:
        return "unknown"
