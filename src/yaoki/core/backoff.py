"""How long to wait before trying a job again."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import timedelta
from inspect import iscoroutinefunction
from math import isfinite
from random import Random
from typing import Any, ClassVar, Literal, get_args

import msgspec

from yaoki.core.errors import InvalidOption
from yaoki.core.failures import shown
from yaoki.core.times import micros

Duration = timedelta | int | float
"""A timedelta, or seconds."""

Jitter = Literal["none", "equal", "full"]
"""How much of a wait is left to chance: nothing, half of it, or all of it."""

MAX_WAIT = 365 * 86_400.0
"""Seconds; no wait is longer, whatever its rule says."""


class Backoff(ABC):
    """How long to wait after a failed attempt, in seconds.

    `attempt` counts the attempts used so far: 1 after the first failure. Every wait lies between
    `floor` and `ceiling`; the jitter says how far the floor is below.
    """

    __slots__ = ()

    jitter: Jitter = "none"

    @abstractmethod
    def ceiling(self, attempt: int) -> float:
        """The longest wait after so many attempts."""

    def floor(self, attempt: int) -> float:
        """The shortest wait after so many attempts."""
        return _floor(self.ceiling(attempt), self.jitter)

    def wait(self, attempt: int, rng: Random) -> float:
        """A wait by chance, between the shortest and the longest."""
        longest = self.ceiling(attempt)
        shortest = _floor(longest, self.jitter)
        return min(shortest + (longest - shortest) * rng.random(), longest)

    def to_dict(self) -> dict[str, object]:
        """What a job's row keeps; of a rule that is code it keeps the default instead."""
        return {**exponential().to_dict(), "own": True}


class _Storable(Backoff):
    """A back-off that is all numbers, so that a row can keep it."""

    __slots__ = ()

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, object]:
        numbers: dict[str, object] = asdict(self)  # type: ignore[call-overload]
        return {"kind": self.kind, **numbers}


@dataclass(frozen=True, slots=True)
class Exponential(_Storable):
    """See exponential()."""

    kind = "exponential"
    first: float
    factor: float
    cap: float
    jitter: Jitter

    def ceiling(self, attempt: int) -> float:
        if self.first == 0:
            return 0.0
        try:
            return min(self.first * self.factor ** _failures_before(attempt), self.cap)
        except OverflowError:  # the power comes before the cap
            return self.cap


@dataclass(frozen=True, slots=True)
class Linear(_Storable):
    """See linear()."""

    kind = "linear"
    first: float
    step: float
    cap: float
    jitter: Jitter

    def ceiling(self, attempt: int) -> float:
        return min(self.first + self.step * _failures_before(attempt), self.cap)


@dataclass(frozen=True, slots=True)
class Fixed(_Storable):
    """See fixed()."""

    kind = "fixed"
    wait_for: float
    jitter: Jitter

    def ceiling(self, attempt: int) -> float:
        return self.wait_for


@dataclass(frozen=True, slots=True)
class Waits(_Storable):
    """See waits()."""

    kind = "waits"
    durations: tuple[float, ...]
    jitter: Jitter

    def ceiling(self, attempt: int) -> float:
        return self.durations[min(_failures_before(attempt), len(self.durations) - 1)]


@dataclass(frozen=True, slots=True)
class ByFunction(Backoff):
    """See by_function()."""

    function: Callable[[int], Duration]

    def ceiling(self, attempt: int) -> float:
        return in_seconds(self.function(attempt), f"what the back-off says for attempt {attempt}")


def exponential(
    first: Duration = 10,
    factor: float = 2,
    cap: Duration | None = 600,
    jitter: Jitter = "equal",
) -> Backoff:
    """Each wait is `factor` times the one before; none is longer than `cap`, the first included."""
    return Exponential(in_seconds(first, "first"), _factor(factor), _cap(cap), _jitter(jitter))


def linear(
    first: Duration = 10,
    step: Duration = 10,
    cap: Duration | None = 600,
    jitter: Jitter = "none",
) -> Backoff:
    """Each wait is `step` longer than the one before; none is longer than `cap`."""
    return Linear(in_seconds(first, "first"), in_seconds(step, "step"), _cap(cap), _jitter(jitter))


def fixed(wait: Duration, jitter: Jitter = "none") -> Backoff:
    """Every wait is the same."""
    return Fixed(in_seconds(wait, "wait"), _jitter(jitter))


def waits(*durations: Duration, jitter: Jitter = "none") -> Backoff:
    """These waits, one after the other; the last one repeats."""
    if not durations:
        raise InvalidOption("waits() needs at least one duration")
    return Waits(tuple(in_seconds(each, "a wait") for each in durations), _jitter(jitter))


def by_function(function: Callable[[int], Duration]) -> Backoff:
    """What a function of one's own says; it is given the number of attempts used so far."""
    if not callable(function) or iscoroutinefunction(function):
        raise InvalidOption(f"by_function() needs a plain function, not {shown(function)}")
    return ByFunction(function)


def read_backoff(text: str | None) -> Backoff:
    """The back-off that a job's row keeps as JSON; the default where there is none."""
    try:
        return exponential() if text is None else backoff_from(msgspec.json.decode(text))
    except (msgspec.DecodeError, UnicodeError):
        return exponential()


def backoff_from(stored: object) -> Backoff:
    """The back-off that to_dict() wrote; the default where that makes no sense."""
    try:
        options: dict[str, Any] = dict(stored)  # type: ignore[call-overload]
        return _MAKERS[options.pop("kind")](**options)
    except (KeyError, TypeError, ValueError):
        return exponential()


_MAKERS: dict[str, Callable[..., Backoff]] = {
    "exponential": exponential,
    "linear": linear,
    "fixed": lambda wait_for, jitter: fixed(wait_for, jitter),
    "waits": lambda durations, jitter: waits(*durations, jitter=jitter),
}


def _failures_before(attempt: int) -> int:
    # The bound keeps the number within what a float can be made of.
    return min(max(attempt, 1), 2**62) - 1


def _floor(ceiling: float, jitter: Jitter) -> float:
    match jitter:
        case "none":
            return ceiling
        case "equal":
            return ceiling / 2
        case "full":
            return min(ceiling, 0.001)


def in_seconds(value: Duration, what: str) -> float:
    """A wait in seconds, from 0 to MAX_WAIT; `what` names it if it cannot be one."""
    seconds = micros(value, what) / 1_000_000
    if seconds > MAX_WAIT:
        raise InvalidOption(f"{what} must be at most 365 days; it is {shown(value)}")
    return seconds


def _cap(value: Duration | None) -> float:
    return MAX_WAIT if value is None else in_seconds(value, "cap")


def _factor(value: float) -> float:
    try:
        factor = float(value)
    except (TypeError, ValueError, OverflowError):
        factor = 0.0
    if not (isfinite(factor) and factor >= 1):
        raise InvalidOption(f"factor must be a number and at least 1; it is {shown(value)}")
    return factor


def _jitter(value: Jitter) -> Jitter:
    if value not in get_args(Jitter):
        known = ", ".join(get_args(Jitter))
        raise InvalidOption(f"jitter must be one of {known}; it is {shown(value)}")
    return value
