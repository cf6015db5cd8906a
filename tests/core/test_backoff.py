"""Waits grow, never overflow, never go below zero, and never pass their cap."""

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from math import isfinite
from random import Random
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaoki.core.backoff import (
    MAX_WAIT,
    Backoff,
    Jitter,
    backoff_from,
    by_function,
    exponential,
    fixed,
    linear,
    waits,
)
from yaoki.core.errors import InvalidOption

ATTEMPTS = [-(10**400), -1, 0, 1, 2, 16, 46, 47, 63, 64, 1023, 1024, 10**6, 2**63, 10**400]

durations = st.floats(0, MAX_WAIT) | st.integers(0, int(MAX_WAIT)) | st.sampled_from([5e-324, 1e-6])
factors = st.floats(1, sys.float_info.max) | st.sampled_from([1, 1 + sys.float_info.epsilon, 10])
caps = durations | st.none()
jitters = st.sampled_from(["none", "equal", "full"])
attempts = st.integers() | st.integers(1, 2_000) | st.sampled_from(ATTEMPTS)
backoffs = st.one_of(
    st.builds(exponential, durations, factors, caps, jitters),
    st.builds(linear, durations, durations, caps, jitters),
    st.builds(fixed, durations, jitters),
    st.builds(
        lambda each, jitter: waits(*each, jitter=jitter),
        st.lists(durations, min_size=1, max_size=5),
        jitters,
    ),
)


def ceilings(backoff: Backoff, count: int = 5) -> list[float]:
    return [backoff.ceiling(attempt) for attempt in range(1, count + 1)]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (exponential(), [10, 20, 40, 80, 160, 320, 600, 600]),
        (exponential(first=1, factor=10, cap=None), [1, 10, 100, 1_000, 10_000]),
        (exponential(first=3_600), [600, 600]),
        (exponential(first=timedelta(minutes=1), cap=timedelta(hours=1)), [60, 120, 240]),
        (linear(), [10, 20, 30]),
        (linear(first=5, step=1, cap=7), [5, 6, 7, 7]),
        (fixed(30), [30, 30, 30]),
        (fixed(timedelta(minutes=1)), [60, 60]),
        (waits(1, 5, timedelta(minutes=1)), [1, 5, 60, 60]),
        (by_function(lambda attempt: attempt**2), [1, 4, 9]),
        (by_function(lambda attempt: timedelta(minutes=attempt)), [60, 120]),
    ],
)
def test_the_ceilings_follow_the_rule(backoff: Backoff, expected: list[float]) -> None:
    assert ceilings(backoff, len(expected)) == expected


@pytest.mark.parametrize("first", [0.1, 1, 5])
@pytest.mark.parametrize("factor", [1, 2, 10])
@pytest.mark.parametrize(
    ("cap", "limit"), [(60, 60), (timedelta(days=1), 86_400), (None, MAX_WAIT)]
)
def test_no_attempt_number_is_too_big_for_an_exponential_wait(
    first: float, factor: float, cap: int | timedelta | None, limit: float
) -> None:
    """A power that overflowed before its cap was applied made jobs disappear at attempt 16."""
    backoff = exponential(first, factor, cap)

    found = [backoff.ceiling(attempt) for attempt in ATTEMPTS]

    assert found == sorted(found)
    assert found[0] == first
    assert found[-1] == (first if factor == 1 else limit)


@given(backoffs, attempts, st.integers())
def test_a_wait_lies_between_its_floor_and_its_ceiling(
    backoff: Backoff, attempt: int, seed: int
) -> None:
    wait = backoff.wait(attempt, Random(seed))

    assert isfinite(wait)
    assert 0 <= backoff.floor(attempt) <= wait <= backoff.ceiling(attempt) <= MAX_WAIT


@given(durations, factors, durations, jitters, attempts)
def test_an_exponential_wait_is_never_longer_than_its_cap(
    first: float, factor: float, cap: float, jitter: Jitter, attempt: int
) -> None:
    assert exponential(first, factor, cap, jitter).ceiling(attempt) <= round(cap, 6)


@given(
    st.one_of(
        st.builds(exponential, durations, factors, caps, jitters),
        st.builds(linear, durations, durations, caps, jitters),
    ),
    attempts,
    attempts,
)
def test_a_later_wait_is_never_shorter(backoff: Backoff, one: int, other: int) -> None:
    earlier, later = sorted((one, other))

    assert backoff.ceiling(earlier) <= backoff.ceiling(later)
    assert backoff.floor(earlier) <= backoff.floor(later)


@pytest.mark.parametrize(
    ("jitter", "floor"),
    [("none", 40.0), ("equal", 20.0), ("full", 0.001)],
)
def test_the_jitter_says_where_the_floor_is(jitter: Jitter, floor: float) -> None:
    assert exponential(jitter=jitter).floor(3) == floor


@pytest.mark.parametrize(("jitter", "mean"), [("equal", 30.0), ("full", 20.0)])
def test_waits_are_spread_evenly_between_floor_and_ceiling(jitter: Jitter, mean: float) -> None:
    """Full jitter near zero retried at once; jitter above the wait made waits negative."""
    backoff, rng = exponential(jitter=jitter), Random(7)

    found = [backoff.wait(3, rng) for _ in range(100_000)]

    assert min(found) >= backoff.floor(3)
    assert max(found) <= 40
    assert fmean(found) == pytest.approx(mean, rel=0.05)


def test_a_thousand_jobs_that_fail_at_once_come_back_spread_over_half_the_wait() -> None:
    """Without jitter a fleet fails again in waves."""
    backoff, rng = exponential(), Random(7)

    found = [backoff.wait(1, rng) for _ in range(1_000)]

    assert max(found) - min(found) > 0.45 * 10
    assert max(sum(each <= wait < each + 0.5 for wait in found) for each in range(5, 10)) < 200


def test_the_same_seed_gives_the_same_waits() -> None:
    assert exponential().wait(3, Random(7)) == exponential().wait(3, Random(7))


@pytest.mark.parametrize("jitter", ["none", "equal", "full"])
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: str(attempt)[:20])
def test_no_wait_stays_no_wait(jitter: Jitter, attempt: int) -> None:
    for backoff in (exponential(0, 10, jitter=jitter), linear(0, 0), fixed(0, jitter), waits(0)):
        assert backoff.wait(attempt, Random(7)) == 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: exponential(first=-1), "first must be"),
        (lambda: exponential(first=float("nan")), "first must be"),
        (lambda: exponential(first=timedelta(days=366)), "first must be at most 365 days"),
        (lambda: exponential(factor=0.5), "factor must be"),
        (lambda: exponential(factor=float("nan")), "factor must be"),
        (lambda: exponential(factor=float("inf")), "factor must be"),
        (lambda: exponential(factor=10**400), "factor must be"),
        (lambda: exponential(factor="twice"), "factor must be"),  # type: ignore[arg-type]
        (lambda: exponential(cap=-1), "cap must be"),
        (lambda: exponential(jitter="foo"), "jitter must be one of none, equal, full"),  # type: ignore[arg-type]
        (lambda: exponential(jitter=[]), "jitter must be one of"),  # type: ignore[arg-type]
        (lambda: linear(step=-1), "step must be"),
        (lambda: fixed("10"), "wait must be"),  # type: ignore[arg-type]
        (lambda: fixed(True), "wait must be"),
        (lambda: waits(), "at least one"),
        (lambda: waits(1, -1), "a wait must be"),
        (lambda: by_function(7), "a plain function"),  # type: ignore[arg-type]
    ],
)
def test_parameters_that_cannot_be_are_refused_at_once(
    make: Callable[[], Backoff], message: str
) -> None:
    with pytest.raises(InvalidOption, match=message):
        make()


def test_an_async_function_is_no_back_off() -> None:
    async def later(attempt: int) -> float:
        return 1.0

    with pytest.raises(InvalidOption, match="a plain function"):
        by_function(later)  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [None, -1, float("nan"), float("inf"), "10", 10**18, True, 4e7])
def test_a_function_that_says_nonsense_is_found_out_when_it_is_asked(said: Any) -> None:
    with pytest.raises(InvalidOption, match="what the back-off says for attempt 3"):
        by_function(lambda attempt: said).wait(3, Random(7))


@given(backoffs)
def test_a_back_off_comes_back_from_a_row(backoff: Backoff) -> None:
    assert backoff_from(json.loads(json.dumps(backoff.to_dict()))) == backoff


def test_a_row_keeps_the_default_for_a_function() -> None:
    stored = by_function(lambda attempt: 1).to_dict()

    assert stored == {**exponential().to_dict(), "own": True}
    assert backoff_from(stored) == exponential()


@pytest.mark.parametrize(
    "stored",
    [
        None,
        7,
        "exponential",
        [],
        {},
        {"kind": "quadratic"},
        {"kind": []},
        {"kind": "exponential", "colour": "red"},
        {"kind": "exponential", "first": -1},
        {"kind": "exponential", "first": None},
        {"kind": "fixed"},
        {"kind": "waits", "durations": 7, "jitter": "none"},
        {"kind": "waits", "durations": [], "jitter": "none"},
    ],
)
def test_a_stored_back_off_that_makes_no_sense_is_the_default(stored: object) -> None:
    assert backoff_from(stored) == exponential()
