"""Claiming: when, how much, and what is started of it."""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Literal

from yaoki.core.job import AT, Job
from yaoki.core.outcomes import Released, settle
from yaoki.core.said import Unsaid
from yaoki.jobtypes import JobContext, JobSet
from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.base import Bell
from yaoki.store.ops.claims import Claim, Claimed, Look, Places
from yaoki.store.ops.settling import Exchange, Exchanged, Held, Settle, Settlement
from yaoki.store.ops.upkeep import HeldBy
from yaoki.store.patience import of_lease
from yaoki.worker.around import Around
from yaoki.worker.record import AHEAD, MOST_AT_ONCE, Outcomes
from yaoki.worker.run import Run
from yaoki.worker.settings import WorkerSettings
from yaoki.worker.slots import Slots

log = logging.getLogger("yaoki.worker")

LOOK_EVERY = 1.0
"""Seconds after which the table is looked at, whatever the bell said."""

DEAR = 0.05
"""Seconds of an exchange after which claims look from the head no more than once a second.

They do so to find what was enqueued late; but a transaction that somebody keeps open for long makes
PostgreSQL keep every index entry of what was claimed since, and the look walks over all of them.
"""

PATIENCE_FOR_ALONE = 10.0
"""Seconds that a job which must run alone makes the worker run empty; then others go first."""

_STARTED = AT["started_at"]
_STRAY = settle(Released("the answer to its claim was lost", started=False))
_TOO_LATE = settle(Released("its worker shut down before it began", started=False))


class Exchanger(Loop):
    """Claims jobs as often as there is need.

    It also records, both in one transaction, unless a Recorder does that at the same time
    (`Outcomes.apart`).
    """

    def __init__(
        self,
        store: Store,
        types: JobSet,
        settings: WorkerSettings,
        slots: Slots,
        outcomes: Outcomes,
        bell: Bell,
        start: Callable[[list[Run]], None],
        arounds: Mapping[str, Around],
    ) -> None:
        super().__init__("exchange", of_lease(settings.lease_for))
        self._store, self._types, self._settings = store, types, settings
        self._slots, self._outcomes, self._bell, self._start = slots, outcomes, bell, start
        self._arounds = arounds
        self._records = True
        self._policies: dict[str, Unsaid] = {kind.name: kind.unsaid for kind in types}
        self.claiming = True
        self._maybe_due = True
        self._due_at = float("inf")
        self._look_at = 0.0
        self._by_lanes_until = 0.0
        self._after: Places = {}
        self._was_full = False
        self._from_head_at = self._dear_until = 0.0
        self._claiming_now = self._unanswered = False
        self.takes_nothing = False
        """What a claim still brings is handed back: nobody minds the jobs any more."""
        self._alone_run: Run | None = None
        self._others_first = False
        """One has just run alone: those that need not are next, so that many such starve nobody."""

    def wake(self) -> None:
        super().wake()
        self._bell.ring()

    def expect_slow_jobs(self) -> None:
        """Claim nothing ahead until jobs have shown again that they are quick."""
        self._outcomes.typical = AHEAD

    def stop_claiming(self) -> None:
        """From now on only record."""
        self.claiming = False
        self._outcomes.hurries = True
        self.wake()

    @property
    def claims_now(self) -> bool:
        """It may still bring jobs: it was not told to stop, or is in the middle of a claim."""
        return self.claiming or self._claiming_now

    @property
    def longest_pause(self) -> float:
        return min(super().longest_pause, self._outcomes.longest_pause)

    def once(self) -> float:
        if self._unanswered:
            self._give_back_strays()
        now = time.monotonic()
        self._records = not self._outcomes.apart
        if now >= self._look_at or now >= self._due_at:
            self._maybe_due = True
        if self._records and self._is_time_to_record(now):
            self._exchange(now)
            return 0.0
        if self._maybe_due and self._limit() > 0:
            if self._is_due():
                self._exchange(now)
                return 0.0
        else:
            self.proven = False
        return self._until_next(time.monotonic())

    def _is_due(self) -> bool:
        """Is there anything to claim? A look is cheaper than a claim that finds nothing."""
        if self._was_full and not self._records:
            return True
        self._maybe_due = False
        self._look_at = time.monotonic() + LOOK_EVERY
        ahead = self._store.run(Look())
        self._note_due_at(ahead.next_run_at, ahead.now)
        return ahead.due

    def _wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        if self._limit() > 0 and not self.failures:
            self._maybe_due = self._bell.wait(seconds) or self._maybe_due
        else:
            self._bell.hush()
            self._woken.wait(seconds)

    def _is_time_to_record(self, now: float) -> bool:
        slots = self._slots
        # A claim is to come, so what has ended goes with it.
        claims = slots.ended > 0 and slots.low and slots.waiting > 0
        return self._outcomes.are_due(now) or claims

    def _until_next(self, now: float) -> float:
        wakes = [now + LOOK_EVERY]
        if self._records:
            wakes.append(self._outcomes.due_at)
        if self._limit() > 0:
            wakes += [self._look_at, self._due_at]
        return max(min(wakes) - now, 0.0)

    def _exchange(self, now: float) -> None:
        self._claiming_now = True
        try:
            claim = self._claim(now)
            self._unanswered = claim is not None
            claimed = self._exchanged(claim).claimed
            self._unanswered = False
            if claim is not None and claimed is not None:
                self._take(claim, claimed, now)
        finally:
            self._claiming_now = False

    def _exchanged(self, claim: Claim | None) -> Exchanged:
        if self._records:
            return self._outcomes.record(Exchange(self._outcomes.take(), claim))
        return self._store.run(Exchange((), claim))

    def failed(self, error: Exception) -> None:
        # What was to be asked was not answered; and rings may have been missed.
        self._maybe_due = True

    def _give_back_strays(self) -> None:
        """What was claimed and never heard of here: nobody else claims for this worker.

        (A claim that is committed later yet is found by the keeper.)
        """
        held = self._store.run(HeldBy(self._settings.worker_id))
        ours = {run.held for run in self._slots.in_hand} | set(self._slots.unrecorded())
        strays = [one for one in held if one not in ours]
        if strays:
            log.warning("handing back %d jobs whose claim was never answered", len(strays))
            self._store.run(Settle([Settlement(one, _STRAY) for one in strays]))
        self._unanswered = False

    def _limit(self) -> int:
        """How many jobs may be claimed now: for free slots, and ahead."""
        if not self.claiming or (self._alone_run is not None and not self._alone_run.ended):
            return 0
        slots = self._slots
        if slots.unkept:
            return 0
        if slots.no_claims_until and time.monotonic() < slots.no_claims_until:
            return 0
        free = slots.free
        if free <= 0 and not slots.low:
            return 0
        return min(max(free + self._ahead(), 0), MOST_AT_ONCE)

    def _ahead(self) -> int:
        """How many jobs are to wait in line for a slot: what is done within AHEAD."""
        typical = self._outcomes.typical
        if typical is None or typical >= AHEAD:
            return 0
        # What is claimed while others record should not have to wait for them to end.
        most = MOST_AT_ONCE if self._records else 2 * MOST_AT_ONCE
        return min(int(self._slots.concurrency * AHEAD / max(typical, 1e-6)), most)

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
            after=self._places(now),
            behind_only=now < self._dear_until,
        )

    def _places(self, now: float) -> Places:
        """Where to begin: behind what was taken, while there is much or the way there is long."""
        goes_on = self._was_full or now < self._dear_until
        return self._after if goes_on and now < self._from_head_at else {}

    def _alone(self, now: float) -> Literal["may run", "wait", "skip"]:
        if self._slots.idle:
            return "skip" if self._others_first else "may run"
        began = min((run.started or now for run in self._slots.in_hand), default=now)
        return "wait" if now - began < PATIENCE_FOR_ALONE else "skip"

    def _take(self, claim: Claim, claimed: Claimed, began: float) -> None:
        now = time.monotonic()
        if self.takes_nothing:
            held = [Held(job.id, job.lease or 0) for job in claimed.jobs]
            self._store.run(Settle([Settlement(one, _TOO_LATE) for one in held]))
            return
        if claimed.by_lanes and not claim.by_lanes:
            self._by_lanes_until = now + LOOK_EVERY
        if not claim.after:
            self._from_head_at = began + LOOK_EVERY
            if now - began > DEAR and not claim.by_lanes:
                self._dear_until = now + LOOK_EVERY
        self._after, self._was_full = claimed.after, len(claimed.jobs) >= claim.limit
        self._note_due_at(claimed.next_run_at, claimed.now)
        self._maybe_due = self._was_full
        if self._maybe_due:
            self._bell.hush()
        self._look_at = now + LOOK_EVERY
        runs = [self._run(job) for job in claimed.jobs]
        if claimed.alone:
            self._alone_run = runs[0]
        elif self._others_first and not runs:
            self._maybe_due = True
        self._others_first = claimed.alone
        self._start(self._slots.add(runs, 0 if self._records else self._ahead()))

    def _run(self, job: Job) -> Run:
        kind = self._types.get(job.type)
        assert kind is not None, "only known types are claimed"
        context = JobContext(self._store, job, self._settings.lease_for)
        run = Run(job, kind, context, marked=job._row[_STARTED] is not None)
        if self._arounds:
            run.around = self._arounds.get(kind.name)
        return run

    def _note_due_at(self, next_run_at: int | None, now: int) -> None:
        if next_run_at is None:
            self._due_at = float("inf")
        else:
            self._due_at = time.monotonic() + max(next_run_at - now, 0) / 1_000_000
