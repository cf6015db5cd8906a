"""Whether a job is tried again, how often, and when."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from math import isfinite
from random import Random
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaoki.core.backoff import (
    MAX_WAIT,
    Backoff,
    by_function,
    exponential,
    fixed,
    linear,
    waits,
)
from yaoki.core.errors import InvalidOption, TimeLimitExceeded
from yaoki.core.retry import RetryPolicy, Row, Rules
from yaoki.core.transient import transient

# How often.


def test_four_attempts_are_allowed_unless_something_else_is_said() -> None:
    policy = RetryPolicy()

    assert (policy.max_attempts, policy.max_retries) == (4, 3)
    assert policy.backoff == exponential(first=10, factor=2, cap=600, jitter="equal")


@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        ({"max_attempts": 1}, 1),
        ({"max_attempts": 1_000_000}, 1_000_000),
        ({"max_retries": 0}, 1),
        ({"max_retries": 999_999}, 1_000_000),
        ({"max_retries": 3, "max_attempts": 4}, 4),
    ],
)
def test_retries_are_attempts_less_the_first(options: dict[str, Any], attempts: int) -> None:
    assert RetryPolicy(**options).max_attempts == attempts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_attempts": 0}, "max_attempts must be a whole number from 1 to 1,000,000"),
        ({"max_attempts": 1_000_001}, "max_attempts must be"),
        ({"max_attempts": 2.0}, "max_attempts must be"),
        ({"max_attempts": True}, "max_attempts must be"),
        ({"max_attempts": "4"}, "max_attempts must be"),
        ({"max_retries": -1}, "max_retries must be a whole number from 0 to 999,999"),
        ({"max_retries": 1_000_000}, "max_retries must be"),
        ({"max_retries": 3, "max_attempts": 3}, "max_retries=3 means max_attempts=4"),
        ({"backoff": 10}, "backoff must be one of"),
        ({"backoff": None}, "backoff must be one of"),
        ({"backoff": timedelta}, "backoff must be one of"),
        ({"retry_on": "ValueError"}, "retry_on takes exception classes"),
        ({"retry_on": (ValueError, int)}, "retry_on takes exception classes"),
        ({"give_up_on": None}, "give_up_on takes exception classes"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        RetryPolicy(**options)


def test_an_async_function_is_no_rule() -> None:
    async def is_final(error: BaseException) -> bool:
        return True

    with pytest.raises(InvalidOption, match="give_up_on takes exception classes"):
        RetryPolicy(give_up_on=is_final)  # type: ignore[arg-type]


def test_policies_that_say_the_same_are_equal() -> None:
    policy = RetryPolicy(3, fixed(5), ValueError, (KeyError,))

    assert policy == RetryPolicy(3, fixed(5), (ValueError,), [KeyError])
    assert hash(policy) == hash(RetryPolicy(3, fixed(5), (ValueError,), [KeyError]))
    assert replace(policy, max_attempts=5) == RetryPolicy(5, fixed(5), ValueError, KeyError)


def test_a_policy_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        RetryPolicy().max_attempts = 5  # type: ignore[misc]


# Which errors.


class ShopError(Exception):
    pass


class NoSuchItem(ShopError):
    pass


class SoldOut(NoSuchItem, LookupError):
    pass


def is_shop_error(error: BaseException) -> bool:
    return isinstance(error, ShopError)


def never(error: BaseException) -> bool:
    return False


@pytest.mark.parametrize(
    ("error", "retry_on", "give_up_on", "final"),
    [
        (ValueError(), (), (), False),
        (SystemExit(), (), (), False),
        (TimeLimitExceeded(), (), (), False),
        (TimeLimitExceeded(), (), TimeLimitExceeded, True),
        (TimeLimitExceeded(), (), TimeoutError, True),
        (ValueError(), (), ValueError, True),
        (ValueError(), (), [KeyError, ValueError], True),
        (ValueError(), KeyError, (), False),
        (ValueError(), (), KeyError, False),
        (ValueError(), ValueError, ValueError, True),
        (ValueError(), ValueError, Exception, False),
        (ValueError(), Exception, ValueError, True),
        (UnicodeError(), Exception, ValueError, True),
        (KeyboardInterrupt(), (), Exception, False),
        (KeyboardInterrupt(), (), BaseException, True),
        (NoSuchItem(), NoSuchItem, ShopError, False),
        (NoSuchItem(), ShopError, NoSuchItem, True),
        (SoldOut(), NoSuchItem, LookupError, False),
        (SoldOut(), LookupError, NoSuchItem, True),
        (SoldOut(), (), is_shop_error, True),
        (SoldOut(), SoldOut, is_shop_error, True),
        (SoldOut(), is_shop_error, SoldOut, True),
        (SoldOut(), is_shop_error, NoSuchItem, False),
        (SoldOut(), is_shop_error, is_shop_error, True),
        (SoldOut(), never, NoSuchItem, True),
        (SoldOut(), NoSuchItem, never, False),
        (ConnectionError(), transient, Exception, False),
        (ConnectionResetError(), transient, Exception, False),
        (ConnectionResetError(), transient, ConnectionResetError, True),
        (ConnectionResetError(), ConnectionResetError, transient, False),
        (ConnectionResetError(), transient, ConnectionError, True),
        (FileNotFoundError(), transient, Exception, True),
        (FileNotFoundError(), transient, (), False),
        (ConnectionError(), (), transient, True),
    ],
)
def test_the_nearest_rule_decides_and_a_tie_gives_up(
    error: BaseException, retry_on: Rules, give_up_on: Rules, final: bool
) -> None:
    policy = RetryPolicy(retry_on=retry_on, give_up_on=give_up_on)

    assert policy.verdict(error) == (final, None)
    assert policy.final(error) is final


class NoBool:
    def __bool__(self) -> NoReturn:
        raise RuntimeError("no bool")


def broken(error: BaseException) -> Any:
    raise SystemExit("broken")


def undecided(error: BaseException) -> Any:
    return NoBool()


@pytest.mark.parametrize(
    ("rule", "problem"), [(broken, "SystemExit: broken"), (undecided, "RuntimeError: no bool")]
)
def test_a_rule_that_breaks_counts_as_no_match_and_is_reported(
    rule: Callable[[BaseException], bool], problem: str
) -> None:
    final, warning = RetryPolicy(give_up_on=rule).verdict(ValueError())

    assert not final
    assert warning is not None
    assert problem in warning
    assert rule.__name__ in warning


def test_a_rule_that_breaks_does_not_stop_the_others() -> None:
    final, warning = RetryPolicy(retry_on=broken, give_up_on=(broken, ValueError)).verdict(
        ValueError()
    )

    assert final
    assert warning is not None


# When.


def test_the_wait_is_what_the_back_off_says() -> None:
    assert RetryPolicy(backoff=waits(1, 5)).wait(2, Random(7)) == (5.0, None)


def test_a_function_may_be_given_for_a_back_off() -> None:
    policy = RetryPolicy(backoff=lambda attempt: timedelta(minutes=attempt))

    assert policy.wait(3, Random(7)) == (180.0, None)


class Raising(Backoff):
    def ceiling(self, attempt: int) -> float:
        raise SystemExit("broken")


class Saying(Backoff):
    """A back-off of somebody's own that says whatever it likes."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def ceiling(self, attempt: int) -> float:
        return 1.0

    def wait(self, attempt: int, rng: Random) -> float:
        return self.said  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "backoff",
    [
        Raising(),
        by_function(lambda attempt: 1 // 0),
        by_function(lambda attempt: None),  # type: ignore[arg-type,return-value]
        by_function(lambda attempt: -1),
        by_function(lambda attempt: "10"),  # type: ignore[arg-type,return-value]
        by_function(lambda attempt: float("nan")),
        by_function(lambda attempt: 0.5 * 2.0**2_000),
        by_function(lambda attempt: 10**400),
        by_function(lambda attempt: 2 * MAX_WAIT),
        Saying(None),
        Saying(-1),
        Saying(float("inf")),
        Saying("10"),
        Saying(True),
    ],
    ids=lambda backoff: "",
)
def test_a_back_off_that_fails_or_says_nonsense_gives_way_to_the_default(backoff: Backoff) -> None:
    """A wait that could not be computed made jobs disappear."""
    wait, problem = RetryPolicy(backoff=backoff).wait(3, Random(7))

    assert wait == exponential().wait(3, Random(7))
    assert problem is not None
    assert "the default wait was taken" in problem


@given(
    st.sampled_from([exponential(), linear(cap=None), fixed(0), waits(1, 2), Raising()]),
    st.integers() | st.sampled_from([10**6, 10**400, 10**5_000]),
)
def test_every_attempt_has_a_wait(backoff: Backoff, attempt: int) -> None:
    wait, _ = RetryPolicy(backoff=backoff).wait(attempt, Random(7))

    assert isfinite(wait)
    assert 0 <= wait <= MAX_WAIT


# The whole plan.


def test_the_timetable_says_when_each_attempt_starts() -> None:
    timetable = RetryPolicy().timetable()

    assert timetable.rows == (Row(1, 0, 0), Row(2, 5, 10), Row(3, 15, 30), Row(4, 35, 70))
    assert (timetable.total_earliest, timetable.total_latest) == (35, 70)


def test_the_timetable_of_one_attempt_has_no_waits() -> None:
    assert RetryPolicy(max_attempts=1).timetable().rows == (Row(1, 0, 0),)


def test_a_timetable_can_be_asked_for_another_number_of_attempts() -> None:
    assert len(RetryPolicy().timetable(10).rows) == 10
    with pytest.raises(InvalidOption):
        RetryPolicy().timetable(0)


@pytest.mark.parametrize(
    ("patience", "fits"),
    [(70, True), (69.9, False), (timedelta(minutes=2), True), (0, False)],
)
def test_a_timetable_fits_when_even_its_latest_is_in_time(
    patience: float | timedelta, fits: bool
) -> None:
    assert RetryPolicy().timetable().fits(patience) is fits


def test_a_timetable_is_printed_as_a_table() -> None:
    assert str(RetryPolicy(backoff=exponential(first=60, cap=600)).timetable()) == (
        "attempt         earliest           latest\n"
        "      1          at once          at once\n"
        "      2       after 30 s      after 1 min\n"
        "      3  after 1 min 30 s      after 3 min\n"
        "      4  after 3 min 30 s      after 7 min"
    )


def test_a_long_timetable_is_printed_short() -> None:
    printed = str(RetryPolicy(1_000, fixed(1)).timetable()).splitlines()

    assert len(printed) < 40
    assert printed[-2].split() == ["…", "…", "…"]
    assert printed[-1].split()[0] == "1000"


def test_the_timetable_of_a_broken_back_off_is_the_defaults() -> None:
    assert RetryPolicy(backoff=Raising()).timetable() == RetryPolicy().timetable()


@pytest.mark.parametrize(
    ("patience", "backoff", "attempts"),
    [
        (0, exponential(), 1),
        (9, exponential(), 1),
        (10, exponential(), 2),
        (70, exponential(), 4),
        (timedelta(hours=1), exponential(), 11),
        (timedelta(days=1), fixed(timedelta(hours=1)), 25),
        (1, fixed(0.1), 11),
        (60, fixed(0), 1_000),
        (timedelta(days=3_650), exponential(), 1_000),
        (60, lambda attempt: 20, 4),
    ],
)
def test_patience_is_worked_out_to_attempts(
    patience: float | timedelta, backoff: Backoff, attempts: int
) -> None:
    policy = RetryPolicy.within(patience, backoff=backoff)

    assert policy.max_attempts == attempts
    assert policy.timetable().fits(patience)


def test_one_attempt_more_would_be_beyond_patience() -> None:
    policy = RetryPolicy.within(3_600)

    assert not policy.timetable(policy.max_attempts + 1).fits(3_600)


def test_a_policy_within_patience_has_rules_too() -> None:
    policy = RetryPolicy.within(60, retry_on=transient, give_up_on=Exception)

    assert policy.final(ValueError())
    assert not policy.final(ConnectionError())


@pytest.mark.parametrize("patience", [-1, None, float("nan"), "1 h"])
def test_patience_must_be_a_duration(patience: Any) -> None:
    with pytest.raises(InvalidOption, match="patience must be"):
        RetryPolicy.within(patience)
