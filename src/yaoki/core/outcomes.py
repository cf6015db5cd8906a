"""How an attempt ended, as a value, and what follows from it."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import assert_never

from yaoki.core.errors import Cancel, Ending, GiveUp, InvalidOption, RetryAfter, Snooze
from yaoki.core.failures import Failure, describe, text
from yaoki.core.retry import RetryPolicy
from yaoki.core.times import micros

_FALLBACK_WAIT = 10_000_000

RELEASES_FREE = 20
"""After so many releases in a row each one counts as an attempt."""


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler returned; `result` is JSON text."""

    result: str = "null"


@dataclass(frozen=True, slots=True)
class Retried:
    """It failed, and may run again `wait` microseconds from now if attempts remain."""

    failure: Failure
    wait: int


@dataclass(frozen=True, slots=True)
class Failed:
    """It failed for good."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class Snoozed:
    """Not now; again `wait` microseconds from now. Uses up no attempt."""

    wait: int
    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """Handed back unfinished; claimable at once. Uses up no attempt.

    `started` is False for a job that was claimed ahead and never begun.
    """

    reason: str
    started: bool = True


@dataclass(frozen=True, slots=True)
class Cancelled:
    """No longer wanted."""

    reason: str


Outcome = Completed | Retried | Failed | Snoozed | Released | Cancelled


@dataclass(frozen=True, slots=True)
class Change:
    """What the store is asked to record; whether attempts remain, it decides itself."""

    outcome: str
    wait: int = 0
    error: str | None = None
    traceback: str | None = None
    result: str | None = None
    started: bool = True


def settle(outcome: Outcome) -> Change:
    """The change that an outcome asks for."""
    match outcome:
        case Completed(result):
            return Change("completed", result=result)
        case Retried(failure, wait):
            return Change("retried", wait, failure.error, failure.traceback)
        case Failed(failure):
            return Change("failed", 0, failure.error, failure.traceback)
        case Snoozed(wait, reason):
            return Change("snoozed", wait, text(reason, 2_000))
        case Released(reason, started):
            return Change("released", 0, text(reason, 2_000), started=started)
        case Cancelled(reason):
            return Change("cancelled", 0, text(reason, 2_000))
        case _:
            assert_never(outcome)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome, and what the worker should warn about (a broken rule or back-off)."""

    outcome: Outcome
    warnings: tuple[str, ...] = ()


def judge(
    error: BaseException,
    policy: RetryPolicy,
    attempt: int,
    rng: Random,
    hide: Collection[str] = (),
) -> Verdict:
    """What an exception from a handler means under a policy. Never raises."""
    # By its type alone: an exception may lie about its __class__, or raise when it is asked.
    ending = error if issubclass(type(error), Ending) else None
    match ending:
        case GiveUp(reason=reason):
            return Verdict(Failed(_said(ending, reason, hide)))
        case Cancel(reason=reason):
            return Verdict(Cancelled(text(reason, 2_000, hide)))
        case Snooze(wait=named, reason=reason):
            said = text(reason, 2_000, hide)
            return _named_wait(ending, named, lambda wait: Snoozed(wait, said))
        case RetryAfter(wait=named, reason=reason):
            explained = _said(ending, reason, hide)
            return _named_wait(ending, named, lambda wait: Retried(explained, wait))
    failure = describe(error, hide)
    final, rule_problem = policy.verdict(error)
    if final:
        return Verdict(Failed(failure), _present(rule_problem))
    wait, wait_problem = policy.wait(attempt, rng)
    return Verdict(Retried(failure, round(wait * 1_000_000)), _present(rule_problem, wait_problem))


def _named_wait(
    error: Snooze | RetryAfter, wait: object, outcome: Callable[[int], Outcome]
) -> Verdict:
    try:
        return Verdict(outcome(micros(wait, f"the wait of {type(error).__name__}")))  # type: ignore[arg-type]
    except InvalidOption as problem:
        return Verdict(outcome(_FALLBACK_WAIT), (f"{problem}; 10 s were taken instead",))


def _said(error: BaseException, reason: object, hide: Collection[str]) -> Failure:
    described = describe(error, hide)
    return Failure(text(reason, 2_000, hide), described.traceback, described.kind)


def _present(*problems: str | None) -> tuple[str, ...]:
    return tuple(problem for problem in problems if problem)
