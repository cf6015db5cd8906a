"""The process that runs isolated handlers, one at a time, until its worker lets it go."""

import _thread
import asyncio
import ctypes
import importlib
import os
import signal
import sys
import time
import traceback
from contextlib import redirect_stdout, suppress
from contextvars import copy_context
from operator import attrgetter
from typing import Any

import msgspec

from yaoki.children import Line, hear
from yaoki.core.errors import HookFailed
from yaoki.core.failures import describe, text
from yaoki.core.job import Job
from yaoki.core.outcomes import Change
from yaoki.jobtypes import Hooks, JobSet
from yaoki.jobtypes.context import PROGRESS_EVERY
from yaoki.store import Store, open_store
from yaoki.worker.around import arounds
from yaoki.worker.hooks import shut_down, start_up
from yaoki.worker.isolated import logs, memory, stacks
from yaoki.worker.isolated.attempt import Attempt
from yaoki.worker.isolated.context import IsolatedContext
from yaoki.worker.isolated.event_loop import EventLoop
from yaoki.worker.isolated.messages import (
    Begun,
    Ended,
    Leave,
    MayCommit,
    Ready,
    Setup,
    Stop,
    Unready,
    Work,
)
from yaoki.worker.isolated.wire import Wire
from yaoki.worker.perform import aperform, perform
from yaoki.worker.run import STOPPED
from yaoki.worker.threads import NO_THREAD

UNSAID = 70
"""The exit code of a child that could not say how a job ended."""


def serve(line: Line, args: Any) -> int:
    """The life of a child; its exit code."""
    hear(_ignore)
    setup = msgspec.convert(args, Setup)
    _end_with(setup.parent)
    wire, written_to = Wire(line), stacks.begin()
    try:
        program = _program(setup, wire)
    except BaseException as error:
        wire.send(Unready(_explained(error)))
        return 1
    hear(_ignore)  # the app may have had other ideas
    logs.adopt(setup.levels, wire)
    wire.send(Ready(written_to))
    program.listen()
    program.end()
    return 0


class Program:
    """The main thread listens; each plain handler has a thread that is new, and async ones a loop.

    So nothing is carried from one job to the next, and a handler is told to stop while it runs.
    """

    def __init__(
        self, wire: Wire, store: Store, types: JobSet, hooks: Hooks, lease_for: float
    ) -> None:
        self._wire, self._store, self._types = wire, store, types
        self._hooks, self._lease_for = hooks, lease_for
        self._loop = EventLoop()
        self._base = copy_context()
        self._arounds = arounds(hooks, types, self._loop.running)
        self._attempt: Attempt | None = None

    def begin(self) -> None:
        start_up(self._hooks, self._base, self._loop.running)

    def end(self) -> None:
        shut_down(self._hooks, self._base, self._loop.running)
        self._store.close()

    def listen(self) -> None:
        """Do what the worker says, until it says leave."""
        while True:
            message = self._wire.receive(None if self._attempt is None else PROGRESS_EVERY)
            match message:
                case None:
                    self._write_progress()
                case Work():
                    self._begin(message)
                case Stop():
                    self._stop(message)
                case MayCommit():
                    self._wire.answered(message)
                case Leave():
                    return

    def _begin(self, work: Work) -> None:
        job = Job(tuple(work.row), _claimed=True)
        self._wire.send(Begun(work.number))
        kind = self._types.get(job.type)
        assert kind is not None, "its worker has seen that it is known"
        context = IsolatedContext(self._wire, work.number, self._store, job, self._lease_for)
        attempt = Attempt(work.number, job, kind, context)
        attempt.around = self._arounds.get(kind.name)
        attempt.begin(time.monotonic())
        self._attempt = attempt
        try:
            if kind.is_async:
                self._loop.running().call_soon_threadsafe(self._begin_task, attempt)
            else:
                _thread.start_new_thread(self._work, (attempt,))
        except RuntimeError:
            attempt.worn = True
            self._ended(attempt, NO_THREAD)

    def _work(self, attempt: Attempt) -> None:
        """On the thread of a plain handler."""
        memory.limit(attempt.kind.memory_limit)
        change: Change | None
        try:
            change = self._base.copy().run(perform, attempt)
        except BaseException as error:  # there is no memory for even that much
            change = attempt.raised(error)
        self._ended(attempt, change)

    def _begin_task(self, attempt: Attempt) -> None:
        """On the loop of async handlers."""
        memory.limit(attempt.kind.memory_limit)
        loop = asyncio.get_running_loop()
        attempt.task = loop.create_task(self._awork(attempt), context=self._base.copy())

    async def _awork(self, attempt: Attempt) -> None:
        self._ended(attempt, await aperform(attempt))

    def _ended(self, attempt: Attempt, change: Change | None) -> None:
        memory.limit(None)
        # Before it is told: what is told makes the next job come.
        self._attempt = None
        if not attempt.context.settled_by_handler:
            attempt.context.send_lines()
        newest = attempt.context.newest_progress()
        ended = Ended(attempt.number, change, newest, attempt.handed_back, attempt.worn)
        try:
            self._wire.send(ended)
        except Exception:
            # Else its worker would wait for ever.
            traceback.print_exc()
            os._exit(UNSAID)

    def _stop(self, message: Stop) -> None:
        attempt = self._attempt
        if attempt is None or attempt.number != message.number:
            return
        attempt.context.stop(message.reason)
        if message.reason == "lease lost":
            attempt.break_off()
        if attempt.kind.is_async and message.reason in STOPPED:
            self._loop.running().call_soon_threadsafe(attempt.cancel)

    def _write_progress(self) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.context.progress_is_due:
            attempt.context.write_progress()


def _program(setup: Setup, wire: Wire) -> Program:
    with suppress(OSError):
        os.chdir(setup.folder)
    _close_stdin()
    with suppress(Exception):
        # What a handler prints is seen when it is printed, not when the process ends.
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    with redirect_stdout(sys.stderr):
        for name in setup.modules:
            importlib.import_module(name)
    module, _, attribute = setup.app.partition(":")
    app: Any = attrgetter(attribute)(sys.modules[module])
    for name in setup.types:
        if name not in app.types:
            raise LookupError(f"{setup.app} has no job type {name!r} there")
    if app.url != setup.url:
        app.store = open_store(setup.url)
    program = Program(wire, app.store, app.types, app.hooks, setup.lease_for)
    program.begin()
    return program


def _close_stdin() -> None:
    """A handler that asks finds nothing, and takes nothing from its worker."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    if nothing != 0:
        os.close(nothing)


def _explained(error: BaseException) -> str:
    """In one line: what it says, and where it was raised."""
    said = str(error) if isinstance(error, HookFailed) else describe(error).error
    frames = [] if isinstance(error, HookFailed) else traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename} line {frames[-1].lineno})" if frames else ""
    return text(said, 500).replace("\n", " ") + where


def _end_with(parent: int) -> None:
    """Be killed when the worker is: a handler may keep us from hearing that its line is closed."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if hasattr(os, "getppid") and os.getppid() != parent:
        sys.exit(1)


_PR_SET_PDEATHSIG = 1


def _ignore(number: int) -> None:
    """Signals that reach the whole service are for the worker: it says when this is to end."""
