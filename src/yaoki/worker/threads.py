"""Where plain functions run: threads that carry nothing from one job to the next."""

import _thread
import ctypes
import logging
import sys
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

from yaoki.core.outcomes import Change, Released, settle
from yaoki.worker.perform import perform
from yaoki.worker.run import Run
from yaoki.worker.slots import Slots

log = logging.getLogger("yaoki.worker")

IDLE_FOR = 30.0
"""Seconds after which a thread that has nothing to do ends."""

_OURS = frozenset({"Py_Repr"})


def _thread_dict() -> dict[Any, Any]:
    """Where CPython before 3.13 keeps the thread-local values of this thread."""
    get = ctypes.pythonapi.PyThreadState_GetDict
    get.restype = ctypes.py_object
    values: dict[Any, Any] = get()
    return values


def _can_forget() -> bool:
    """Try whether the thread-local values of a thread can be taken from it."""
    if sys.implementation.name != "cpython":
        return False
    local, forgotten = threading.local(), []

    def attempt() -> None:
        try:
            local.value = True
            _forget(_thread_dict())
            forgotten.append(not hasattr(local, "value"))
        except Exception:
            return

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return forgotten == [True]


def _forget(values: dict[Any, Any]) -> None:
    for key in [key for key in values if key not in _OURS]:
        values.pop(key, None)


CAN_FORGET = _can_forget()
"""False from CPython 3.13 on: there a thread runs one job and ends (docs/decisions)."""


class _Hand:
    """A thread that waits for a job."""

    __slots__ = ("_lock", "run")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.run: Run | None = None

    def give(self, run: Run) -> None:
        self.run = run
        self._lock.release()

    def wait(self, seconds: float) -> bool:
        return self._lock.acquire(timeout=seconds)


NO_THREAD = settle(Released("its worker could start no thread", started=False))


class Threads:
    """Starts handlers on idle threads, or on new ones. How many run at once, Slots decides."""

    def __init__(
        self,
        slots: Slots,
        base: Context,
        start: Callable[[list[Run]], None],
        isolated: Callable[[Run], Change | None],
    ) -> None:
        self._slots, self._base, self._start = slots, base, start
        self._isolated = isolated
        self._idle: list[_Hand] = []
        self._lock = threading.Lock()

    def start(self, runs: list[Run]) -> None:
        for run in runs:
            with self._lock:
                hand = self._idle.pop() if self._idle else None
            if hand is not None:
                hand.give(run)
            else:
                self._begin(run)

    def cancel(self, run: Run) -> None:
        """A thread cannot be stopped; its handler can look at `ctx.stopping`."""

    def _begin(self, run: Run) -> None:
        try:
            self._new_thread(run)
        except RuntimeError as error:
            # No more threads or memory to be had: others may have them, or we a little later.
            log.error("%s cannot begin, and is handed back: %s", run, error)
            self._slots.never_began(run, NO_THREAD)

    def _new_thread(self, run: Run) -> None:
        if CAN_FORGET:
            threading.Thread(target=self._work, args=(run,), name="yaoki-job", daemon=True).start()
        else:
            # One for each job: without the wait for its start that threading.Thread has.
            _thread.start_new_thread(self._work, (run,))

    def _work(self, first: Run) -> None:
        hand, run = _Hand(), first
        values = _thread_dict() if CAN_FORGET else {}
        while True:
            following = self._through(run, values)
            if following is None:
                following = self._rest(hand)
            if following is None:
                return
            if not CAN_FORGET:
                self._begin(following)
                return
            run = following

    def _through(self, run: Run, values: dict[Any, Any]) -> Run | None:
        """Run a job to its end; the next one for this thread, when there is one."""
        run.thread = threading.get_ident()
        if run.kind.isolated:
            change = self._isolated(run)
        else:
            change = self._base.copy().run(perform, run)
        run.thread = None
        if values:
            _forget(values)
        startable = self._slots.end(run, change)
        if startable and not startable[0].kind.on_loop:
            self._start(startable[1:])
            return startable[0]
        self._start(startable)
        return None

    def _rest(self, hand: _Hand) -> Run | None:
        if not CAN_FORGET:
            return None
        with self._lock:
            self._idle.append(hand)
        if not hand.wait(IDLE_FOR):
            with self._lock:
                if hand in self._idle:
                    self._idle.remove(hand)
                    return None
            hand.wait(IDLE_FOR)
        run, hand.run = hand.run, None
        return run
