"""Middlewares and handlers of every kind, for tests of what is around attempts."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from yaoki import JobContext

Within = Callable[[JobContext], Any]
"""A context manager that stands around `run()`, whichever kind of middleware it is in."""


def middleware(kind: str, within: Within) -> Any:
    """A middleware of this kind that gives back what `run()` gives."""

    def plain(ctx: JobContext, run: Callable[[], Any]) -> Any:
        with within(ctx):
            return run()

    async def awaiting(ctx: JobContext, run: Callable[[], Any]) -> Any:
        with within(ctx):
            return await run()

    return {"plain": plain, "async": awaiting}[kind]


def handler(kind: str, body: Callable[..., Any]) -> Any:
    """A handler of this kind that does the same."""

    def plain(ctx: JobContext) -> Any:
        return body(ctx)

    async def awaiting(ctx: JobContext) -> Any:
        await asyncio.sleep(0.001)
        return body(ctx)

    return {"plain": plain, "async": awaiting}[kind]


@contextmanager
def noting(notes: list[str], name: str) -> Iterator[None]:
    """Notes when it is entered and left."""
    notes.append(f"{name} begins")
    try:
        yield
    finally:
        notes.append(f"{name} ends")
