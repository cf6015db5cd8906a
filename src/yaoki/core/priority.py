"""Which job goes first: a number, or one of four words for one."""

import re

from yaoki.core.errors import InvalidOption
from yaoki.core.failures import shown

LABELS = {"low": 0, "medium": 10, "high": 20, "critical": 30}
LOWEST = -100
HIGHEST = 100

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,3}")


def priority_of(value: int | str) -> int:
    """The number that a label, a number or the text of a number stands for."""
    number = _number(value)
    if number is None or not LOWEST <= number <= HIGHEST:
        raise InvalidOption(
            f"priority must be one of {', '.join(LABELS)} "
            f"or a whole number from {LOWEST} to {HIGHEST}, not {shown(value)}"
        )
    return number


def label_of(priority: int) -> str:
    """The highest label at or below the priority; `low` for all that are below it."""
    reached = [label for label, number in LABELS.items() if number <= priority]
    return reached[-1] if reached else "low"


def _number(value: object) -> int | None:
    match value:
        case bool():
            return None
        case int():
            return int(value)
        case str():
            said = value.strip().lower()
            if _WHOLE_NUMBER.fullmatch(said):
                return int(said)
            return LABELS.get(said)
        case _:
            return None
