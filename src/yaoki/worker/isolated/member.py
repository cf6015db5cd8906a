"""A child as its worker sees it: idle, or busy with one job."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec

from yaoki.children import Child, Gone
from yaoki.core.errors import ProcessDied
from yaoki.core.failures import text
from yaoki.core.outcomes import Cancelled, Change, Released, settle
from yaoki.worker.isolated import logs, memory
from yaoki.worker.isolated.guard import SAID, UNGUARDED
from yaoki.worker.isolated.messages import (
    Begun,
    Completing,
    Ended,
    FromChild,
    Leave,
    Logged,
    MayCommit,
    Ready,
    Record,
    Settled,
    Stop,
    Told,
    Unready,
    Work,
    read_from_child,
)
from yaoki.worker.isolated.stacks import Stacks
from yaoki.worker.isolated.wire import CUT_OFF
from yaoki.worker.run import Run

LOOK_EVERY = 0.1
"""Seconds between two looks whether the handler is to be told something, and at its memory."""

MOST_LEFT = 0.25
"""The part of a job's memory limit that earlier jobs may have left taken in its process."""


class NotBegun(Exception):
    """The child was dead before the job came to it."""


class Member:
    """Used by one thread at a time; only `_kill` may be called by any."""

    def __init__(self, child: Child) -> None:
        self.child = child
        self.started = self.idle_since = time.monotonic()
        self.worn = False
        """It is to get no other job."""
        self._stacks = Stacks(child, None)
        self._data_at_first = 0
        self._lock = threading.Lock()
        self._number = 0
        self._busy = False
        self._killed_for: str | None = None
        child.spares_rest = False

    def begun(self) -> bool:
        """Can it run jobs? False: not yet. ProcessDied says why it never will."""
        try:
            message = _heard_from(self.child, 0)
        except Gone:
            unguarded = self.child.exit_code == UNGUARDED
            raise ProcessDied(SAID if unguarded else f"it {self._ended()}") from None
        match message:
            case Ready(stacks):
                self._stacks = Stacks(self.child, stacks)
                self._data_at_first = memory.use(self.child.pid).data
                return True
            case Unready(why):
                raise ProcessDied(why)
        return False

    def alive(self) -> bool:
        """While it is idle: does it live? Hears what is left of its handlers still say."""
        try:
            while (message := _heard_from(self.child, 0)) is not None:
                if isinstance(message, Record):
                    logs.emit(message)
        except (Gone, msgspec.MsgspecError):
            return False
        return not self.child.ended

    def has_room_for(self, run: Run) -> bool:
        """Or have others left so much behind that the job would soon be at its memory limit?"""
        limit = run.kind.memory_limit
        if limit is None:
            return True
        left = memory.use(self.child.pid).data - self._data_at_first
        return left <= limit * memory.MEGABYTE * MOST_LEFT

    def leave(self) -> None:
        """Let it end in good order."""
        self.child.spares_rest = True
        self.child.send(Leave())

    def close(self) -> None:
        """It has ended, or does so now."""
        self.child.kill()
        self.child.wait()
        self.child.close()
        self._stacks.close()

    def run(self, run: Run) -> Change | None:
        """Have the job done, and say how it ended. NotBegun when it was dead before that."""
        with self._lock:
            self._number += 1
            self._busy = True
        now = time.monotonic()
        run.begin(now)
        # In this order, and undone in the other: who has a limit can be killed.
        run.kill = partial(self._kill, self._number)
        run.limit(now)
        try:
            return self._through(run)
        except NotBegun:
            raise
        except BaseException:
            # Its handler may still run.
            self.worn = True
            self.child.kill()
            raise
        finally:
            run.deadline = None
            run.kill = None
            with self._lock:
                self._busy = False
                self.worn = self.worn or self._killed_for is not None

    def _through(self, run: Run) -> Change | None:
        talk = _Talk(self.child, self._number, run)
        try:
            ended = talk.until_ended(self._look)
        except (Gone, msgspec.MsgspecError):
            self.worn = True
            if not talk.begun and self._killed_for is None:
                raise NotBegun from None
            return self._died(run)
        self.worn = ended.worn
        if ended.progress is not None:
            run.context.heard(ended.progress)
        run.handed_back = run.handed_back or ended.handed_back
        late = run.context.stopping == "timeout" and ended.change is not None
        return run.timed_out() if late else ended.change

    def _look(self, run: Run) -> None:
        limit = run.kind.memory_limit
        if limit is not None and memory.use(self.child.pid).resident > limit * memory.MEGABYTE:
            self._kill(self._number, f"it used more memory than its limit of {limit} MB")

    def _kill(self, number: int, reason: str) -> None:
        with self._lock:
            if number != self._number or not self._busy or self._killed_for is not None:
                return
            self._killed_for = reason
        try:
            if reason == "timeout":
                self._stacks.ask()
        finally:
            self.child.kill()

    def _died(self, run: Run) -> Change | None:
        how, stack = self._how(), self._stacks.read()
        if self._killed_for == "cancelled":
            return settle(Cancelled("cancelled"))
        if self._killed_for == "shutdown":
            run.handed_back = True
            return settle(Released("stopped when its worker shut down"))
        change = run.raised(ProcessDied(how))
        if change is None or stack is None:
            return change
        timed_out = run.context.stopping == "timeout"
        where = "The handler was still running here" if timed_out else "Its process was here"
        return replace(change, traceback=text(f"{where}:\n{stack}", 16_000))

    def _how(self) -> str:
        if not self.child.wait(1.0):
            self.child.kill()
            self.child.wait()
            return "its process closed the line to its worker, and was killed"
        if self._killed_for not in (None, "cancelled", "shutdown", "timeout", "lease lost"):
            return f"{self._killed_for}, so its process was killed"
        if self.child.exit_code == CUT_OFF:
            return "it closed the line of its process to the worker"
        return f"its process {self._ended()}"

    def _ended(self) -> str:
        how = self.child.how_it_ended
        return how if how.startswith("exited") else f"was {how}"


class _Talk:
    """What is said while one job runs."""

    def __init__(self, child: Child, number: int, run: Run) -> None:
        self._child, self._number, self._run = child, number, run
        self._told: str | None = None
        self.begun = False

    def until_ended(self, look: Callable[[Run], None]) -> Ended:
        """Gone when the child ended before its handler did."""
        self._child.send(Work(self._number, list(self._run.job._row)))
        look_at = time.monotonic() + LOOK_EVERY
        while True:
            message = _heard_from(self._child, LOOK_EVERY)
            if isinstance(message, Ended) and message.number == self._number:
                return message
            if message is not None:
                self._heard(message)
            reason = self._run.context.stopping
            if reason is not None and reason != self._told:
                self._told = reason
                self._child.send(Stop(self._number, reason))
            if time.monotonic() >= look_at:
                look_at = time.monotonic() + LOOK_EVERY
                look(self._run)

    def _heard(self, message: FromChild) -> None:
        run, number = self._run, self._number
        match message:
            case Record():
                logs.emit(message)
            case Begun(heard) if heard == number:
                self.begun = True
            case Told(heard, progress) if heard == number:
                run.context.heard(progress)
            case Logged(heard, level, said, at) if heard == number:
                run.context.add_line(level, said, at)
            case Completing(heard, so) if heard == number:
                # Whoever renews the lease must know before it ends.
                run.context.completing = so
                if so:
                    self._child.send(MayCommit(number, not run.ended))
            case Settled(heard) if heard == number:
                run.context.settled_by_handler = True


def _heard_from(child: Child, timeout: float) -> FromChild | None:
    said = child.take(timeout)
    return None if said is None else read_from_child(said)
