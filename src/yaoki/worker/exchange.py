"""The one conversation with the database: what is finished goes in, what is next comes out."""

import logging
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Literal

from yaoki.core.errors import StoreBusy, StoreUnavailable
from yaoki.core.job import AT, Job
from yaoki.core.outcomes import Change, Released, settle
from yaoki.core.said import Unsaid
from yaoki.jobtypes import JobContext, JobSet
from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.base import Bell
from yaoki.store.ops.claims import ALONE_AFTER, Claim, Claimed, Look
from yaoki.store.ops.settling import Exchange, Held, Settle, Settlement
from yaoki.worker.run import Run
from yaoki.worker.settings import WorkerSettings
from yaoki.worker.slots import Slots

log = logging.getLogger("yaoki.worker")

RECORDED_WITHIN = 0.005
"""Seconds that an outcome may wait for others to be recorded with; none when all is done."""

AHEAD = 0.05
"""Seconds of work that are claimed ahead; jobs that take longer are not claimed ahead at all."""

MOST_AT_ONCE = 500

LOOK_EVERY = 1.0
"""Seconds after which the table is looked at, whatever the bell said."""

PATIENCE_FOR_ALONE = 10.0
"""Seconds that a job which must run alone makes the worker run empty; then others go first."""

_STARTED = AT["started_at"]
_TOO_LATE = settle(Released("its worker shut down before it began", started=False))


class Exchanger(Loop):
    """Records outcomes and claims jobs, both in one transaction, as often as there is need."""

    def __init__(
        self,
        store: Store,
        types: JobSet,
        settings: WorkerSettings,
        slots: Slots,
        bell: Bell,
        start: Callable[[list[Run]], None],
    ) -> None:
        super().__init__("exchange")
        self._store, self._types, self._settings = store, types, settings
        self._slots, self._bell, self._start = slots, bell, start
        self._policies: dict[str, Unsaid] = {kind.name: kind.unsaid for kind in types}
        self.claiming = True
        self.typical: float | None = None
        """Seconds that a job takes here, lately; None before the first has ended."""
        self._maybe_due = True
        self._due_at = float("inf")
        self._look_at = 0.0
        self._by_lanes_until = 0.0
        self._recording = False
        self._claiming_now = False
        self.takes_nothing = False
        """What a claim still brings is handed back: nobody minds the jobs any more."""
        self._alone_run: Run | None = None

    def wake(self) -> None:
        super().wake()
        self._bell.ring()

    def expect_slow_jobs(self) -> None:
        """Claim nothing ahead until jobs have shown again that they are quick."""
        self.typical = AHEAD

    def stop_claiming(self) -> None:
        """From now on only record."""
        self.claiming = False
        self.wake()

    @property
    def claims_now(self) -> bool:
        """It may still bring jobs: it was not told to stop, or is in the middle of a claim."""
        return self.claiming or self._claiming_now

    @property
    def recorded(self) -> bool:
        """All that ended is in the database."""
        return not self._recording and self._slots.ended == 0

    def once(self) -> float:
        now = time.monotonic()
        if now >= self._look_at or now >= self._due_at:
            self._maybe_due = True
        if self._slots.ended and self._is_time_to_record(now):
            self._exchange(now)
            return 0.0
        if self._maybe_due and self._limit() > 0:
            self._maybe_due = False
            self._look_at = now + LOOK_EVERY
            ahead = self._store.run(Look())
            self._note_due_at(ahead.next_run_at, ahead.now)
            if ahead.due:
                self._exchange(now)
                return 0.0
        return self._until_next(time.monotonic())

    def _wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        if self._limit() > 0 and not self.failures:
            self._maybe_due = self._bell.wait(seconds) or self._maybe_due
        else:
            self._woken.wait(seconds)

    def _is_time_to_record(self, now: float) -> bool:
        slots = self._slots
        return (
            slots.idle
            or not self.claiming
            or slots.ended >= MOST_AT_ONCE
            or now - slots.ended_since >= RECORDED_WITHIN
            or (slots.low and slots.waiting > 0)
        )

    def _until_next(self, now: float) -> float:
        wakes = [now + LOOK_EVERY]
        if self._slots.ended:
            wakes.append(self._slots.ended_since + RECORDED_WITHIN)
        if self._limit() > 0:
            wakes += [self._look_at, self._due_at]
        return max(min(wakes) - now, 0.0)

    def _exchange(self, now: float) -> None:
        self._claiming_now = self._recording = True
        settlements = self._slots.take_ended(MOST_AT_ONCE)
        claim = self._claim(now)
        try:
            exchanged = self._store.run(Exchange(settlements, claim))
        except (StoreBusy, StoreUnavailable):
            self._slots.put_back(settlements)
            raise
        except Exception:
            # One bad row must not stop the others; which it is shows when they go in halves.
            self._record_in_halves(settlements)
            raise
        else:
            if claim is not None and exchanged.claimed is not None:
                self._take(claim, exchanged.claimed)
        finally:
            self._claiming_now = self._recording = False
        self._say_refused(settlements, exchanged.refused)
        self._learn(settlements)

    def _limit(self) -> int:
        """How many jobs may be claimed now: for free slots, and ahead."""
        if not self.claiming or (self._alone_run is not None and not self._alone_run.ended):
            return 0
        slots = self._slots
        if slots.no_claims_until and time.monotonic() < slots.no_claims_until:
            return 0
        free = slots.free
        if free <= 0 and not slots.low:
            return 0
        return min(max(free + self._ahead(), 0), MOST_AT_ONCE)

    def _ahead(self) -> int:
        """How many jobs are to wait in line for a slot: what is done within AHEAD."""
        if self.typical is None or self.typical >= AHEAD:
            return 0
        return min(int(self._slots.concurrency * AHEAD / max(self.typical, 1e-6)), MOST_AT_ONCE)

    def _claim(self, now: float) -> Claim | None:
        limit, slots = self._limit(), self._slots
        queues = self._settings.queues
        caps: dict[str, int] = {}
        if self._settings.caps:
            in_hand = slots.in_hand_by_queue()
            caps = {queue: cap - in_hand[queue] for queue, cap in self._settings.caps.items()}
            queues = tuple(queue for queue in queues or () if caps.get(queue, 1) > 0)
        if limit <= 0 or queues == ():
            return None
        return Claim(
            worker_id=self._settings.worker_id,
            limit=limit,
            slots=max(slots.free, 0),
            queues=queues,
            types=tuple(self._policies),
            caps=caps,
            policies=self._policies,
            lease_for=round(self._settings.lease_for * 1_000_000),
            alone=self._alone(now),
            by_lanes=now < self._by_lanes_until,
        )

    def _alone(self, now: float) -> Literal["may run", "wait", "skip"]:
        if self._slots.idle:
            return "may run"
        began = min((run.started or now for run in self._slots.in_hand), default=now)
        return "wait" if now - began < PATIENCE_FOR_ALONE else "skip"

    def _take(self, claim: Claim, claimed: Claimed) -> None:
        now = time.monotonic()
        if self.takes_nothing:
            held = [Held(job.id, job.lease or 0) for job in claimed.jobs]
            self._store.run(Settle([Settlement(one, _TOO_LATE) for one in held]))
            return
        if claimed.by_lanes and not claim.by_lanes:
            self._by_lanes_until = now + LOOK_EVERY
        self._note_due_at(claimed.next_run_at, claimed.now)
        self._maybe_due = len(claimed.jobs) >= claim.limit
        self._look_at = now + LOOK_EVERY
        runs = [self._run(job) for job in claimed.jobs]
        if runs and claimed.jobs[0].rescues >= ALONE_AFTER:
            self._alone_run = runs[0]
        self._start(self._slots.add(runs))

    def _run(self, job: Job) -> Run:
        kind = self._types.get(job.type)
        assert kind is not None, "only known types are claimed"
        context = JobContext(self._store, job, self._settings.lease_for)
        return Run(job, kind, context, marked=job._row[_STARTED] is not None)

    def _note_due_at(self, next_run_at: int | None, now: int) -> None:
        if next_run_at is None:
            self._due_at = float("inf")
        else:
            self._due_at = time.monotonic() + max(next_run_at - now, 0) / 1_000_000

    def _learn(self, settlements: Sequence[Settlement]) -> None:
        ran = [one.ran_for for one in settlements if one.change.started]
        if not ran:
            return
        # Mostly the median, for a few that waited for the interpreter say nothing of the others;
        # but a slow half counts, and so does one slow job among a few.
        typical = max(median(ran), sum(ran) / len(ran) / 4) / 1_000_000
        self.typical = typical if self.typical is None else 0.5 * self.typical + 0.5 * typical

    def _say_refused(self, settlements: Sequence[Settlement], refused: frozenset[int]) -> None:
        for one in settlements:
            if one.held.id in refused:
                log.warning(
                    "job %d: its outcome (%s) is not recorded, because the lease was lost",
                    one.held.id,
                    one.change.outcome,
                )

    def _record_in_halves(self, settlements: list[Settlement]) -> None:
        if not settlements:
            return
        try:
            self._say_refused(settlements, self._store.run(Settle(settlements)))
        except (StoreBusy, StoreUnavailable):
            self._slots.put_back(settlements)
        except Exception as error:
            if len(settlements) > 1:
                half = len(settlements) // 2
                self._record_in_halves(settlements[:half])
                self._record_in_halves(settlements[half:])
            else:
                self._record_less(settlements[0], error)

    def _record_less(self, settlement: Settlement, error: Exception) -> None:
        """A record that cannot fail for what it holds, for one that did."""
        change = settlement.change
        note = f"the outcome could not be stored ({type(error).__name__})"
        failed = change.outcome in ("retried", "failed")
        less = Change(
            change.outcome,
            change.wait if change.wait < 10**15 else 0,
            note if failed else None,
            None,
            "null" if change.outcome == "completed" else None,
            change.started,
        )
        log.error("job %d: %s: %s", settlement.held.id, note, error)
        try:
            self._store.run(Settle([Settlement(settlement.held, less)]))
        except Exception:
            log.exception("job %d: nothing can be recorded; its lease will end", settlement.held.id)
