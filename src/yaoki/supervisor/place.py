"""A place for one worker process: when the next one may be started in it."""

import time

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0
LONGEST_WITHOUT_DATABASE = 3.0

LONG_ENOUGH = 60.0
"""Seconds after which a process that ends is no sign that the next one will, too."""

GIVES_UP_AFTER = 5
"""Processes in a row that never became ready."""


class Place:
    """Counts what went wrong in it; the waits between starts grow with that."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.due_at = 0.0
        self.is_done = False
        """Its process has ended because nothing is left to do (--until-empty)."""
        self.never_ready = 0
        self._failures = 0

    def free(self) -> None:
        """The next may start at once."""
        self.due_at, self._failures = 0.0, 0

    def failed(self, lived: float, *, counts: bool, passing: bool = False) -> float:
        """Its process has ended and should not have; the seconds until the next may start.

        `lived`: how long it was up. `counts`: it never became ready, and its program is to blame.
        `passing`: the database is, which may be back at any moment.
        """
        self._failures = 1 if lived >= LONG_ENOUGH else self._failures + 1
        self.never_ready += counts
        longest = LONGEST_WITHOUT_DATABASE if passing else LONGEST_PAUSE
        pause = min(FIRST_PAUSE * 2.0 ** min(self._failures - 1, 10), longest)
        self.due_at = time.monotonic() + pause
        return pause

    @property
    def gives_up(self) -> bool:
        return self.never_ready >= GIVES_UP_AFTER
