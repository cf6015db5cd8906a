from datetime import UTC, datetime, timedelta

import pytest

from yaoki.cli.typed import duration, moment, queue_limit
from yaoki.core.errors import InvalidOption


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 30),
        ("0", 0),
        ("1.5", 1.5),
        ("500ms", 0.5),
        ("30s", 30),
        ("5m", 300),
        ("5min", 300),
        ("2h", 7_200),
        ("1d", 86_400),
        ("1h30m", 5_400),
        (" 2H ", 7_200),
    ],
)
def test_a_duration_is_seconds_or_has_units(text: str, seconds: float) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text",
    ["", "soon", "-5", "5x", "1h 30m", "5m3", "1e3", "inf", "nan", "９", "101000d", "9" * 99],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        duration(text)


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-24T18:00+09:00",
        "2026-12-24 09:00Z",
        "20261224T090000Z",
        "2026-12-24T09:00:00+00:00",
    ],
)
def test_a_moment_has_its_offset(text: str) -> None:
    assert moment(text) == datetime(2026, 12, 24, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2026-12-24T18:00", "or 2026-12-24T18:00Z for UTC"),
        ("2026-12-24", "or 2026-12-24T00:00Z for UTC"),
        ("tomorrow", "write one like"),
        ("0001-01-01T00:00Z", "1970"),
    ],
)
def test_what_is_no_moment_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(InvalidOption, match=hint):
        moment(text)


@pytest.mark.parametrize(
    ("text", "read"),
    [("mail", ("mail", None)), ("mail=5", ("mail", 5)), ("a=b=12", ("a=b", 12))],
)
def test_a_queue_may_have_a_limit(text: str, read: tuple[str, int | None]) -> None:
    assert queue_limit(text) == read


@pytest.mark.parametrize("text", ["mail=", "mail=0", "mail=-1", "mail=many", "mail=5.0", "mail=٣"])
def test_a_limit_that_is_no_number_from_1_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption):
        queue_limit(text)
