"""Whose transaction operations run in: that of an enclosing block, or one of their own."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from yaoki.store.base import Store
from yaoki.store.op import Op

Run = Callable[[Op[Any]], Any]


class _Scope(NamedTuple):
    store: Store
    run: Run
    thread: int
    task: object


_scope: ContextVar[_Scope | None] = ContextVar("yaoki_scope", default=None)


@contextmanager
def entered(store: Store, run: Run) -> Iterator[None]:
    """Until the block ends, this thread's (or task's) operations go through `run`."""
    token = _scope.set(_Scope(store, run, threading.get_ident(), _task()))
    try:
        yield
    finally:
        _scope.reset(token)


def current(store: Store) -> Run | None:
    """How to run in the enclosing block; None outside, and in threads and tasks begun inside."""
    scope = _scope.get()
    if scope is None or scope.store is not store:
        return None
    if scope.thread != threading.get_ident() or scope.task is not _task():
        return None
    return scope.run


def _task() -> object:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
