"""Clocks that a test moves: of a store, and of other processes."""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2027, 1, 1, tzinfo=UTC)


class Clock:
    """Microseconds since the epoch, as a store reads them; it stands still until it is moved."""

    def __init__(self, start: datetime = START) -> None:
        self.now = _micros(start - datetime.fromtimestamp(0, UTC))

    def __call__(self) -> int:
        return self.now

    def advance(self, by: float | timedelta) -> None:
        """Let so many seconds pass; negative ones are a clock that was set back."""
        self.now += _micros(by if isinstance(by, timedelta) else timedelta(seconds=by))

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.now)


class HostClock:
    """The wall clock of a machine, which goes on, and which somebody sets forward and back."""

    def __init__(self, file: Path) -> None:
        self._file, self._ahead = file, 0.0
        self.set(0)

    def __call__(self) -> int:
        """Microseconds since the epoch, for a store of this process."""
        return time.time_ns() // 1000 + round(self._ahead * 1_000_000)

    def set(self, ahead: float) -> None:
        """So many seconds ahead of the true time, for all who have it."""
        new = self._file.with_suffix(".new")
        new.write_text(str(ahead))
        new.replace(self._file)
        self._ahead = ahead

    @property
    def environment(self) -> Mapping[str, str]:
        """For a process on that machine."""
        return other_clock(str(self._file.absolute()))


def other_clock(ahead: float | str) -> Mapping[str, str]:
    """The environment of a Python whose wall clock is so many seconds ahead."""
    folder = Path(__file__).parent / "other_clock"
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    return {"OTHER_CLOCK": str(ahead), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def _micros(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
