"""The worker: starts its parts, waits, drains, stops."""

import logging
import queue
import threading
import time
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass

from yaoki.core.errors import StoreError, YaokiError
from yaoki.core.outcomes import Released, settle
from yaoki.jobtypes import JobSet
from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.ops.upkeep import Remaining
from yaoki.store.ops.workers import Leave, Publish
from yaoki.worker.by_name import ByName
from yaoki.worker.exchange import Exchanger
from yaoki.worker.keeper import Keeper
from yaoki.worker.record import Outcomes, Recorder
from yaoki.worker.rescuer import Rescuer
from yaoki.worker.run import Run
from yaoki.worker.settings import WorkerSettings
from yaoki.worker.signals import listening
from yaoki.worker.slots import Slots
from yaoki.worker.tasks import Tasks
from yaoki.worker.threads import Threads

log = logging.getLogger("yaoki.worker")

RECORDING_PATIENCE = 10.0
"""Seconds that a worker which stops tries to record what has ended."""

HURRIED_PATIENCE = 0.4
"""The same after a second signal: leases run out by themselves."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended: how many jobs it handed back unfinished, and the signal that hurried it.

    `unrecorded` jobs were finished, but the database could not be told; they run again when their
    leases are over. `exit_code`: 0 all that had begun was finished and recorded; 1 something was
    handed back after the grace period, or is unrecorded; 128 + the number of the second signal.
    """

    handed_back: int = 0
    hurried_by: int | None = None
    unrecorded: int = 0

    @property
    def exit_code(self) -> int:
        if self.hurried_by is not None:
            return 128 + self.hurried_by
        return 1 if self.handed_back or self.unrecorded else 0


class Worker:
    """Runs jobs of these types until it is told to drain. Used once."""

    def __init__(self, store: Store, types: JobSet, settings: WorkerSettings) -> None:
        self.settings = settings
        self._store, self._types = store, types
        # A queue and no Event: its put() may be called by a signal handler at any moment.
        self._changed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._signals: list[int] = []
        self._draining = False
        base = copy_context()
        self._bell = store.bell()
        self.slots = Slots(settings.concurrency, self._news, self._start, self._watch)
        self.threads = Threads(self.slots, base, self._start)
        self.tasks = Tasks(self.slots, base, self._start)
        self.outcomes = Outcomes(store, self.slots)
        self.exchanger = Exchanger(
            store, types, settings, self.slots, self.outcomes, self._bell, self._start
        )
        self.recorder = None if store.one_writer else Recorder(self.outcomes)
        self.keeper = Keeper(
            store, types, settings, self.slots, self.tasks, self.exchanger.expect_slow_jobs
        )
        self.rescuer = Rescuer(store, settings.lease_for)
        self.by_name = ByName(store, types, settings.queues)

    def run(self) -> Ending:
        """Work until told to drain (by a signal, or `drain`); then end in good order."""
        with listening(self._heard):
            try:
                self._begin()
                self._until_drained()
            except BaseException:
                self._draining = True
                self._end()
                raise
            return self._end()

    def drain(self) -> None:
        """Claim nothing more, finish what has begun, then end. From any thread."""
        self._draining = True
        self._changed.put(None)

    def hurry(self, signal_number: int) -> None:
        """Do not wait for what has begun."""
        self._signals.append(signal_number)
        self._changed.put(None)

    def _heard(self, number: int) -> None:
        if self._draining:
            self._signals.append(number)
        self._draining = True
        self._changed.put(None)

    def _begin(self) -> None:
        definitions = [kind.definition for kind in self._types]
        self._store.run(Publish(definitions, self.settings.worker_id))
        self.keeper.announce()
        for part in (self.keeper, self.rescuer, self.by_name, self.recorder, self.exchanger):
            if part is not None:
                part.start()

    def _until_drained(self) -> None:
        log.info("worker %s is ready", self.settings.worker_id)
        while not self._draining:
            self._pause(0.05 if self.settings.until_empty else 1.0)
            if self.settings.until_empty and self._is_empty():
                self._draining = True

    def _end(self) -> Ending:
        """No new claims; what has not begun goes back; what has begun gets the grace period."""
        log.info("worker %s drains", self.settings.worker_id)
        self.exchanger.stop_claiming()
        self.keeper.drain()
        # Twice: a claim may have been under way while the line was given back.
        while self.exchanger.claims_now and not self._signals:
            time.sleep(0.001)
        self.slots.give_back_line(_NOT_BEGUN)
        for run in self.slots.in_hand:
            run.context.stop("shutdown")
        self._wait_for_running(time.monotonic() + self.settings.grace)
        self.exchanger.takes_nothing = True
        handed_back = self._hand_back()
        self._record(time.monotonic() + RECORDING_PATIENCE)
        self._stop_parts()
        self.tasks.stop(0.2 if self._signals else 3.0)
        self._leave()
        self._bell.close()
        log.info("worker %s has ended", self.settings.worker_id)
        hurried_by = self._signals[-1] if self._signals else None
        return Ending(handed_back, hurried_by, len(self.slots.unrecorded()))

    def _stop_parts(self) -> None:
        """All at once: a database that does not answer must not hold up each of them in turn."""
        parts: list[Loop] = [self.by_name, self.rescuer, self.exchanger, self.keeper]
        parts += [] if self.recorder is None else [self.recorder]
        end = time.monotonic() + (HURRIED_PATIENCE if self._signals else RECORDING_PATIENCE)
        for part in parts:
            part.stop(0)
        for part in parts:
            part.stop(max(end - time.monotonic(), 0))

    def _wait_for_running(self, end: float) -> None:
        while not self.slots.idle and not self._signals:
            left = end - time.monotonic()
            if left <= 0:
                return
            self._pause(min(left, 0.1))

    def _pause(self, seconds: float) -> None:
        """Until something changed, at most so long."""
        with suppress(queue.Empty):
            self._changed.get(timeout=seconds)

    def _hand_back(self) -> int:
        """Stop what is still running: tasks are cancelled, threads are no longer listened to."""
        left = [run for run in self.slots.in_hand if not run.context.settled_by_handler]
        for run in left:
            run.context.stop("shutdown")
            self.tasks.cancel(run)
        end = time.monotonic() + (0.0 if self._signals else 1.0)
        while time.monotonic() < end and any(run.kind.is_async for run in self.slots.in_hand):
            time.sleep(0.01)
        for run in self.slots.in_hand:
            if self.slots.abandon(run, _STOPPED):
                run.handed_back = True
            run.context.break_off()
        handed_back = sum(run.handed_back for run in left)
        if handed_back:
            log.warning("%d jobs were stopped and handed back", handed_back)
        return handed_back

    def _record(self, end: float) -> None:
        hurried = False
        while not self.outcomes.all_recorded and time.monotonic() < end:
            if self._signals and not hurried:
                hurried, end = True, min(end, time.monotonic() + HURRIED_PATIENCE)
            self._wake()
            time.sleep(0.002)
        if not self.outcomes.all_recorded:
            log.error("not all outcomes could be recorded; those leases will run out")

    def _leave(self) -> None:
        """On a thread, because the database may be locked, and nobody should wait for this."""
        leaving = threading.Thread(target=self._strike_off, daemon=True)
        with suppress(RuntimeError):
            leaving.start()
            leaving.join(HURRIED_PATIENCE if self._signals else RECORDING_PATIENCE)

    def _strike_off(self) -> None:
        try:
            self._store.run(Leave(self.settings.worker_id))
        except YaokiError as error:
            log.warning("worker %s is still listed: %s", self.settings.worker_id, error)

    def _is_empty(self) -> bool:
        if not (self.slots.idle and self.outcomes.all_recorded):
            return False
        settings = self.settings
        types = tuple(kind.name for kind in self._types)
        try:
            remaining = self._store.run(Remaining(types, settings.queues))
        except StoreError as error:
            log.warning("cannot tell whether all is done: %s", error)
            return False
        if remaining.running or remaining.due:
            return False
        if remaining.next_retry_in is None:
            return True
        return settings.max_wait is not None and remaining.next_retry_in > settings.max_wait

    def _news(self) -> None:
        self._wake()
        if self._draining:
            self._changed.put(None)

    def _wake(self) -> None:
        self.exchanger.wake()
        if self.recorder is not None:
            self.recorder.wake()

    def _watch(self) -> None:
        self.keeper.wake()

    def _start(self, runs: list[Run]) -> None:
        plain = [run for run in runs if not run.kind.is_async]
        if plain:
            self.threads.start(plain)
        if len(plain) < len(runs):
            self.tasks.start([run for run in runs if run.kind.is_async])


_NOT_BEGUN = settle(Released("its worker shut down before it began", started=False))
_STOPPED = settle(Released("stopped when its worker shut down"))
