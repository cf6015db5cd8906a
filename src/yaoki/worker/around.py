"""Calling a handler through the middlewares that are around it, whatever each of them is.

Where all are plain, or all have to be awaited, it is one call inside the other. Where they are
mixed, an attempt has a thread and a task, and goes on in one of them while the other waits for it:
a plain middleware never blocks the event loop, and a plain handler stays on its own thread. Context
variables go along at every change.
"""

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any, NamedTuple

from yaoki.core.errors import NotHere
from yaoki.jobtypes import AnyJobType, Hooks
from yaoki.jobtypes.hooks import Middleware, is_async, name_of
from yaoki.worker.run import Run

GetLoop = Callable[[], asyncio.AbstractEventLoop]


def arounds(hooks: Hooks, types: Iterable[AnyJobType], loop: GetLoop) -> Mapping[str, "Around"]:
    """How to call the handlers of those job types that have middlewares, by name."""
    chains = [(kind, hooks.chain(kind.around)) for kind in types]
    return {kind.name: Around(chain, kind.is_async, loop) for kind, chain in chains if chain}


class Around:
    """The middlewares of a job type, the outermost first.

    An object that has an `acall` beside its `__call__` is used in the way that fits the handler.
    `loop` gives the event loop on which those that have to be awaited run.
    """

    def __init__(self, chain: Sequence[Middleware], awaits: bool, loop: GetLoop) -> None:
        fitting = [getattr(each, "acall", each) if awaits else each for each in chain]
        self._chain = [(middleware, is_async(middleware)) for middleware in fitting]
        self._loop = loop
        self._has_plain = not all(awaits for _, awaits in self._chain)
        self._has_async = any(awaits for _, awaits in self._chain)

    def call(self, run: Run) -> Any:
        """On the thread of a plain handler: what the outermost middleware returns or raises."""
        if not self._has_async:
            return _plain(self._chain, run, 0)
        both = _Both(self._chain, run, self._loop())
        try:
            return both.plain(0)
        finally:
            both.end_task()

    async def acall(self, run: Run) -> Any:
        """The same in the task of an async handler."""
        if not self._has_plain:
            return await _awaiting(self._chain, run, 0)
        both = _Both(self._chain, run, asyncio.get_running_loop())
        try:
            return await both.awaiting(0)
        finally:
            both.end_thread()


_Chain = Sequence[tuple[Middleware, bool]]


def _plain(chain: _Chain, run: Run, place: int) -> Any:
    if place == len(chain):
        return run.kind.function(**run.arguments())
    middleware, _ = chain[place]
    return middleware(run.context, _once(middleware, lambda: _plain(chain, run, place + 1)))


async def _awaiting(chain: _Chain, run: Run, place: int) -> Any:
    if place == len(chain):
        return await run.kind.function(**run.arguments())
    middleware, _ = chain[place]
    following = _once(middleware, lambda: _awaiting(chain, run, place + 1))
    return await middleware(run.context, following)


def _once(middleware: Middleware, go_on: Callable[[], Any]) -> Callable[[], Any]:
    """`go_on`, which raises when it is called again: an attempt runs its handler once."""
    calls: list[None] = []

    def run() -> Any:
        # Appending is one step, also for two threads at once.
        calls.append(None)
        if len(calls) > 1:
            raise NotHere(
                f"{name_of(middleware)} called run() twice; an attempt runs its handler once, and "
                "to run it again is what retries are for"
            )
        return go_on()

    return run


class _Call(NamedTuple):
    """Asks the other side to go on with this."""

    function: Callable[[], Any]
    context: Context


class _Done(NamedTuple):
    """Its answer."""

    value: Any
    error: BaseException | None
    context: Context

    def outcome(self) -> Any:
        if self.error is None:
            return self.value
        try:
            raise self.error
        finally:
            del self  # else the error would keep itself alive through its traceback


class _Both:
    """An attempt that goes on by turns on a thread and in a task.

    Each side that waits for the other does meanwhile what that one asks of it, so there are never
    more than two, however long the chain is. One of them is the worker's; the other begins when it
    is first needed.
    """

    def __init__(self, chain: _Chain, run: Run, loop: asyncio.AbstractEventLoop) -> None:
        self._chain, self._run, self._loop = chain, run, loop
        self._for_thread: queue.SimpleQueue[_Call | _Done | None] = queue.SimpleQueue()
        self._for_task: deque[_Call | _Done | None] = deque()
        self._waiters: list[asyncio.Future[None]] = []
        self._thread: threading.Thread | None = None
        self._task_asked_for = False
        self._cancelled = False

    # What is in the chain, from a place on

    def plain(self, place: int) -> Any:
        """On the thread."""
        if place == len(self._chain):
            if self._run.kind.is_async:
                return self._in_task(lambda: self.awaiting(place))
            return self._run.kind.function(**self._run.arguments())
        middleware, awaits = self._chain[place]
        if awaits:
            return self._in_task(lambda: self.awaiting(place))
        return middleware(self._run.context, _once(middleware, lambda: self.plain(place + 1)))

    async def awaiting(self, place: int) -> Any:
        """In the task."""
        if place == len(self._chain):
            if not self._run.kind.is_async:
                return await self._on_thread(lambda: self.plain(place))
            return await self._run.kind.function(**self._run.arguments())
        middleware, awaits = self._chain[place]
        if not awaits:
            return await self._on_thread(lambda: self.plain(place))
        following = _once(middleware, lambda: self.awaiting(place + 1))
        return await middleware(self._run.context, following)

    # From one to the other

    def _in_task(self, function: Callable[[], Awaitable[Any]]) -> Any:
        if not self._run.kind.is_async and not self._task_asked_for:
            self._task_asked_for = True
            self._loop.call_soon_threadsafe(self._begin_task, copy_context())
        self._tell_task(_Call(function, copy_context()))
        while True:
            message = self._for_thread.get()
            if message is None:
                raise asyncio.CancelledError
            if isinstance(message, _Done):
                _carry(message.context)
                return message.outcome()
            self._answer(message)

    async def _on_thread(self, function: Callable[[], Any]) -> Any:
        if self._run.kind.is_async and self._thread is None:
            self._thread = threading.Thread(
                target=copy_context().run, args=(self._serve,), name="yaoki-around", daemon=True
            )
            self._thread.start()
        self._for_thread.put(_Call(function, copy_context()))
        while True:
            message = await self._heard()
            if message is None:
                raise asyncio.CancelledError
            if isinstance(message, _Done):
                # What was done on the thread is done, also when we were cancelled meanwhile.
                _carry(message.context)
                return message.outcome()
            await self._aanswer(message)

    def _answer(self, call: _Call) -> None:
        _carry(call.context)
        value, error = None, None
        try:
            value = call.function()
        except BaseException as raised:
            error = raised
        self._tell_task(_Done(value, error, copy_context()))
        del error

    async def _aanswer(self, call: _Call) -> None:
        _carry(call.context)
        value, error = None, None
        try:
            if self._cancelled:
                self._cancelled = False
                raise asyncio.CancelledError
            value = await call.function()
        except GeneratorExit:  # the loop was closed while we were in the middle
            self._for_thread.put(None)
            raise
        except BaseException as raised:
            error = raised
        self._for_thread.put(_Done(value, error, copy_context()))
        del error

    async def _heard(self) -> _Call | _Done | None:
        """The next message of the thread.

        A thread cannot be interrupted, so who cancels the task meanwhile is heard when the thread
        next goes on in the task.
        """
        while not self._for_task:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                self._cancelled = True
        # The end is for all who wait: a middleware may have left a run() behind in a task.
        return None if self._for_task[0] is None else self._for_task.popleft()

    def _tell_task(self, message: _Call | _Done | None) -> None:
        self._for_task.append(message)
        self._loop.call_soon_threadsafe(self._rouse)

    def _rouse(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    # The side that is not the worker's

    def _serve(self) -> None:
        while (message := self._for_thread.get()) is not None:
            if isinstance(message, _Call):
                try:
                    self._answer(message)
                except RuntimeError:  # the loop is closed: nobody waits any more
                    return

    def _begin_task(self, context: Context) -> None:
        self._run.task = self._loop.create_task(self._aserve(), context=context)

    async def _aserve(self) -> None:
        while (message := await self._heard()) is not None:
            if isinstance(message, _Call):
                await self._aanswer(message)

    def end_task(self) -> None:
        """For the thread, at its end."""
        if self._task_asked_for:
            try:
                self._tell_task(None)
            except RuntimeError:  # the loop is closed
                return

    def end_thread(self) -> None:
        """For the task, at its end."""
        self._for_thread.put(None)


_nothing = object()


def _carry(context: Context) -> None:
    """Let context variables have the values that they have there."""
    variable: ContextVar[Any]
    for variable, value in context.items():
        if variable.get(_nothing) is not value:
            variable.set(value)
