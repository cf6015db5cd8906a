"""Instants and durations: whole microseconds inside, datetime and timedelta outside."""

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaoki.core.errors import InvalidOption
from yaoki.core.times import MAX_DURATION, as_datetime, in_words, instant, micros, seconds


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0, 0),
        (0.0, 0),
        (60, 60_000_000),
        (1.5, 1_500_000),
        (0.1, 100_000),
        (1e-7, 0),
        (timedelta(minutes=5), 300_000_000),
        (timedelta(microseconds=1), 1),
        (timedelta(days=36_525), MAX_DURATION),
    ],
)
def test_a_duration_is_a_timedelta_or_seconds(
    given: timedelta | int | float, expected: int
) -> None:
    assert micros(given, "delay") == expected


@pytest.mark.parametrize(
    "given",
    [
        -1,
        -0.001,
        timedelta(seconds=-1),
        timedelta(days=36_526),
        pytest.param(10**400, id="400 digits"),
        pytest.param(-(10**5_000), id="-5,000 digits"),
        1e300,
        float("nan"),
        float("inf"),
        float("-inf"),
        True,
        None,
        "60",
        datetime.now(UTC),
    ],
)
def test_what_is_no_duration_is_refused_by_its_name(given: object) -> None:
    with pytest.raises(InvalidOption, match="the delay must be a timedelta or a number of sec"):
        micros(given, "the delay")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1970, 1, 1, 9, tzinfo=ZoneInfo("Asia/Tokyo")), 0),
        (datetime(2001, 9, 9, 1, 46, 40, 7, tzinfo=UTC), 1_000_000_000_000_007),
    ],
)
def test_an_instant_counts_the_microseconds_since_1970(given: datetime, expected: int) -> None:
    assert instant(given, "run_at") == expected


def test_the_two_half_past_twos_of_the_night_the_clocks_go_back_are_an_hour_apart() -> None:
    first = datetime(2027, 10, 31, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=0)

    assert instant(first.replace(fold=1), "run_at") - instant(first, "run_at") == 3_600_000_000


class Nowhere(tzinfo):
    def utcoffset(self, when: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


@pytest.mark.parametrize("zone", [None, Nowhere()])
def test_an_instant_without_a_time_zone_is_refused(zone: tzinfo | None) -> None:
    with pytest.raises(InvalidOption, match="run_at must have a time zone"):
        instant(datetime(2027, 1, 1, tzinfo=zone), "run_at")


@pytest.mark.parametrize(
    "given",
    [
        datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
    ],
)
def test_an_instant_outside_the_years_1970_to_9999_is_refused(given: datetime) -> None:
    with pytest.raises(InvalidOption, match="run_at must lie in the years 1970 to 9999"):
        instant(given, "run_at")


@pytest.mark.parametrize("given", [None, "2027-01-01T00:00:00Z", 0, date(2027, 1, 1)])
def test_an_instant_is_nothing_but_a_datetime(given: object) -> None:
    with pytest.raises(InvalidOption, match="run_at must be a datetime"):
        instant(given, "run_at")  # type: ignore[arg-type]


@given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)))
def test_an_instant_comes_back_exactly(moment: datetime) -> None:
    assert as_datetime(instant(moment, "run_at")) == moment
    assert as_datetime(instant(moment, "run_at")).tzinfo is UTC


@given(st.integers() | st.sampled_from([10**400, -(10**400)]))
def test_an_instant_that_datetime_cannot_hold_becomes_the_nearest_that_it_can(us: int) -> None:
    assert 1 <= as_datetime(us).year <= 9999


def test_a_duration_in_seconds_is_a_millionth_of_its_microseconds() -> None:
    assert seconds(1_500_000) == 1.5


@pytest.mark.parametrize(
    ("length", "words"),
    [
        (0, "0 s"),
        (0.0001, "0 s"),
        (0.001, "1 ms"),
        (0.25, "250 ms"),
        (0.9996, "1 s"),
        (1.5, "1.5 s"),
        (10, "10 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min"),
        (60, "1 min"),
        (150, "2 min 30 s"),
        (3_600, "1 h"),
        (3_605, "1 h"),
        (3_660, "1 h 1 min"),
        (86_399, "23 h 59 min"),
        (3 * 86_400 + 4 * 3_600, "3 d 4 h"),
        (365 * 86_400, "365 d"),
        (-90, "-1 min 30 s"),
        (float("inf"), "for ever"),
        (float("nan"), "unknown"),
    ],
)
def test_a_duration_is_said_in_at_most_two_units(length: float, words: str) -> None:
    assert in_words(length) == words
