"""A priority is a number from -100 to 100, or one of four words for one."""

from enum import IntEnum, StrEnum

import pytest

from yaoki.core.errors import InvalidOption
from yaoki.core.priority import HIGHEST, LABELS, LOWEST, label_of, priority_of


class Urgency(IntEnum):
    NOW = 42


class Word(StrEnum):
    HIGH = "high"


@pytest.mark.parametrize(
    ("given", "number"),
    [
        ("low", 0),
        ("medium", 10),
        ("high", 20),
        ("critical", 30),
        ("HIGH", 20),
        (" Critical ", 30),
        (0, 0),
        (-100, -100),
        (100, 100),
        ("15", 15),
        ("-7", -7),
        ("+7", 7),
        (Urgency.NOW, 42),
        (Word.HIGH, 20),
    ],
)
def test_a_label_a_number_and_the_text_of_a_number_are_priorities(
    given: int | str, number: int
) -> None:
    assert priority_of(given) == number
    assert type(priority_of(given)) is int


@pytest.mark.parametrize(
    "given",
    [
        101,
        -101,
        "101",
        pytest.param(10**5_000, id="5,000 digits"),
        "urgent",
        "",
        "1.5",
        "1_0",
        "１５",
        1.0,
        float("nan"),
        True,
        None,
        b"high",
        "high\0",
        "\ud83d",
    ],
)
def test_anything_else_is_refused_with_what_is_allowed(given: object) -> None:
    with pytest.raises(InvalidOption, match="low, medium, high, critical or a whole number"):
        priority_of(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("priority", "label"),
    [
        (LOWEST, "low"),
        (-1, "low"),
        (0, "low"),
        (9, "low"),
        (10, "medium"),
        (19, "medium"),
        (20, "high"),
        (29, "high"),
        (30, "critical"),
        (HIGHEST, "critical"),
    ],
)
def test_the_label_of_a_number_is_the_highest_at_or_below_it(priority: int, label: str) -> None:
    assert label_of(priority) == label


def test_every_label_comes_back_from_its_number() -> None:
    assert [label_of(priority_of(label)) for label in LABELS] == list(LABELS)
