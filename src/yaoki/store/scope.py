"""Whose transaction operations run in: that of an enclosing block, or one of their own."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, NoReturn, TypeVar

from yaoki.core.errors import NotHere
from yaoki.store.base import Run, Store
from yaoki.store.op import Op

T = TypeVar("T")


class Awaited:
    """How to run on a connection that has to be awaited; whoever does not await is refused."""

    def __init__(self, run: Callable[[Op[Any]], Awaitable[Any]]) -> None:
        self.run = run

    def __call__(self, op: Op[Any]) -> NoReturn:
        raise NotHere(
            "this block is on a connection that has to be awaited, so await the twin of this call "
            "here: await app.aenqueue(…) in the place of app.enqueue(…)"
        )


class _Scope(NamedTuple):
    store: Store
    run: Run
    thread: int
    task: object
    outer: "_Scope | None"
    """The block around it, which may be another app's."""


_scope: ContextVar[_Scope | None] = ContextVar("yaoki_scope", default=None)


@contextmanager
def entered(store: Store, run: Run) -> Iterator[None]:
    """Until the block ends, this thread's (or task's) operations go through `run`."""
    token = _scope.set(_Scope(store, run, threading.get_ident(), _task(), _scope.get()))
    try:
        yield
    finally:
        _scope.reset(token)


def current(store: Store) -> Run | None:
    """How to run in the enclosing block; None outside, and in threads and tasks begun inside."""
    scope = _scope.get()
    while scope is not None and scope.store is not store:
        scope = scope.outer
    if scope is None or scope.thread != threading.get_ident() or scope.task is not _task():
        return None
    return scope.run


async def awaited(run: Run, op: Op[T]) -> T:
    """Run `op` by `run`, whether that blocks or has to be awaited."""
    value: T = await run.run(op) if isinstance(run, Awaited) else run(op)
    return value


def _task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
