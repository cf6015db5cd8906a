"""The worker: starts its parts, waits, drains, stops."""

import logging
import queue
import threading
import time
from concurrent.futures import Future
from contextlib import nullcontext, suppress
from contextvars import copy_context
from dataclasses import dataclass

from yaoki.core.errors import StoreError
from yaoki.core.health import WorkerHealth
from yaoki.core.outcomes import Released, settle
from yaoki.jobtypes import Hooks, JobSet
from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.ops.upkeep import Remaining
from yaoki.store.ops.workers import Leave, Publish
from yaoki.worker.around import arounds
from yaoki.worker.by_name import ByName
from yaoki.worker.exchange import Exchanger
from yaoki.worker.hooks import shut_down, start_up
from yaoki.worker.isolated import Pool, refuse_when_imported
from yaoki.worker.keeper import Keeper
from yaoki.worker.limits import Limits
from yaoki.worker.record import Outcomes, Recorder
from yaoki.worker.rescuer import Rescuer
from yaoki.worker.run import Run
from yaoki.worker.settings import WorkerSettings
from yaoki.worker.signals import listening
from yaoki.worker.slots import Slots
from yaoki.worker.tasks import Tasks
from yaoki.worker.threads import Threads
from yaoki.worker.watch import Notes, Watch

log = logging.getLogger("yaoki.worker")

RECORDING_PATIENCE = 10.0
"""Seconds that a worker which stops tries to record what has ended."""

HURRIED_PATIENCE = 0.4
"""The same after a second signal: leases run out by themselves."""

LEAST_FOR_HOOKS = 2.0
"""Seconds that shutdown hooks get, also when the handlers have used up the grace period."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a worker ended: how many jobs it handed back unfinished, and the signal that hurried it.

    `unrecorded` jobs were finished, but the database could not be told; they run again when their
    leases are over. `broken` is why it ended by itself, because it could do its work no more.
    `exit_code`: 0 all that had begun was finished and recorded; 1 something was handed back after
    the grace period, or is unrecorded, or it was broken; 128 + the number of the second signal.
    """

    handed_back: int = 0
    hurried_by: int | None = None
    unrecorded: int = 0
    broken: str | None = None

    @property
    def exit_code(self) -> int:
        if self.hurried_by is not None:
            return 128 + self.hurried_by
        return 1 if self.handed_back or self.unrecorded or self.broken else 0


class Worker:
    """Runs jobs of these types until it is told to drain. Used once."""

    def __init__(self, store: Store, types: JobSet, settings: WorkerSettings, hooks: Hooks) -> None:
        self.settings = settings
        self._store, self._types, self._hooks = store, types, hooks
        # A queue and no Event: its put() may be called by a signal handler at any moment.
        self._changed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._signals: list[int] = []
        self._draining = False
        self._deadline: float | None = None
        self.ready = threading.Event()
        """It has announced itself, and claims."""
        self._started_up = self._announced = False
        base = self._base = copy_context()
        self._bell = store.bell()
        self.slots = Slots(settings.concurrency, self._news, self._start, self._watch)
        self.isolated = Pool(store, types, settings.lease_for)
        self.threads = Threads(self.slots, base, self._start, self.isolated.perform)
        self.tasks = Tasks(self.slots, base, self._start)
        self.outcomes = Outcomes(store, self.slots)
        self.exchanger = Exchanger(
            store,
            types,
            settings,
            self.slots,
            self.outcomes,
            self._bell,
            self._start,
            arounds(hooks, types, self.tasks.running_loop),
        )
        self.recorder = None if store.one_writer else Recorder(self.outcomes, settings.lease_for)
        self.limits = Limits(
            self.slots, self.tasks, settings.lease_for, self.exchanger.expect_slow_jobs
        )
        self.keeper = Keeper(store, types, settings, self.slots, self.tasks)
        self.rescuer = Rescuer(store, settings.lease_for)
        self.by_name = ByName(store, types, settings.queues, settings.lease_for)
        self._broken: str | None = None
        self.watch = Watch(
            settings.worker_id,
            self.parts,
            self.slots,
            self._notes,
            self.keeper.beat_soon,
            self._give_up,
        )
        self.keeper.tell_health = self.watch.for_beat

    @property
    def parts(self) -> list[Loop]:
        """Its loops, in the order in which they are begun."""
        asking = (self.keeper, self.rescuer, self.by_name, self.recorder, self.exchanger)
        isolated = self.isolated if any(kind.isolated for kind in self._types) else None
        parts = (isolated, self.limits, *asking)
        return [part for part in parts if part is not None]

    def health(self) -> WorkerHealth:
        """How its parts are, now. From any thread; asks no database."""
        return self.watch.health()

    def run(self, *, by_signals: bool = True) -> Ending:
        """Work until told to drain (by a signal, or `drain`); then end in good order.

        Without `by_signals` it listens to no signal; who runs it may call `drain` and `hurry`.
        """
        refuse_when_imported()
        with listening(self._heard) if by_signals else nullcontext():
            try:
                self._begin()
                self._until_drained()
            except BaseException:
                self._draining = True
                self._end()
                raise
            return self._end()

    def drain(self, grace: float | None = None) -> None:
        """Claim nothing more, finish what has begun, then end. From any thread, or a signal.

        What has begun gets `grace` seconds (None: those of the settings). Said again with less,
        less counts.
        """
        end = time.monotonic() + (self.settings.grace if grace is None else grace)
        self._deadline = end if self._deadline is None else min(self._deadline, end)
        self._draining = True
        self._changed.put(None)

    def hurry(self, signal_number: int) -> None:
        """Do not wait for what has begun."""
        self._signals.append(signal_number)
        self._changed.put(None)

    def _give_up(self, reason: str) -> None:
        self._broken = self._broken or reason
        self.drain()

    def _notes(self) -> Notes:
        """What there is to say besides how its loops are."""
        troubles = []
        if time.monotonic() < self.slots.no_claims_until:
            troubles.append("it can begin no more threads")
        if self.slots.unkept:
            troubles.append("its leases could not be renewed, so it claims nothing more")
        if self.isolated.trouble is not None:
            troubles.append(f"no process can run its isolated handlers: {self.isolated.trouble}")
        fatal = "the event loop of its async handlers has ended" if self.tasks.died else None
        return Notes(tuple(troubles), fatal, self._bell.trouble)

    def _heard(self, number: int) -> None:
        if self._draining:
            self._signals.append(number)
        self._draining = True
        self._changed.put(None)

    def _begin(self) -> None:
        start_up(self._hooks, self._base, self.tasks.running_loop, self._wait_for_start_up)
        self._started_up = True
        if self.isolated in self.parts:
            self.isolated.warm_up(lambda: self._draining)
        definitions = [kind.definition for kind in self._types]
        self._store.run(Publish(definitions, self.settings.worker_id))
        self._announced = True
        self.keeper.announce()
        for part in (*self.parts, self.watch):
            part.start()

    def _until_drained(self) -> None:
        self._tell("ready", "worker %s is ready")
        self.ready.set()
        while not self._draining:
            self._pause(0.05 if self.settings.until_empty else 1.0)
            if self.watch.died:
                self.watch.revive()
            if self.settings.until_empty and self._is_empty():
                self._draining = True

    def _end(self) -> Ending:
        """No new claims; what has not begun goes back; what has begun gets the grace period."""
        self._tell("draining", "worker %s drains")
        self.exchanger.stop_claiming()
        self.keeper.drain()
        # Twice: a claim may have been under way while the line was given back.
        while self.exchanger.claims_now and not self._signals:
            time.sleep(0.001)
        self.slots.give_back_line(_NOT_BEGUN)
        for run in self.slots.in_hand:
            run.context.stop("shutdown")
        if self._deadline is None:
            self._deadline = time.monotonic() + self.settings.grace
        self._wait_for_running()
        self.exchanger.takes_nothing = True
        handed_back = self._hand_back()
        self._record(time.monotonic() + RECORDING_PATIENCE)
        self._shut_down()
        self.isolated.end_children(in_a_hurry=bool(self._signals))
        self._stop_parts()
        self.tasks.stop(0.2 if self._signals else 3.0)
        if self._announced:
            self._leave()
        self._bell.close()
        self._tell("ended", "worker %s has ended")
        hurried_by = self._signals[-1] if self._signals else None
        return Ending(handed_back, hurried_by, len(self.slots.unrecorded()), self._broken)

    def _tell(self, event: str, message: str) -> None:
        name = self.settings.worker_id
        log.info(message, name, extra={"event": event, "worker": name})

    def _wait_for_start_up(self, ended: "Future[None]") -> bool:
        """Until the hook has ended; a signal gives it the grace period, the next one none."""
        ended.add_done_callback(lambda _: self._changed.put(None))
        end = float("inf")
        while not ended.done():
            if self._draining:
                end = min(end, time.monotonic() + self.settings.grace, self._deadline or end)
            if self._signals or time.monotonic() >= end:
                return False
            self._pause(0.2)
        return True

    def _shut_down(self) -> None:
        """What is left of the grace period is for the hooks; they always get a moment."""
        if not self._started_up or self._signals:
            return
        end = max(self._deadline or 0.0, time.monotonic() + LEAST_FOR_HOOKS)

        def wait(ended: "Future[None]") -> bool:
            ended.add_done_callback(lambda _: self._changed.put(None))
            while not ended.done() and not self._signals and time.monotonic() < end:
                self._pause(min(max(end - time.monotonic(), 0.001), 0.2))
            return ended.done()

        shut_down(self._hooks, self._base, self.tasks.running_loop, wait)

    def _stop_parts(self) -> None:
        """All at once: a database that does not answer must not hold up each of them in turn."""
        parts = [self.watch, *self.parts]
        end = time.monotonic() + (HURRIED_PATIENCE if self._signals else RECORDING_PATIENCE)
        for part in parts:
            part.stop(0)
        for part in parts:
            part.stop(max(end - time.monotonic(), 0))

    def _wait_for_running(self) -> None:
        while not self.slots.idle and not self._signals:
            # It may come nearer meanwhile.
            left = (self._deadline or 0.0) - time.monotonic()
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
            if (kill := run.kill) is not None:
                kill("shutdown")
        end = time.monotonic() + (0.0 if self._signals else 1.0)
        while time.monotonic() < end and any(_can_be_stopped(run) for run in self.slots.in_hand):
            time.sleep(0.01)
        for run in self.slots.in_hand:
            if self.slots.abandon(run, _STOPPED):
                run.handed_back = True
            run.break_off()
        handed_back = sum(run.handed_back for run in left)
        if handed_back:
            log.warning("jobs that were stopped and handed back: %d", handed_back)
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
        except Exception as error:
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
        self.limits.wake()
        self.keeper.wake()

    def _start(self, runs: list[Run]) -> None:
        plain = [run for run in runs if not run.kind.on_loop]
        if plain:
            self.threads.start(plain)
        if len(plain) < len(runs):
            self.tasks.start([run for run in runs if run.kind.on_loop])


def _can_be_stopped(run: Run) -> bool:
    return run.kind.on_loop or run.kind.isolated


_NOT_BEGUN = settle(Released("its worker shut down before it began", started=False))
_STOPPED = settle(Released("stopped when its worker shut down"))
