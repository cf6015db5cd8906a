"""Gives a Python another wall clock: put this folder on its PYTHONPATH.

OTHER_CLOCK is how many seconds it is ahead, or the name of a file that says so, at any time.
"""

import os
import time

_said = os.environ.get("OTHER_CLOCK", "0")
_time_ns, _monotonic = time.time_ns, time.monotonic
_seen = [-1.0, 0]


def _ahead() -> int:
    """Nanoseconds; a file is looked at again after a few milliseconds."""
    if not os.path.isabs(_said):
        return round(float(_said) * 10**9)
    now = _monotonic()
    if now - _seen[0] > 0.005:
        with open(_said) as file:
            words = file.read()
        _seen[:] = [now, round(float(words or 0) * 10**9)]
    return int(_seen[1])


time.time_ns = lambda: _time_ns() + _ahead()
time.time = lambda: time.time_ns() / 10**9
