"""What has ended goes into the database: when, how much at once, and what is done if it fails."""

import logging
import math
import threading
import time
from collections.abc import Sequence
from statistics import median

from yaoki.core.errors import StoreBusy, StoreUnavailable
from yaoki.core.outcomes import Change
from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.ops.settling import Exchange, Exchanged, Held, Settle, Settlement
from yaoki.store.patience import of_lease
from yaoki.worker.slots import Slots

log = logging.getLogger("yaoki.worker")

RECORDED_WITHIN = 0.005
"""Seconds that an outcome may wait for others to be recorded with; none when all is done."""

LOCKED_PAUSE = 0.2
"""Seconds until an outcome is tried again whose row somebody else's transaction has locked."""

HURRIED_PAUSE = 0.5
"""Seconds between two tries while a worker that ends waits for the database."""

MOST_AT_ONCE = 500

AHEAD = 0.05
"""Seconds of work that are claimed ahead; jobs that take longer are not claimed ahead at all."""


class Outcomes:
    """The outcomes that are not in the database yet."""

    def __init__(self, store: Store, slots: Slots) -> None:
        self._store, self._slots = store, slots
        self.hurries = False
        """The worker ends: nothing waits for company."""
        self._lock = threading.Lock()
        self._recording = 0
        self._doubtful: set[Held] = set()
        """Those that may have been recorded, when no answer came."""
        self.typical: float | None = None
        """Seconds that a job takes here, lately; None before the first has ended."""

    @property
    def apart(self) -> bool:
        """Are they recorded by the Recorder, while others claim?

        Where a store has room for two writers, and jobs are so quick that it pays. Else they are
        recorded with the next claim, so no more jobs are shown running than there are slots.
        """
        return not self._store.one_writer and self.typical is not None and self.typical < AHEAD

    @property
    def all_recorded(self) -> bool:
        slots = self._slots
        return self._recording == 0 and slots.ended == 0 and slots.aside_until is None

    def are_due(self, now: float) -> bool:
        """Is it time to record what has ended?"""
        slots = self._slots
        slots.take_aside()
        return slots.ended > 0 and (
            slots.idle
            or self.hurries
            or slots.ended >= MOST_AT_ONCE
            or now - slots.ended_since >= RECORDED_WITHIN
        )

    @property
    def due_at(self) -> float:
        """When they will be (monotonic), if nothing else happens."""
        at = self._slots.aside_until or float("inf")
        return min(at, self._slots.ended_since + RECORDED_WITHIN) if self._slots.ended else at

    @property
    def longest_pause(self) -> float:
        """Seconds between two tries to record, however often it has failed."""
        return HURRIED_PAUSE if self.hurries else math.inf

    def record(self, exchange: Exchange) -> Exchanged:
        """Run an exchange, of outcomes that were taken for it; nothing is lost when it fails."""
        settlements = list(exchange.settlements)
        try:
            exchanged = self._store.run(exchange)
            locked = [one for one in settlements if one.held.id in exchanged.locked]
            self._slots.put_aside(locked, LOCKED_PAUSE)
        except (StoreBusy, StoreUnavailable):
            with self._lock:
                self._doubtful.update(one.held for one in settlements)
            self._slots.put_back(settlements)
            raise
        except Exception:
            # One bad row must not stop the others; which it is shows when they go in halves.
            self._record_in_halves(settlements)
            raise
        finally:
            self._slots.let_go(settlements)
            with self._lock:
                self._recording -= 1
        self._say_refused(settlements, exchanged.refused)
        self._learn(settlements)
        return exchanged

    def take(self) -> list[Settlement]:
        """What has ended, to be recorded next."""
        with self._lock:
            self._recording += 1
        return self._slots.take_ended(MOST_AT_ONCE)

    def _learn(self, settlements: Sequence[Settlement]) -> None:
        ran = [one.ran_for for one in settlements if one.change.started]
        if not ran:
            return
        # Mostly the median, for a few that waited for the interpreter say nothing of the others;
        # but a slow half counts, and so does one slow job among a few.
        typical = max(median(ran), sum(ran) / len(ran) / 4) / 1_000_000
        self.typical = typical if self.typical is None else 0.5 * self.typical + 0.5 * typical

    def _say_refused(self, settlements: Sequence[Settlement], refused: frozenset[int]) -> None:
        with self._lock:
            doubtful = self._doubtful & {one.held for one in settlements}
            self._doubtful -= doubtful
        for one in settlements:
            if one.held.id not in refused:
                continue
            if one.held in doubtful:
                log.info(
                    "job %d: its outcome (%s) was recorded when the answer was lost, or the lease "
                    "was lost since",
                    one.held.id,
                    one.change.outcome,
                )
            else:
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
        if settlement.lines is not None:
            log.warning("job %d: its last log lines are not kept: %s", settlement.held.id, error)
            return self._record_in_halves([settlement._replace(lines=None)])
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


class Recorder(Loop):
    """Records on a thread of its own what is to be recorded apart from claims."""

    def __init__(self, outcomes: Outcomes, lease_for: float) -> None:
        super().__init__("recorder", of_lease(lease_for))
        self._outcomes = outcomes

    @property
    def longest_pause(self) -> float:
        return min(super().longest_pause, self._outcomes.longest_pause)

    def once(self) -> float:
        now = time.monotonic()
        self.proven = False
        if not self._outcomes.apart:
            return 1.0
        if not self._outcomes.are_due(now):
            return min(max(self._outcomes.due_at - now, 0.0), 1.0)
        self.proven = True
        self._outcomes.record(Exchange(self._outcomes.take()))
        return 0.0
