"""The worker process of a supervisor: runs a worker, hears what it is told, gives signs of life."""

import logging
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from yaoki import children
from yaoki.children import Gone, Line
from yaoki.core.errors import StoreError
from yaoki.store.sqlite import place
from yaoki.supervisor.messages import TO_CHILD, Beat, Drain, Ended, Hello, Hurry, Ready, Refused
from yaoki.supervisor.system import memory_used
from yaoki.worker import Worker
from yaoki.worker.board import UNRECORDED, Board

log = logging.getLogger("yaoki.supervisor")

BEAT_EVERY = 1.0

Refusal = Callable[[Exception], tuple[int, str | None]]
"""The exit code, and the line, for an error that kept a worker from beginning."""


def serve(line: Line, args: Any, prepare: Callable[[Any], Worker], refusal: Refusal) -> int:
    """Run the worker that `prepare` makes of its order, until somebody says drain.

    A signal here never means more than that: it may have been sent to all processes of a service
    at once, and whether it is the second one, the supervisor knows. When that is gone, drain too.
    """
    told = _Told()
    children.hear(told.signalled)
    threading.Thread(target=_listen, args=(line, told), name="yaoki-told", daemon=True).start()
    try:
        worker = prepare(args["order"])
        worker.slots.board = Board.if_possible(
            args["board"], worker.settings.concurrency + UNRECORDED
        )
        # The app may have set handlers of its own while it was imported.
        children.hear(told.signalled)
    except Exception as error:
        return _refuse(line, error, refusal)
    line.send(
        Hello(
            _from_anywhere(worker._store.url),
            worker.settings.worker_id,
            worker.settings.concurrency,
            worker.settings.lease_for,
        )
    )
    told.now_about(worker)
    threading.Thread(target=_beat, args=(line, worker), name="yaoki-beat", daemon=True).start()
    try:
        code = worker.run(by_signals=False).exit_code
    except Exception as error:
        return _refuse(line, error, refusal)
    line.send(Ended(code))
    return code


def _from_anywhere(url: str) -> str:
    """A URL for a process whose working directory may be another; the app may have changed ours."""
    if not url.startswith(place.PREFIX):
        return url
    path = place.parse(url).path
    _, found, options = url.partition("?")
    if path is None or path.is_absolute():
        return url
    return f"{place.PREFIX}/{quote(path.absolute().as_posix(), safe='/:')}{found}{options}"


class _Told:
    """What this process was told to do; kept until there is a worker to do it."""

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._orders: list[Drain | Hurry | None] = []

    def signalled(self, number: int) -> None:
        """In a signal handler: takes no lock."""
        self.add(None)

    def add(self, order: Drain | Hurry | None) -> None:
        """None: drain with the worker's own grace."""
        self._orders.append(order)
        self._pass_on()

    def now_about(self, worker: Worker) -> None:
        self._worker = worker
        self._pass_on()

    def _pass_on(self) -> None:
        worker = self._worker
        while worker is not None and self._orders:
            with suppress(IndexError):
                match self._orders.pop(0):
                    case None:
                        worker.drain()
                    case Drain(grace):
                        worker.drain(float("inf") if grace is None else grace)
                    case Hurry(number):
                        worker.hurry(number)


def _listen(line: Line, told: _Told) -> None:
    with suppress(Gone):
        while True:
            told.add(line.receive(TO_CHILD))
    told.add(None)


def _beat(line: Line, worker: Worker) -> None:
    """Whoever holds the interpreter for long keeps this from being said: that is what it is for."""
    while not worker.ready.wait(BEAT_EVERY):
        if not line.send(_sign(worker)):
            return
    line.send(Ready(_files()))
    while line.send(_sign(worker)):
        time.sleep(BEAT_EVERY)


def _sign(worker: Worker) -> Beat:
    return Beat(worker.slots.done, worker.slots.leaked, memory_used())


def _files() -> list[str]:
    """Where the modules of this process came from, but for those that were installed."""
    found = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    installed = (sys.prefix, sys.base_prefix)
    return sorted(
        {
            file
            for file in found
            if isinstance(file, str) and file.endswith(".py") and not file.startswith(installed)
        }
    )


def _refuse(line: Line, error: Exception, refusal: Refusal) -> int:
    code, why = refusal(error)
    line.send(Refused(code, why or "", isinstance(error, StoreError)))
    return code
