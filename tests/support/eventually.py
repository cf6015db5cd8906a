"""Waiting for facts instead of sleeping."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(fact: Callable[[], T], within: float = 5.0, every: float = 0.01) -> T:
    """The first true answer of `fact`; after `within` seconds, an error with the last one."""
    end = time.monotonic() + within
    while True:
        last = fact()
        if last:
            return last
        if time.monotonic() >= end:
            raise AssertionError(f"not true within {within} s; the last answer was {last!r}")
        time.sleep(every)
