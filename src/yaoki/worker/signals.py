"""SIGTERM and SIGINT mean drain; the second one means stop now."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGBREAK") if hasattr(signal, name)
)


@contextmanager
def listening(heard: Callable[[int], None]) -> Iterator[None]:
    """Until the block ends, `heard` gets each such signal; only in the main thread.

    Handlers that were there before are put back afterwards.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        heard(number)

    before = {number: signal.signal(number, handle) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
