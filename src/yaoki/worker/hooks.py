"""Running what an app does when a process that runs its handlers begins, and when it ends."""

import asyncio
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import Context
from typing import Any

from yaoki.core.errors import HookFailed
from yaoki.core.failures import describe, text
from yaoki.jobtypes import Hooks
from yaoki.jobtypes.hooks import Hook, is_async, name_of

log = logging.getLogger("yaoki.worker")

GetLoop = Callable[[], asyncio.AbstractEventLoop]
Wait = Callable[["Future[None]"], bool]
"""Waits until it is done, and says whether it is: False when the patience is over."""


def _until_done(ended: "Future[None]") -> bool:
    ended.exception()
    return True


def start_up(hooks: Hooks, base: Context, loop: GetLoop, wait: Wait = _until_done) -> None:
    """Run the start-up hooks, one after the other; HookFailed when one fails.

    They run in `base`, so handlers, which get copies of it, see the context variables that they
    set. What has to be awaited runs on `loop()`, the loop of async handlers.
    """
    for hook in hooks.startup:
        problem = _problem(hook, base, loop, wait)
        if problem is not None:
            raise HookFailed(f"on_startup {name_of(hook)}: {problem[0]}") from problem[1]


def shut_down(hooks: Hooks, base: Context, loop: GetLoop, wait: Wait = _until_done) -> None:
    """Run the shutdown hooks, the last one first. One that fails is logged."""
    for hook in reversed(hooks.shutdown):
        # A copy: one that does not end would keep the next from using the same.
        problem = _problem(hook, base.copy(), loop, wait)
        if problem is not None:
            log.error(
                "on_shutdown %s: %s",
                name_of(hook),
                problem[0],
                extra={"event": "hook failed"},
            )


def _problem(
    hook: Hook, context: Context, loop: GetLoop, wait: Wait
) -> tuple[str, BaseException | None] | None:
    ended: Future[None] = Future()
    try:
        if is_async(hook):
            loop().call_soon_threadsafe(_begin_task, hook, context, ended)
        else:
            run = threading.Thread(
                target=context.run, args=(_run, hook, ended), name="yaoki-hook", daemon=True
            )
            run.start()
    except RuntimeError as problem:  # no more threads to be had
        return text(problem, 300), problem
    if not wait(ended):
        return "it had not ended when its time was up", None
    error = ended.exception()
    return None if error is None else (_said(error), error)


def _run(hook: Callable[[], Any], ended: "Future[None]") -> None:
    try:
        hook()
    except BaseException as error:
        ended.set_exception(error)
    else:
        ended.set_result(None)


def _begin_task(hook: Callable[[], Any], context: Context, ended: "Future[None]") -> None:
    task = asyncio.get_running_loop().create_task(_arun(hook, ended), context=context)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


async def _arun(hook: Callable[[], Awaitable[None]], ended: "Future[None]") -> None:
    try:
        await hook()
    except BaseException as error:
        ended.set_exception(error)
    else:
        ended.set_result(None)


_tasks: set[asyncio.Task[None]] = set()
"""The loop itself keeps only weak references to its tasks."""


def _said(error: BaseException) -> str:
    """In one line: what it says, and where it was raised."""
    said = text(describe(error).error, 300).replace("\n", " ")
    frames = traceback.extract_tb(error.__traceback__)
    return f"{said} ({frames[-1].filename} line {frames[-1].lineno})" if frames else said
