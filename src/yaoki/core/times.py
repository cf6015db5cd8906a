"""Instants and durations: whole microseconds inside, datetime and timedelta outside."""

from datetime import UTC, datetime, timedelta
from math import isfinite

from yaoki.core.errors import InvalidOption
from yaoki.core.failures import shown

MAX_DURATION = 36_525 * 86_400 * 1_000_000
"""A hundred years, in microseconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def micros(value: timedelta | int | float, what: str) -> int:
    """A duration in microseconds; `what` names it if it cannot be one."""
    match value:
        case bool():
            length = None
        case timedelta():
            length = value // _MICROSECOND
        case int():
            length = value * 1_000_000
        case float() if isfinite(value):
            length = round(value * 1_000_000) if value <= MAX_DURATION else MAX_DURATION + 1
        case _:
            length = None
    if length is None or not 0 <= length <= MAX_DURATION:
        raise InvalidOption(
            f"{what} must be a timedelta or a number of seconds, "
            f"not negative and at most 100 years; it is {shown(value)}"
        )
    return length


def instant(value: datetime, what: str) -> int:
    """A point in time in microseconds since 1970; `what` names it if it cannot be one."""
    if not isinstance(value, datetime):
        raise InvalidOption(f"{what} must be a datetime with a time zone, not {shown(value)}")
    if value.utcoffset() is None:
        raise InvalidOption(
            f"{what} must have a time zone; {value.isoformat()} has none. "
            f"datetime.now(UTC) and value.astimezone() have one"
        )
    since = (value - _EPOCH) // _MICROSECOND
    if not 0 <= since <= _LAST:
        raise InvalidOption(f"{what} must lie in the years 1970 to 9999; it is {value.isoformat()}")
    return since


def as_datetime(us: int) -> datetime:
    """The instant as an aware datetime; one that datetime cannot hold becomes the nearest."""
    return _EPOCH + min(max(us, _FIRST), _LAST) * _MICROSECOND


def seconds(us: int) -> float:
    """The duration in seconds."""
    return us / 1_000_000


def in_words(seconds: float) -> str:
    """A duration as people say it, to two units: `2 min 30 s`, `3 d 4 h`."""
    if not isfinite(seconds):
        return "for ever" if seconds > 0 else "unknown"
    if seconds < 0:
        return f"-{in_words(-seconds)}"
    if 0 < round(seconds * 1_000) < 1_000:
        return f"{seconds * 1_000:.0f} ms"
    if round(seconds, 1) < 60:
        return f"{round(seconds, 1):g} s"
    return _in_two_units(round(seconds))


def _in_two_units(whole: int) -> str:
    largest = next(index for index, (_, size) in enumerate(_UNITS) if whole >= size)
    said = []
    for name, size in _UNITS[largest : largest + 2]:
        count, whole = divmod(whole, size)
        if count:
            said.append(f"{count} {name}")
    return " ".join(said)
