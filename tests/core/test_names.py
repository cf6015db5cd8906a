"""What types, queues, keys, workers and tags may be called."""

from collections.abc import Callable
from enum import Enum, StrEnum

import pytest

from yaoki.core.errors import InvalidOption
from yaoki.core.names import (
    check_key,
    check_queue,
    check_tag,
    check_type,
    check_worker_id,
)

Check = Callable[[object], str]

CHECKS: list[Check] = [check_type, check_queue, check_key, check_worker_id, check_tag]

every_check = pytest.mark.parametrize("check", CHECKS)


class Queue(StrEnum):
    MAIL = "mail"


class OldQueue(str, Enum):  # noqa: UP042
    MAIL = "mail"


@every_check
@pytest.mark.parametrize(
    "name",
    [
        "m",
        "send-invoice",
        "shop.orders.send_invoice",
        "予約確定メール送信",
        "two words",
        "order/7:confirm#1",
        "👩‍👩‍👧",
        "می‌خواهم",
        "x" * 200,
    ],
)
def test_printable_text_is_a_name(check: Check, name: str) -> None:
    assert check(name) == name


@every_check
@pytest.mark.parametrize("member", [Queue.MAIL, OldQueue.MAIL])
def test_a_member_of_an_enum_of_texts_becomes_plain_text(check: Check, member: str) -> None:
    assert check(member) == "mail"
    assert type(check(member)) is str


@every_check
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        (None, "None is no text"),
        (7, "7 is no text"),
        (b"mail", "b'mail' is no text"),
        ("", "'' is empty"),
        (" mail", "begins or ends with a blank"),
        ("mail ", "begins or ends with a blank"),
        ("\u3000mail", "begins or ends with a blank"),
        ("mail\n", "begins or ends with a blank"),
        ("a\0b", r"'a\x00b' has a control character"),
        ("a\nb", r"'a\nb' has a control character"),
        ("a\x1b[31mb", r"'a\x1b[31mb' has a control character"),
        ("a\x7fb", "has a control character"),
        ("a\x9bb", "has a control character"),
        ("a\u2028b", r"'a\u2028b' has a control character"),
        ("a\u2029b", "has a control character"),
        ("a\ud83db", r"'a\ud83db' has half a character"),
        ("x" * 501, "has 501 characters"),
    ],
)
def test_what_is_no_name_is_refused_and_shown_safely(
    check: Check, name: object, wrong: str
) -> None:
    with pytest.raises(InvalidOption) as refused:
        check(name)

    assert wrong in str(refused.value)
    assert "must be text of 1 to " in str(refused.value)
    assert str(refused.value).isprintable()


def test_a_name_has_at_most_200_characters_and_a_key_500() -> None:
    assert check_key("k" * 500) == "k" * 500
    for check in (check_type, check_queue, check_worker_id, check_tag):
        with pytest.raises(InvalidOption, match="has 201 characters"):
            check("n" * 201)


def test_the_message_about_a_name_of_a_million_characters_is_short() -> None:
    with pytest.raises(InvalidOption) as refused:
        check_key("k" * 1_000_000)

    assert len(str(refused.value)) < 300


def test_a_name_whose_repr_raises_is_refused_like_any_other() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(InvalidOption, match="is no text"):
        check_type(Rude())
