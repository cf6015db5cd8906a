"""What people type on the command line: durations, instants, queues with limits, priorities."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import click

from yaoki.core.errors import InvalidOption
from yaoki.core.priority import priority_of
from yaoki.core.times import instant, micros

Callback = Callable[[click.Context, click.Parameter, Any], Any]

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_PART = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)(ms|min|[smhd])")
_BARE = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_LIMIT = re.compile(r"[1-9][0-9]{0,7}")


def duration(text: str) -> timedelta:
    """Seconds, or numbers with units: 30, 30s, 5m, 2h, 1d, 1h30m."""
    seconds = _seconds(text.strip().lower())
    if seconds is None:
        raise InvalidOption(f"{text!a} is no duration; write seconds (30) or 30s, 5m, 2h, 1d")
    return timedelta(microseconds=micros(seconds, "a duration"))


def moment(text: str) -> datetime:
    """A date and time with its offset from UTC."""
    try:
        read = datetime.fromisoformat(text.strip())
    except ValueError:
        raise InvalidOption(
            f"{text!a} is no date and time; write one like 2026-12-24T18:00+09:00 or "
            "2026-12-24T09:00Z"
        ) from None
    if read.tzinfo is None:
        raise InvalidOption(_zone_missing(read))
    instant(read, "the instant")
    return read


def queue_limit(text: str) -> tuple[str, int | None]:
    """The name of a queue, or name=5 for at most five of its jobs at once."""
    queue, found, limit = text.rpartition("=")
    if not found:
        return text, None
    if not _LIMIT.fullmatch(limit):
        raise InvalidOption(f"{text!a}: behind = stands a whole number from 1, as in mail=5")
    return queue, int(limit)


def parsed(parse: Callable[[str], object]) -> Callback:
    """A callback for an option whose text `parse` understands, or refuses with a ValueError."""

    def callback(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
        try:
            if isinstance(value, tuple):
                return tuple(parse(each) for each in value)
            return None if value is None else parse(value)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, param) from None

    return callback


DURATION = parsed(duration)
INSTANT = parsed(moment)
QUEUE_LIMIT = parsed(queue_limit)
PRIORITY = parsed(priority_of)


def _seconds(text: str) -> float | None:
    if _BARE.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _zone_missing(naive: datetime) -> str:
    text = naive.isoformat(timespec="minutes")
    try:
        here = naive.astimezone().isoformat(timespec="minutes")
    except (OverflowError, OSError, ValueError):
        here = f"{text}+09:00"
    return f"{text} has no time zone; write {here} for the time here, or {text}Z for UTC"
