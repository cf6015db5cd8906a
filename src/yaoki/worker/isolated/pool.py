"""The children of a worker: kept warm, as many as there are handlers to run at once."""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable

from yaoki import children
from yaoki.core.errors import ProcessDied
from yaoki.core.outcomes import Change, Released, settle
from yaoki.jobtypes import JobSet
from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.worker.isolated import logs
from yaoki.worker.isolated.address import app_of, url_of
from yaoki.worker.isolated.member import Member, NotBegun
from yaoki.worker.isolated.messages import Setup
from yaoki.worker.run import STOPPED, Run

log = logging.getLogger("yaoki.worker")

IDLE_FOR = 60.0
"""Seconds after which a child that has nothing to do ends; one is kept."""

GROW_AFTER = 0.05
"""Seconds that a job waits for a child to be free before another is started for it."""

START_PATIENCE = 300.0
"""Seconds that a child has to import the app: some load much."""

LOOK_EVERY = 1.0
"""Seconds between two looks whether those that have nothing to do still live."""

WAIT_PATIENCE = 30.0
"""Seconds that a job waits for a child; then it is handed back."""

LEAVE_PATIENCE = 2.0
"""Seconds that a child has to end in good order; then it is killed."""

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 30.0
"""Seconds between two tries to start a child, after the first failure and after many."""

TRIES = 3
"""Children that may be dead before a job comes to them; then the job has killed them."""


class Pool(Loop):
    """Starts children, and lets them go; a thread that has an isolated job borrows one.

    All are started by the thread of this loop, and by no other: the system ends them when that
    thread ends, so they never outlive their worker.
    """

    def __init__(self, store: Store, types: JobSet, lease_for: float) -> None:
        super().__init__("isolated")
        self._store, self._types, self._lease_for = store, types, lease_for
        self._changed = threading.Condition()
        self._setup: Setup | None = None
        self._starting: list[Member] = []
        self._idle: list[Member] = []
        self._busy: set[Member] = set()
        self._leaving: list[tuple[Member, float]] = []
        self._waiting: dict[Run, float] = {}
        self._closing_until: float | None = None
        self._closed = threading.Event()
        self._failures_to_start, self._start_at = 0, 0.0
        self._look_at = 0.0
        self._warm = False
        self.trouble: str | None = None
        """Why the last try to start a child failed."""

    def start(self) -> None:
        if self._thread.ident is None:
            super().start()

    def warm_up(self, given_up: Callable[[], bool]) -> None:
        """Have the first child ready; an error that says why there cannot be one."""
        self._setup = self._found()
        self.start()
        with self._changed:
            while not (self._idle or given_up()):
                if self.trouble is not None:
                    raise ProcessDied(f"no process can run the isolated handlers: {self.trouble}")
                self._changed.wait(0.1)

    def perform(self, run: Run) -> Change | None:
        """One attempt, in a child, on a thread that waits for it. Never raises."""
        run.thread = None  # where that waits says nothing of the handler
        try:
            return self._performed(run)
        except Exception as error:
            log.exception("%s: its process could not be talked to", run)
            return run.raised(error)

    @property
    def pids(self) -> list[int]:
        """The processes that are there for jobs."""
        with self._changed:
            return [member.child.pid for member in (*self._idle, *self._busy)]

    def once(self) -> float:
        now = time.monotonic()
        if self._closing_until is not None:
            self._end_all(self._closing_until)
            return 1.0
        self._mind_starting(now)
        if now >= self._look_at:
            self._look_at = now + LOOK_EVERY
            self._mind_idle(now)
        self._mind_leaving(now)
        while self._wants_more(now):
            self._start_one(now)
        if self._starting or self._leaving:
            return 0.01
        return GROW_AFTER if self._waiting else LOOK_EVERY

    def end_children(self, *, in_a_hurry: bool) -> None:
        """Let all go, and wait until they have ended; kills those that have not in time."""
        if self._thread.ident is None:
            return
        patience = 0.0 if in_a_hurry else LEAVE_PATIENCE
        with self._changed:
            self._closing_until = time.monotonic() + patience
            self._changed.notify_all()
        self.wake()
        self._closed.wait(patience + 5.0)

    # A job's thread

    def _performed(self, run: Run) -> Change | None:
        tries = 0
        while True:
            member = self._borrowed(run)
            if member is None:
                return self._without(run)
            try:
                return member.run(run)
            except NotBegun:
                tries += 1
                if tries == TRIES:
                    return run.raised(ProcessDied("its process died when the job came to it"))
            finally:
                self._give_back(member)

    def _borrowed(self, run: Run) -> Member | None:
        """A child that lives; None when there is none to be had, or it is not needed any more."""
        now = time.monotonic()
        end = now + WAIT_PATIENCE
        with self._changed:
            self._waiting[run] = now
            if not self._idle:
                self.wake()
        try:
            while True:
                with self._changed:
                    if not self._idle and not self._is_over(run, end):
                        self._changed.wait(0.1)
                    if self._is_over(run, end):
                        return None
                    member = self._lent()
                if member is None:
                    continue
                if member.alive() and member.has_room_for(run):
                    return member
                member.worn = True
                self._give_back(member)
        finally:
            with self._changed:
                del self._waiting[run]

    def _lent(self) -> Member | None:
        if not self._idle:
            return None
        member = self._idle.pop()
        self._busy.add(member)
        return member

    def _is_over(self, run: Run, end: float) -> bool:
        told = run.ended or run.context.stopping in STOPPED
        return told or self._closing_until is not None or time.monotonic() >= end

    def _without(self, run: Run) -> Change | None:
        if run.ended or run.context.stopping in STOPPED:
            return run.raised(asyncio.CancelledError())
        why = self.trouble or "all are busy"
        if self._closing_until is not None:
            why = "its worker shuts down"
        return settle(Released(f"no process could be had for it: {why}", started=False))

    def _give_back(self, member: Member) -> None:
        with self._changed:
            closing = self._closing_until is not None
            if closing:
                self._busy.discard(member)
                self._changed.notify_all()
            elif member.worn:
                self._drop(member)
                self.wake()
            else:
                member.idle_since = time.monotonic()
                self._busy.discard(member)
                self._idle.append(member)
                self._changed.notify()
        if closing:
            member.close()

    def _drop(self, member: Member) -> None:
        self._busy.discard(member)
        member.leave()
        self._leaving.append((member, time.monotonic() + LEAVE_PATIENCE))

    # The loop's thread

    def _wants_more(self, now: float) -> bool:
        with self._changed:
            waiting = sum(now - since >= GROW_AFTER for since in self._waiting.values())
            wanted = max(len(self._busy) + waiting, 1)
            have = len(self._starting) + len(self._idle) + len(self._busy)
            may = self._warm or self._failures_to_start == 0
            return have < wanted and may and now >= self._start_at and self._closing_until is None

    def _start_one(self, now: float) -> None:
        assert self._setup is not None
        setup = self._setup
        setup.levels = logs.levels()
        with_main = "__main__" in setup.modules
        try:
            child = children.start(_PROGRAM, setup, with_main=with_main)
        except (OSError, RuntimeError) as error:
            self._failed_to_start(str(error), now)
            return
        with self._changed:
            self._starting.append(Member(child))

    def _mind_starting(self, now: float) -> None:
        for member in list(self._starting):
            try:
                ready = member.begun()
                if not ready and now - member.started >= START_PATIENCE:
                    raise ProcessDied(f"it did not import the app in {START_PATIENCE:.0f} s")
            except ProcessDied as error:
                with self._changed:
                    self._starting.remove(member)
                member.close()
                self._failed_to_start(str(error), now)
                continue
            if ready:
                member.idle_since = now
                with self._changed:
                    self._starting.remove(member)
                    self._idle.append(member)
                    self._failures_to_start, self.trouble, self._warm = 0, None, True
                    self._changed.notify()

    def _failed_to_start(self, why: str, now: float) -> None:
        pause = min(FIRST_PAUSE * 2.0 ** min(self._failures_to_start, 10), LONGEST_PAUSE)
        with self._changed:
            self._failures_to_start += 1
            self._start_at, self.trouble = now + pause, why
            self._changed.notify_all()
        if self._warm:
            log.error("no process for isolated handlers, again in %.1f s: %s", pause, why)

    def _mind_idle(self, now: float) -> None:
        for member in list(self._idle):
            with self._changed:
                if member not in self._idle:
                    continue
                # As if a job had it: nobody else may listen to it meanwhile.
                self._idle.remove(member)
                self._busy.add(member)
                spare = len(self._idle) + len(self._busy) > 1
            idle_since = member.idle_since
            member.worn = not member.alive() or (spare and now - idle_since >= IDLE_FOR)
            self._give_back(member)
            member.idle_since = idle_since

    def _mind_leaving(self, now: float) -> None:
        with self._changed:
            over = [one for one in self._leaving if one[0].child.ended or now >= one[1]]
            self._leaving = [one for one in self._leaving if one not in over]
        for member, _ in over:
            member.close()

    def _end_all(self, until: float) -> None:
        with self._changed:
            idle, starting, busy = self._idle, self._starting, list(self._busy)
            leaving = [member for member, _ in self._leaving]
            self._idle, self._starting, self._leaving = [], [], []
        for member in idle:
            member.leave()
        for member in busy:
            # Who has it hears that it is gone, and closes it.
            member.child.kill()
        for member in (*idle, *leaving):
            member.child.wait(max(until - time.monotonic(), 0.0))
        for member in (*starting, *idle, *leaving):
            member.close()
        with self._changed:
            self._changed.wait_for(lambda: not self._busy, timeout=1.0)
        self._closed.set()

    def _found(self) -> Setup:
        app, modules = app_of(self._types)
        return Setup(
            app=app,
            modules=modules,
            types=[kind.name for kind in self._types if kind.isolated],
            url=url_of(self._store),
            folder=_folder(),
            lease_for=self._lease_for,
            parent=os.getpid(),
            levels={},
        )


_PROGRAM = "yaoki.worker.isolated.child:serve"


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return ""
