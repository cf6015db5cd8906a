"""What handlers write with ctx.log: lines that are kept with the job."""

from datetime import datetime

import msgspec

from yaoki.core.times import as_datetime

LEVELS = ("debug", "info", "warning", "error")

LINES_KEPT = 1_000
"""The newest lines of a job that are kept, over all of its attempts."""

LONGEST_LINE = 1_000
"""Characters of a line; what is longer loses its middle."""


class LogLine(msgspec.Struct, frozen=True):
    """One line of a job's log. `number` counts the lines of each attempt, from 1.

    Only the newest lines of a job are kept, so the first that is there may have a higher number.
    """

    attempt: int
    number: int
    at_us: int
    level: str
    text: str
    token: int
    """The lease of the claim that wrote it; attempts may have one number twice."""

    @property
    def at(self) -> datetime:
        return as_datetime(self.at_us)

    def to_dict(self) -> dict[str, object]:
        """The line as JSON shows it."""
        return {
            "attempt": self.attempt,
            "line": self.number,
            "at": self.at.isoformat(),
            "level": self.level,
            "text": self.text,
        }
