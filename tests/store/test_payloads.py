"""Payloads: the same answer on every store, from enqueue over the claim to the handler."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest

from tests.support.acts import make
from tests.support.databases import ask
from yaoki import InvalidPayload, Yaoki
from yaoki.core.payloads import MAX_BYTES, MAX_DEPTH
from yaoki.store import Store

EXACT: list[Any] = [
    1970670598291982290,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    10**30,
    10**3_999,
    0.1,
    1e308,
    -0.0,
    "",
    "ありがとう 🙇",
    "\x01\x1f\x7f\u2028\u2029",
    "</script>",
    "' OR 1=1 --",
    [],
    {},
    [None, True, False, 0, 1.0],
    {"": {"": []}},
    {"a.b": 1, "$": 2, "é": 3, "e\u0301": 4},
]


@pytest.mark.parametrize("value", EXACT, ids=lambda value: ascii(value)[:30])
def test_a_value_comes_through_exactly(app: Yaoki, value: Any) -> None:
    """From enqueue to the claim and in lists, with every digit (faults 113 to 115)."""
    job = app.enqueue("mail", {"value": value})

    [claimed] = app.claim("w1")
    for seen in (job, claimed, app.get(job), app.jobs()[0]):
        assert seen.payload == {"value": value}
        assert type(seen.payload["value"]) is type(value)
    assert app.complete(claimed, value).result == value


def test_a_huge_integer_reaches_the_handler_with_every_digit(app: Yaoki) -> None:
    got: list[int] = []

    @app.job("count")
    def count(number: int) -> None:
        got.append(number)

    numbers = [2**63, 10**30, -(10**30), 1970670598291982290]
    for number in numbers:
        count.enqueue(number)
    app.run_worker(until_empty=True, concurrency=1)

    assert got == numbers


REFUSED: list[tuple[Any, str]] = [
    (float("nan"), "$.value"),
    (float("inf"), "$.value"),
    (-float("inf"), "$.value"),
    ("a\0b", "$.value"),
    ("\ud83d", "$.value"),
    ({"a\0": 1}, "$.value"),
    ({"\ud83d": 1}, "$.value"),
    ([1, [2, float("nan")]], "$.value[1][1]"),
    ([{"price": float("inf")}], "$.value[0].price"),
    ({1: 2}, "$.value"),
    (object(), "$.value"),
    (datetime(2027, 1, 1), "$.value"),
    (lambda: None, "$.value"),
    (10**4_000, "$.value"),
]


@pytest.mark.parametrize(("value", "path"), REFUSED)
def test_a_value_that_json_has_not_is_refused_at_enqueue_with_its_path(
    app: Yaoki, value: Any, path: str
) -> None:
    with pytest.raises(InvalidPayload) as alone:
        app.enqueue("mail", {"value": value})
    with pytest.raises(InvalidPayload) as second:
        app.enqueue_many("mail", [{}, {"value": value}])

    for refused, expected in ((alone, path), (second, path.replace("$", "$[1]"))):
        assert refused.value.path.startswith(expected)
        assert "\n" not in str(refused.value)
        str(refused.value).encode()

    assert app.jobs() == []


@pytest.mark.parametrize("payload", [[1], "a", 7, [("a", 1)], {("a",): 1}, {1: 2}, {None: 1}])
def test_a_payload_that_is_no_object_is_refused(app: Yaoki, payload: Any) -> None:
    with pytest.raises(InvalidPayload):
        app.enqueue("mail", payload)

    assert app.jobs() == []


def test_an_empty_list_is_no_payload(app: Yaoki) -> None:
    """It is not the same as none: somebody passed the wrong thing."""
    with pytest.raises(InvalidPayload):
        app.enqueue("mail", [])  # type: ignore[arg-type]


def test_a_payload_may_be_as_big_as_the_limit_and_not_bigger(app: Yaoki) -> None:
    around = len('{"a":""}')
    fits = app.enqueue("mail", {"a": "x" * (MAX_BYTES - around)})

    assert len(app.get(fits).payload["a"]) == MAX_BYTES - around  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload, match=r"1,?048,?576|1 MiB"):
        app.enqueue("mail", {"a": "x" * (MAX_BYTES - around + 1)})
    with pytest.raises(InvalidPayload):
        app.enqueue("mail", {"a": "é" * (MAX_BYTES // 2)})


def test_a_payload_may_be_as_deep_as_the_limit_and_not_deeper(app: Yaoki) -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for _ in range(levels):
            value = [value]
        return value

    app.enqueue("mail", {"a": nested(MAX_DEPTH - 1)})
    for levels in (MAX_DEPTH, 10_000):
        with pytest.raises(InvalidPayload, match=str(MAX_DEPTH)):
            app.enqueue("mail", {"a": nested(levels)})


def test_a_payload_that_contains_itself_is_refused(app: Yaoki) -> None:
    payload: dict[str, Any] = {}
    payload["self"] = payload

    with pytest.raises(InvalidPayload):
        app.enqueue("mail", payload)


class Colour(Enum):
    RED = "red"


def test_values_that_json_spells_as_text_arrive_in_the_types_of_the_handler(app: Yaoki) -> None:
    got: list[tuple[Any, ...]] = []

    @app.job("convert")
    def convert(
        at: datetime, day: date, span: timedelta, ref: UUID, price: Decimal, data: bytes, c: Colour
    ) -> None:
        got.append((at, day, span, ref, price, data, c))

    values = (
        datetime(2027, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC),
        date(2027, 1, 2),
        timedelta(minutes=90),
        UUID(int=7),
        Decimal("19.90"),
        b"\x00\xff",
        Colour.RED,
    )
    convert.enqueue(*values)
    app.run_worker(until_empty=True, concurrency=1)

    assert got == [values]


def test_the_payload_is_what_was_given_not_what_became_of_it(app: Yaoki) -> None:
    payload = {"items": [1]}

    job = app.enqueue("mail", payload)
    payload["items"].append(2)

    assert job.payload == {"items": [1]}


def test_a_payload_that_somebody_broke_in_the_table_does_not_break_lists(
    app: Yaoki, store: Store
) -> None:
    """One unreadable row must not hide the others (promise 2)."""
    broken, fine = make(store), make(store)
    breaking = "UPDATE yaoki.jobs SET payload = '{not json' WHERE id = :id"
    ask(store, breaking, {"id": broken.id})

    assert [job.id for job in app.jobs()] == [fine.id, broken.id]
    assert [job.id for job in app.claim("w1", limit=2)] == [broken.id, fine.id]
    assert app.get(broken).status == "running"
