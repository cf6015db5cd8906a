"""Who runs what: the jobs in hand, those that wait for a slot, and what has ended."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from yaoki.core.outcomes import Change
from yaoki.store.ops.settling import Held, Settlement
from yaoki.worker.board import Board
from yaoki.worker.run import Run

TICK = 0.1
"""Seconds between two looks at what runs: time limits, progress, cancelled jobs."""

LINE_PATIENCE = 1.0
"""Seconds that a job claimed ahead waits in line before it is given to others.

It is not begun after that: if nobody has looked since, we may have been stopped, and lost it.
"""


class Slots:
    """`concurrency` slots, and a line of jobs that were claimed ahead.

    A job ends once: the first of its handler, its time limit and the worker's end decides how.
    `news` is called when the line runs low or the last job ends, and for the first ended job
    since the ended ones were taken; `watch` when a job begins that somebody must look at earlier
    than was planned.
    """

    def __init__(
        self,
        concurrency: int,
        news: Callable[[], None],
        start: Callable[[list[Run]], None],
        watch: Callable[[], None],
    ) -> None:
        self.concurrency = concurrency
        self._news, self._start, self._watch = news, start, watch
        self.watched_until = float("inf")
        """When (monotonic) whoever minds the time limits looks next."""
        self.kept_until = float("inf")
        """When (monotonic) whoever keeps leases and progress looks next."""
        self.kept_at = time.monotonic()
        """When (monotonic) the leases in hand were last renewed, or all was known to be well."""
        self.unkept = False
        """Leases could not be renewed for so long that nothing more is to be claimed."""
        self._lock = threading.Lock()
        # By claim, not by job: a job whose lease was lost may be claimed here again.
        self._in_hand: dict[Held, Run] = {}
        self._line: deque[Run] = deque()
        self._active = 0
        self._ended: list[Settlement] = []
        self._aside: list[Settlement] = []
        self._taken: list[Settlement] = []
        self._aside_until = 0.0
        self._refill_at = 0
        self._leaking: set[Run] = set()
        self.done = 0
        """How many jobs have ended here, or were given up."""
        self.board: Board | None = None
        """Where a supervisor reads what has begun, if there is one."""
        self.no_claims_until = 0.0
        """Until then (monotonic) nothing could be started that was claimed."""
        self.ended_since = 0.0
        """Since when (monotonic) the oldest ended job waits to be recorded."""

    def add(self, runs: Iterable[Run], ahead: int = 0) -> list[Run]:
        """Take claimed jobs in hand; those that are to be started now.

        The line is low again when less than half of it, or of `ahead`, is left.
        """
        with self._lock:
            for run in runs:
                self._in_hand[run.held] = run
                self._line.append(run)
            startable = self._startable(time.monotonic())
            self._refill_at = max(len(self._line), ahead) // 2
            return startable

    def end(self, run: Run, change: Change | None) -> list[Run]:
        """The handler is done; those that are to be started in its place.

        None: the handler has recorded the outcome itself.
        """
        now = time.monotonic()
        with self._lock:
            if run.ended:
                # Too late: its time was up, or its lease lost, and its slot was given on.
                self._leaking.discard(run)
            else:
                self._finish(run, change, now)
                self._active -= 1
            before = len(self._line)
            startable = self._startable(now)
            low = len(self._line) <= self._refill_at < before
            tell = low or len(self._ended) == 1 or not self._in_hand
        if tell:
            self._news()
        return startable

    def abandon(self, run: Run, change: Change) -> bool:
        """End a job whose handler goes on; another may start in its place. False: too late."""
        now = time.monotonic()
        with self._lock:
            if run.ended:
                return False
            self._finish(run, change, now)
            self._replace(run)
            startable = self._startable(now)
        self._news()
        self._start(startable)
        return True

    def never_began(self, run: Run, change: Change) -> None:
        """A job that was to be started and could not be; its slot is free, in a second."""
        with self._lock:
            self.no_claims_until = time.monotonic() + 1.0
            if not run.ended:
                self._finish(run, change, time.monotonic())
                self._active -= 1
        self._news()

    def forget(self, run: Run) -> bool:
        """A job that is not ours any more: nothing is recorded, and its slot is given on."""
        with self._lock:
            if run.ended:
                return False
            self._finish(run, None, time.monotonic())
            self._replace(run)
            startable = self._startable(time.monotonic())
        self._start(startable)
        return True

    def were_kept(self, at: float) -> None:
        """All leases in hand were renewed then (monotonic)."""
        self.kept_at = at
        if self.unkept:
            self.unkept = False
            self._news()

    def give_back_line(self, change: Change) -> int:
        """End all that wait for a slot; how many they were."""
        now = time.monotonic()
        with self._lock:
            waiting = list(self._line)
            self._line.clear()
            for run in waiting:
                self._finish(run, change, now)
        if waiting:
            self._news()
        return len(waiting)

    def take_ended(self, most: int) -> list[Settlement]:
        """What ended and is to be recorded, at most `most`; then tell `let_go`."""
        with self._lock:
            taken, self._ended = self._ended[:most], self._ended[most:]
            self._taken += taken
            return taken

    def let_go(self, taken: Sequence[Settlement]) -> None:
        """They are recorded, or were put back or aside."""
        with self._lock:
            gone = set(map(id, taken))
            self._taken = [one for one in self._taken if id(one) not in gone]
            if self.board is not None:
                still_open = set(map(id, (*self._ended, *self._aside)))
                for one in taken:
                    if id(one) not in still_open:
                        self.board.end(one.held)

    def put_back(self, settlements: list[Settlement]) -> None:
        """They could not be recorded yet."""
        with self._lock:
            self._ended = settlements + self._ended

    def put_aside(self, settlements: list[Settlement], seconds: float) -> None:
        """They cannot be recorded for a while; the others can."""
        if settlements:
            with self._lock:
                self._aside += settlements
                self._aside_until = time.monotonic() + seconds

    def take_aside(self) -> None:
        """Put back what was put aside, if that was long enough ago."""
        if self._aside and time.monotonic() >= self._aside_until:
            with self._lock:
                self._ended, self._aside = self._aside + self._ended, []

    @property
    def aside_until(self) -> float | None:
        """When something that was put aside is to be tried again."""
        return self._aside_until if self._aside else None

    @property
    def in_hand(self) -> list[Run]:
        with self._lock:
            return list(self._in_hand.values())

    @property
    def running(self) -> list[Run]:
        with self._lock:
            return [run for run in self._in_hand.values() if run.started is not None]

    @property
    def leaking(self) -> list[Run]:
        """Those whose handlers go on although their slots were given on."""
        with self._lock:
            return list(self._leaking)

    def unrecorded(self) -> list[Held]:
        """Jobs that ended here and are still running for the database."""
        with self._lock:
            open_ones = (*self._taken, *self._ended, *self._aside)
            return list(dict.fromkeys(settlement.held for settlement in open_ones))

    def in_hand_by_queue(self) -> Counter[str]:
        with self._lock:
            return Counter(run.queue for run in self._in_hand.values())

    @property
    def free(self) -> int:
        """Slots that have neither a job nor one in the line for them."""
        return self.concurrency - self._active - len(self._line)

    @property
    def waiting(self) -> int:
        """Jobs claimed ahead."""
        return len(self._line)

    @property
    def low(self) -> bool:
        """The line is short enough to claim more."""
        return len(self._line) <= self._refill_at

    @property
    def ended(self) -> int:
        return len(self._ended)

    @property
    def idle(self) -> bool:
        """Nothing in hand."""
        return not self._in_hand

    @property
    def leaked(self) -> int:
        """Handlers that outlived their time limit, or their lease, and still run."""
        return len(self._leaking)

    def oldest_waiting(self) -> float | None:
        """Since when (monotonic) the first of the line was claimed."""
        with self._lock:
            return self._line[0].claimed if self._line else None

    def _finish(self, run: Run, change: Change | None, now: float) -> None:
        run.ended = True
        self.done += 1
        self._in_hand.pop(run.held, None)
        if change is None or run.context.settled_by_handler:
            if self.board is not None:
                self.board.end(run.held)
            return
        if not self._ended:
            self.ended_since = now
        self._ended.append(run.settlement(change, now))

    def _replace(self, run: Run) -> None:
        """Let another start in the place of a handler that goes on, or out of the line."""
        if run.started is None:
            self._line.remove(run)
        else:
            self._leaking.add(run)
            self._active -= 1

    def _startable(self, now: float) -> list[Run]:
        startable: list[Run] = []
        soonest = now + TICK
        while self._line and self._active < self.concurrency:
            if now - self._line[0].claimed > LINE_PATIENCE:
                break
            run = self._line.popleft()
            self._active += 1
            run.begin(now)
            if self.board is not None and not run.marked:
                self.board.begin(run.held)
            startable.append(run)
            if run.deadline is not None and run.deadline < soonest:
                soonest = run.deadline
        if startable and soonest < max(self.watched_until, self.kept_until):
            self.watched_until = self.kept_until = now
            self._watch()
        return startable
