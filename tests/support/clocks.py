"""A clock that stands still until a test moves it."""

from datetime import UTC, datetime, timedelta

START = datetime(2027, 1, 1, tzinfo=UTC)


class Clock:
    """Microseconds since the epoch, as a store reads them."""

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


def _micros(span: timedelta) -> int:
    return span // timedelta(microseconds=1)
