"""A worker on threads of a process that has something else to do, such as serving the web."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self

from yaoki.core.errors import StoreError, YaokiError
from yaoki.worker.isolated import refuse_when_imported
from yaoki.worker.worker import Worker

log = logging.getLogger("yaoki.worker")

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 15.0
"""Seconds until another one is begun where the last could not start, or ended by itself."""

LONG = 60.0
"""Seconds that one has worked after which it was no failure to start it."""


class WorkerBeside:
    """A block in which a worker runs beside the code in it: `with` or `async with`.

    It listens to no signals. At the end of the block it drains: what has begun gets its grace
    period. A database that is not there, at the beginning or later, is tried again and logged; it
    neither raises here nor holds anything up.
    """

    def __init__(self, make: Callable[[], Worker]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._ended: Future[None] = Future()
        self._worker: Worker | None = None
        self._failures = 0

    @property
    def worker(self) -> Worker | None:
        """The worker that runs now; None before the first was begun, and between two."""
        return self._worker

    def __enter__(self) -> Self:
        refuse_when_imported()
        self._leaving.clear()
        self._ended = Future()
        threading.Thread(target=self._serve, name="yaoki-beside", daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()
        self._ended.result()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._leave()
        await asyncio.shield(asyncio.wrap_future(self._ended))

    def _leave(self) -> None:
        with self._lock:
            self._leaving.set()
            worker = self._worker
        if worker is not None:
            worker.drain()

    def _serve(self) -> None:
        try:
            while not self._leaving.is_set():
                self._leaving.wait(self._work())
        finally:
            self._worker = None
            self._ended.set_result(None)

    def _work(self) -> float:
        """Run a worker to its end; the seconds until the next one begins, unless we leave."""
        began = time.monotonic()
        try:
            worker = self._make()
            with self._lock:
                if self._leaving.is_set():
                    return 0.0
                self._worker = worker
            ending = worker.run(by_signals=False)
            why: object = ending.broken or "it ended by itself"
            unexpected = False
        except BaseException as error:
            why, unexpected = error, not isinstance(error, YaokiError)
        self._worker = None
        if self._leaving.is_set():
            return 0.0
        if time.monotonic() - began >= LONG:
            self._failures = 0
        pause = min(FIRST_PAUSE * 2.0 ** min(self._failures, 10), LONGEST_PAUSE)
        self._failures += 1
        log.log(
            logging.WARNING if isinstance(why, StoreError) else logging.ERROR,
            "there is no worker beside this program; another is begun in %.1f s: %s",
            pause,
            why,
            exc_info=why if unexpected and isinstance(why, BaseException) else None,
            extra={"event": "begun again"},
        )
        return pause
