import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from yaoki.cli.show.times import ago, ahead, moment, now, since

PRESENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-1, "now"),
        (0, "now"),
        (0.01, "now"),
        (0.2, "in 1 s"),
        (9.7, "in 10 s"),
        (10, "in 10 s"),
        (299.9, "in 5 min"),
        (86_400 * 3 + 3_600 * 4, "in 3 d 4 h"),
    ],
)
def test_what_is_ahead_is_counted_in_whole_seconds(seconds: float, shown: str) -> None:
    assert ahead(PRESENT + timedelta(seconds=seconds), PRESENT) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "just now"), (59.9, "59 s ago"), (180, "3 min ago"), (-10, "in 10 s")],
)
def test_what_is_past_is_counted_too(seconds: float, shown: str) -> None:
    assert ago(PRESENT - timedelta(seconds=seconds), PRESENT) == shown


def test_a_clock_ahead_of_ours_makes_no_negative_time() -> None:
    assert since(PRESENT + timedelta(seconds=3), PRESENT) == "0 s"


@pytest.mark.usefixtures("tokyo")
def test_a_moment_is_local_and_has_its_date_unless_that_is_today() -> None:
    assert moment(PRESENT, PRESENT) == "12:04:05 JST"
    assert moment(PRESENT - timedelta(days=1), PRESENT) == "2026-01-01 12:04:05 JST"
    assert moment(PRESENT + timedelta(hours=12), PRESENT) == "2026-01-03 00:04:05 JST"


@pytest.mark.parametrize(
    "edge", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
)
@pytest.mark.usefixtures("tokyo")
def test_the_edges_of_the_calendar_can_be_shown(edge: datetime) -> None:
    assert moment(edge, PRESENT)


def test_the_present_can_be_made_to_stand_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YAOKI_NOW", "2026-01-02T03:04:05+00:00")

    assert now() == PRESENT
