"""Where async functions run: one event loop on a thread of its own."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context

from yaoki.worker.perform import aperform
from yaoki.worker.run import Run
from yaoki.worker.slots import Slots
from yaoki.worker.threads import NO_THREAD

log = logging.getLogger("yaoki.worker")

TICK = 0.2
"""Seconds between two signs of life of the loop."""

BLOCKED_AFTER = 1.0
"""Seconds without one after which somebody is named for blocking it."""


class Tasks:
    """Starts handlers as tasks. A handler that blocks the loop stops its neighbours, not us."""

    def __init__(self, slots: Slots, base: Context, start: Callable[[list[Run]], None]) -> None:
        self._slots, self._base, self._start = slots, base, start
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._ticked = 0.0
        self._blocker: Run | None = None
        self._stopping = False

    def start(self, runs: list[Run]) -> None:
        try:
            loop = self.running_loop()
            if self._thread is threading.current_thread():
                self._begin(runs)
            else:
                loop.call_soon_threadsafe(self._begin, runs)
        except RuntimeError as error:  # no thread to be had, or the loop has ended
            for run in runs:
                log.error("%s cannot begin, and is handed back: %s", run, error)
                self._slots.never_began(run, NO_THREAD)

    def cancel(self, run: Run) -> None:
        """Raise CancelledError in the handler, where it awaits."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(_cancel, run)

    def stop(self, patience: float) -> None:
        """End the loop; tasks that go on are cancelled, and given a second."""
        loop, thread = self._loop, self._thread
        self._stopping = True
        if loop is not None and thread is not None:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(loop.stop)
            thread.join(patience)

    @property
    def died(self) -> bool:
        """Has the thread of the loop ended, although it was not told to?"""
        return self._thread is not None and not self._stopping and not self._thread.is_alive()

    def look(self) -> None:
        """From another thread: is the loop alive? Names the job that blocks it, once."""
        if self._loop is None or self._blocker is not None:
            return
        blocked = time.monotonic() - self._ticked
        if blocked < BLOCKED_AFTER:
            return
        task = asyncio.current_task(self._loop)
        run = next((run for run in self._slots.running if run.task is task), None)
        if run is not None and task is not None:
            self._blocker = run
            log.warning(
                "%s has blocked the event loop for %.1f s; async handlers must not block: "
                "make it a plain def, which runs in a thread",
                run,
                blocked,
            )

    def running_loop(self) -> asyncio.AbstractEventLoop:
        """The loop, which begins to run when it is first asked for."""
        with self._starting:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                thread = threading.Thread(
                    target=self._serve, args=(loop,), name="yaoki-loop", daemon=True
                )
                self._ticked = time.monotonic()
                try:
                    thread.start()
                except RuntimeError:
                    loop.close()
                    raise
                self._loop, self._thread = loop, thread
            return self._loop

    def _serve(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.call_soon(self._tick)
        try:
            self._run_until_stopped(loop)
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.wait(left, timeout=1.0))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _run_until_stopped(self, loop: asyncio.AbstractEventLoop) -> None:
        """A handler may stop the loop, or exit in a task of its own; the others go on."""
        while not self._stopping:
            try:
                loop.run_forever()
            except BaseException as error:
                log.error("the event loop goes on after a %s", type(error).__name__)

    def _tick(self) -> None:
        now = time.monotonic()
        if self._blocker is not None:
            log.warning("%s blocked the event loop for %.1f s", self._blocker, now - self._ticked)
            self._blocker = None
        self._ticked = now
        asyncio.get_running_loop().call_later(TICK, self._tick)

    def _begin(self, runs: list[Run]) -> None:
        loop = asyncio.get_running_loop()
        for run in runs:
            run.task = loop.create_task(self._perform(run), context=self._base.copy())

    async def _perform(self, run: Run) -> None:
        change = await aperform(run)
        startable = self._slots.end(run, change)
        if all(following.kind.on_loop for following in startable):
            self._begin(startable)
        else:
            self._start(startable)


def _cancel(run: Run) -> None:
    # A task that is cancelled before its first step never gets to say how it ended.
    run.cancelled = True
    if run.task is not None and run.entered:
        run.task.cancel()
