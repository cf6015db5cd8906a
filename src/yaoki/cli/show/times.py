"""Instants and durations as people read them: local time with its zone, and how long ago."""

import math
import os
from datetime import UTC, datetime

from yaoki.core.times import in_words


def now() -> datetime:
    """The present; YAOKI_NOW (an instant with its offset) stands still for tests."""
    fixed = os.environ.get("YAOKI_NOW")
    return datetime.fromisoformat(fixed) if fixed else datetime.now(UTC)


def moment(instant: datetime, present: datetime) -> str:
    """Local time to the second with its zone; without the date when that is today's."""
    try:
        local, today = instant.astimezone(), present.astimezone().date()
    except (OverflowError, OSError, ValueError):  # the edges of the calendar have no local time
        return instant.strftime("%Y-%m-%d %H:%M:%S UTC")
    date = "" if local.date() == today else f"{local:%Y-%m-%d} "
    return f"{date}{local:%H:%M:%S} {local.tzname() or local.strftime('%z')}"


def ahead(instant: datetime, present: datetime) -> str:
    """How long until then, as in "in 5 min"; "now" when it has come."""
    seconds = math.ceil((instant - present).total_seconds() - 0.05)
    return f"in {in_words(seconds)}" if seconds > 0 else "now"


def since(instant: datetime, present: datetime) -> str:
    """How long it has been, as in "12 s"; a clock that is ahead of ours counts as none."""
    return in_words(max(math.floor((present - instant).total_seconds()), 0))


def ago(instant: datetime, present: datetime) -> str:
    """How long ago, as in "3 min ago"."""
    seconds = (present - instant).total_seconds()
    if seconds < 0:
        return ahead(instant, present)
    return "just now" if seconds < 1 else f"{since(instant, present)} ago"


def took(start: datetime, end: datetime) -> str:
    """How long something took."""
    return in_words(max((end - start).total_seconds(), 0.0))
