"""Whether a job is tried again, how often, and when."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import iscoroutinefunction
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple, Self

from yaoki.core.backoff import Backoff, Duration, by_function, exponential, in_seconds
from yaoki.core.errors import InvalidOption
from yaoki.core.failures import describe, shown
from yaoki.core.said import DEFAULT_MAX_ATTEMPTS
from yaoki.core.times import in_words, micros
from yaoki.core.transient import Transient

MAX_ATTEMPTS = 1_000_000
MOST_WITHIN = 1_000
"""RetryPolicy.within() allows no more attempts than this, however short the waits are."""

_LINES_SHOWN = 30

Rule = type[BaseException] | Callable[[Any], bool]
"""An exception class, or a function that says whether it means this error."""

Rules = Rule | Sequence[Rule]


class Row(NamedTuple):
    """When an attempt starts, in seconds after the first one started."""

    attempt: int
    earliest: float
    latest: float


@dataclass(frozen=True, slots=True)
class Timetable:
    """When each attempt starts if every one fails at once; what they take comes on top."""

    rows: tuple[Row, ...]

    @property
    def total_earliest(self) -> float:
        """From the first attempt to the last, with every wait as short as it can be."""
        return self.rows[-1].earliest

    @property
    def total_latest(self) -> float:
        """From the first attempt to the last, with every wait as long as it can be."""
        return self.rows[-1].latest

    def fits(self, patience: Duration) -> bool:
        """Whether the last attempt starts within `patience`, however chance decides."""
        return _micros(self.total_latest) <= micros(patience, "patience")

    def __str__(self) -> str:
        lines = [_line("attempt", "earliest", "latest"), *map(_row, self.rows[:_LINES_SHOWN])]
        if len(self.rows) > _LINES_SHOWN:
            lines += [_line("…", "…", "…"), _row(self.rows[-1])]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, init=False)
class RetryPolicy:
    """How often an attempt may fail, how long to wait in between, and which errors are final.

    `max_attempts` counts the first run too; `max_retries` may be given instead. Of the classes in
    `retry_on` and `give_up_on` the one nearest to the error decides, a tie gives up, and an error
    that nobody named is retried.
    """

    max_attempts: int
    backoff: Backoff
    retry_on: tuple[Rule, ...]
    give_up_on: tuple[Rule, ...]

    def __init__(
        self,
        max_attempts: int | None = None,
        backoff: Backoff | Callable[[int], Duration] = exponential(),
        retry_on: Rules = (),
        give_up_on: Rules = (),
        *,
        max_retries: int | None = None,
    ) -> None:
        keep = object.__setattr__
        keep(self, "max_attempts", _attempts(max_attempts, max_retries))
        keep(self, "backoff", _backoff(backoff))
        keep(self, "retry_on", _rules(retry_on, "retry_on"))
        keep(self, "give_up_on", _rules(give_up_on, "give_up_on"))

    @classmethod
    def within(
        cls,
        patience: Duration,
        backoff: Backoff | Callable[[int], Duration] = exponential(),
        retry_on: Rules = (),
        give_up_on: Rules = (),
    ) -> Self:
        """As many attempts as surely start within `patience`: at least one, at most 1,000.

        Only the waits are counted, each at its longest; what the attempts take comes on top.
        """
        most = cls(MOST_WITHIN, backoff, retry_on, give_up_on)
        limit = micros(patience, "patience")
        fitting = sum(_micros(row.latest) <= limit for row in most.timetable().rows)
        return cls(fitting, backoff, retry_on, give_up_on)

    @property
    def max_retries(self) -> int:
        """How often the job may run again: one less than its attempts."""
        return self.max_attempts - 1

    def timetable(self, attempts: int | None = None) -> Timetable:
        """When each attempt, or each of the first `attempts`, starts at the earliest and latest."""
        count = self.max_attempts if attempts is None else _attempts(attempts)
        bounds = [self._bounds(attempt) for attempt in range(1, count)]
        earliest = accumulate((shortest for shortest, _ in bounds), initial=0.0)
        latest = accumulate((longest for _, longest in bounds), initial=0.0)
        return Timetable(tuple(map(Row, range(1, count + 1), earliest, latest)))

    def final(self, error: BaseException) -> bool:
        """Whether the rules give up on this error."""
        return self.verdict(error)[0]

    def verdict(self, error: BaseException) -> tuple[bool, str | None]:
        """Whether the rules give up on this error, and which rule broke while it was asked."""
        retry, broken_retry = _nearest(self.retry_on, error)
        give_up, broken_give_up = _nearest(self.give_up_on, error)
        gives_up = give_up is not None and (retry is None or give_up <= retry)
        return gives_up, broken_retry or broken_give_up

    def wait(self, attempt: int, rng: Random) -> tuple[float, str | None]:
        """Seconds until the next attempt, and why they are the default's if they are."""
        try:
            return _checked(self.backoff.wait(attempt, rng)), None
        except BaseException as problem:  # it may be the user's code
            return exponential().wait(attempt, rng), (
                f"the back-off {shown(self.backoff)} failed after attempt {shown(attempt)}, "
                f"so the default wait was taken: {describe(problem).error}"
            )

    def _bounds(self, attempt: int) -> tuple[float, float]:
        try:
            return _checked(self.backoff.floor(attempt)), _checked(self.backoff.ceiling(attempt))
        except BaseException:  # wait() would take the default's
            return exponential().floor(attempt), exponential().ceiling(attempt)


def _attempts(max_attempts: object, max_retries: object = None) -> int:
    if max_retries is None:
        given = DEFAULT_MAX_ATTEMPTS if max_attempts is None else max_attempts
        return _count(given, "max_attempts", 1, MAX_ATTEMPTS)
    attempts = _count(max_retries, "max_retries", 0, MAX_ATTEMPTS - 1) + 1
    if max_attempts not in (None, attempts):
        raise InvalidOption(
            f"max_retries={max_retries} means max_attempts={attempts}, "
            f"but max_attempts={shown(max_attempts)} was given too; leave one out"
        )
    return attempts


def _count(value: object, what: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidOption(
            f"{what} must be a whole number from {least} to {most:,}; it is {shown(value)}"
        )
    return value


def _backoff(given: object) -> Backoff:
    if isinstance(given, Backoff):
        return given
    if callable(given) and not isinstance(given, type):
        return by_function(given)
    raise InvalidOption(
        f"backoff must be one of exponential(), linear(), fixed(), waits() "
        f"or a plain function from the attempts used to seconds; it is {shown(given)}"
    )


def _rules(given: object, what: str) -> tuple[Rule, ...]:
    rules = tuple(given) if isinstance(given, tuple | list | set | frozenset) else (given,)
    for rule in rules:
        if not _is_rule(rule):
            raise InvalidOption(
                f"{what} takes exception classes and functions from an error to True or False, "
                f"alone or in a tuple; {shown(rule)} is neither"
            )
    return rules


def _is_rule(rule: object) -> bool:
    if isinstance(rule, type):
        return issubclass(rule, BaseException)
    return callable(rule) and not iscoroutinefunction(rule)


def _nearest(rules: Sequence[Rule], error: BaseException) -> tuple[int | None, str | None]:
    """The distance of the rule that is nearest to the error, and what went wrong in asking."""
    distances, problem = [], None
    for rule in rules:
        try:
            distances.append(_distance(rule, error))
        except BaseException as broken:  # it may be the user's code
            problem = (
                f"the rule {shown(rule)} failed, so it was passed over: {describe(broken).error}"
            )
    return min((each for each in distances if each is not None), default=None), problem


def _distance(rule: Rule, error: BaseException) -> int | None:
    if isinstance(rule, type):
        classes = type(error).__mro__
        return classes.index(rule) if rule in classes else None
    if isinstance(rule, Transient):
        return rule.distance(error)
    return 0 if rule(error) else None


def _checked(wait: Duration) -> float:
    return in_seconds(wait, "the wait")


def _micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def _row(row: Row) -> str:
    return _line(str(row.attempt), _after(row.earliest), _after(row.latest))


def _line(attempt: str, earliest: str, latest: str) -> str:
    return f"{attempt:>7}  {earliest:>15}  {latest:>15}"


def _after(seconds: float) -> str:
    return f"after {in_words(seconds)}" if seconds else "at once"
