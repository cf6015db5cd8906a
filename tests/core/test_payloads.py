"""Payloads and results are strict JSON: what goes in comes out, or is refused with its path."""

import json
import math
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import MappingProxyType
from typing import Any, NoReturn
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaoki.core.errors import InvalidPayload
from yaoki.core.payloads import (
    MAX_BYTES,
    MAX_DEPTH,
    decode_payload,
    encode_payload,
    encode_result,
    parse_object,
    redact,
)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**400), max_value=10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=10
)
json_objects = st.dictionaries(texts, json_values)


class Colour(Enum):
    RED = "red"
    BROKEN = math.nan


class Word(StrEnum):
    RED = "red"


class Number(IntEnum):
    ONE = 1


class Text(str):
    __slots__ = ()


class Whole(int):
    pass


class Real(float):
    pass


@dataclass
class Item:
    price: Any
    note: str = field(init=False)


class Order(msgspec.Struct, rename="camel"):
    line_items: Any
    coupon: str | msgspec.UnsetType = msgspec.UNSET


Point = namedtuple("Point", "x y")


class Opaque:
    """Nothing that JSON could hold."""


def nested(levels: int) -> Any:
    """An object in an object in an object, so many in all."""
    value: dict[str, object] = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def fault_of(payload: Any, **options: Any) -> tuple[str, str]:
    with pytest.raises(InvalidPayload) as refused:
        encode_payload(payload, **options)
    return refused.value.path, refused.value.reason


# What goes in comes out.


@given(json_objects)
def test_every_json_object_comes_back_exactly(payload: dict[str, object]) -> None:
    back = decode_payload(encode_payload(payload))

    assert back == payload
    assert repr(back) == repr(payload)


@given(json_objects)
def test_what_is_stored_is_json_to_everybody(payload: dict[str, object]) -> None:
    stored = encode_payload(payload)

    assert json.loads(stored) == payload
    assert "\0" not in stored
    stored.encode()


@pytest.mark.parametrize(
    "number",
    [
        2**53 + 1,
        1970670598291982290,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63) - 1,
        10**30,
        pytest.param(10**3_999, id="4,000 digits"),
        pytest.param(-(10**3_999), id="-4,000 digits"),
    ],
)
def test_big_integers_are_exact(number: int) -> None:
    """JSON readers that use floats round them, and then show or re-queue another id."""
    assert decode_payload(encode_payload({"id": number})) == {"id": number}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2027, 1, 1, tzinfo=UTC), "2027-01-01T00:00:00Z"),
        (date(2027, 1, 1), "2027-01-01"),
        (time(9, 30), "09:30:00"),
        (timedelta(days=1, seconds=3), "P1DT3S"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.50"), "1.50"),
        (b"ab", "YWI="),
        (Colour.RED, "red"),
        (Word.RED, "red"),
        (Number.ONE, 1),
        (Text("plain"), "plain"),
        (Whole(7), 7),
        (Real(1.5), 1.5),
        ((1, 2), [1, 2]),
        ({1}, [1]),
        (frozenset({1}), [1]),
        (Point(1, 2), [1, 2]),
        (Item(3), {"price": 3}),
        (Order([Item(3)]), {"lineItems": [{"price": 3}]}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (defaultdict(int, a=1), {"a": 1}),
        ({Text("a"): None}, {"a": None}),
        (None, None),
    ],
)
def test_python_values_with_a_form_in_json_are_stored_in_it(value: Any, expected: Any) -> None:
    assert decode_payload(encode_payload({"value": value})) == {"value": expected}


@pytest.mark.parametrize("payload", [{"a": 1}, OrderedDict(a=1), MappingProxyType({"a": 1})])
def test_any_mapping_is_a_payload(payload: Mapping[str, object]) -> None:
    assert encode_payload(payload) == '{"a":1}'


def test_the_same_object_may_stand_in_two_places() -> None:
    shared = [1]

    assert encode_payload({"a": shared, "b": [shared, shared]}) == '{"a":[1],"b":[[1],[1]]}'


def test_texts_that_only_look_like_faults_are_stored() -> None:
    payload = {"null": None, "a": "null", "b": "\\u0000", "c": [None, 1.5], "d": {"e": None}}

    assert decode_payload(encode_payload(payload)) == payload


def test_the_order_of_keys_is_kept() -> None:
    assert list(decode_payload(encode_payload({"b": 1, "a": 2, "c": 3}))) == ["b", "a", "c"]


# What cannot be stored is refused, with the path to it.


def itself() -> dict[str, object]:
    loop: list[object] = []
    loop.append(loop)
    return {"loop": loop}


def itself_by_a_dict() -> dict[str, object]:
    loop: dict[str, object] = {}
    loop["again"] = [loop]
    return loop


@pytest.mark.parametrize(
    ("payload", "path", "reason"),
    [
        ({"x": math.nan}, "$.x", "it is nan"),
        ({"x": math.inf}, "$.x", "it is inf"),
        ({"x": -math.inf}, "$.x", "it is -inf"),
        ({"x": Real("nan")}, "$.x", "it is nan"),
        ({"x": Colour.BROKEN}, "$.x", "it is nan"),
        ({"items": [{}, {}, {}, {"price": math.nan}]}, "$.items[3].price", "it is nan"),
        ({"x": [None, {"y": (1.0, math.nan)}]}, "$.x[1].y[1]", "it is nan"),
        ({"x": {math.inf}}, "$.x[0]", "it is inf"),
        ({"x": Item(math.nan)}, "$.x.price", "it is nan"),
        ({"x": Order([math.nan])}, "$.x.lineItems[0]", "it is nan"),
        ({"x": "a\0b"}, "$.x", "NUL"),
        ({"x": ["a\0b"]}, "$.x[0]", "NUL"),
        ({"x": Text("a\0b")}, "$.x", "NUL"),
        ({"a\0b": 1}, "$", r"its key 'a\x00b' has a NUL"),
        ({"x": [{"a\0b": 1}]}, "$.x[0]", r"its key 'a\x00b' has a NUL"),
        ({"x": "\ud83d"}, "$.x", "half a character"),
        ({"\ud83d": 1}, "$", r"its key '\ud83d' has half a character"),
        ({"x": {"y": [1, "\udc00"]}}, "$.x.y[1]", "half a character"),
        ({1: "a"}, "$", "its key 1 is no text"),
        ({"x": {1: "a", "1": "b"}}, "$.x", "its key 1 is no text"),
        ({"x": {None: 1}}, "$.x", "its key None is no text"),
        ({"x": {(1, 2): 1}}, "$.x", "its key (1, 2) is no text"),
        ({"x": {date(2027, 1, 1): 1}}, "$.x", "is no text"),
        ({"x": datetime(2027, 1, 1)}, "$.x", "a datetime without a time zone"),
        ({"x": [Item(datetime(2027, 1, 1))]}, "$.x[0].price", "a datetime without a time zone"),
        ({"x": 10**4_000}, "$.x", "more than 4,000 digits"),
        ({"x": Opaque()}, "$.x", "no form for test_payloads.Opaque"),
        ({"x": [Opaque]}, "$.x[0]", "no form for builtins.type"),
        ({"x": Item}, "$.x", "no form for builtins.type"),
        ({"x": 1j}, "$.x", "no form for builtins.complex"),
        ({"x": deque([1])}, "$.x", "no form for collections.deque"),
        ({"x": (each for each in [1])}, "$.x", "no form for builtins.generator"),
        ({"x": MappingProxyType({})}, "$.x", "no form for builtins.mappingproxy"),
        ({"x": msgspec.Raw(b"NaN")}, "$.x", "no form for msgspec.Raw"),
        ({"x": ValueError()}, "$.x", "no form for builtins.ValueError"),
        ({"two words": {"予約": math.nan}}, "$['two words'].予約", "it is nan"),
        (itself(), "$.loop[0]", "it contains itself"),
        (itself_by_a_dict(), "$.again[0]", "it contains itself"),
        ([], "$", "must be a mapping, not a builtins.list"),
        ("{}", "$", "must be a mapping, not a builtins.str"),
        (None, "$", "must be a mapping, not a builtins.NoneType"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.isascii() else "",
)
def test_a_fault_is_reported_with_its_path(payload: Any, path: str, reason: str) -> None:
    found_path, found_reason = fault_of(payload)

    assert found_path.replace("tests.core.", "") == path
    assert reason in found_reason.replace("tests.core.", "")


def test_the_message_says_where_and_what() -> None:
    with pytest.raises(InvalidPayload, match=r"^payload at \$\.items\[3\]\.price: it is nan"):
        encode_payload({"items": [0, 0, 0, {"price": math.nan}]})


def test_a_payload_may_be_64_levels_deep_and_no_deeper() -> None:
    assert encode_payload(nested(MAX_DEPTH)).count("{") == MAX_DEPTH

    path, reason = fault_of(nested(MAX_DEPTH + 1))

    assert path == "$" + ".a" * MAX_DEPTH
    assert reason == "it is nested more than 64 levels deep"


@pytest.mark.parametrize("levels", [1_000, 200_000])
def test_no_depth_is_too_much_to_be_refused(levels: int) -> None:
    value: list[object] = []
    for _ in range(levels):
        value = [value]

    assert fault_of({"x": value})[1] == "it is nested more than 64 levels deep"

    while value:  # or its end would be as deep a recursion
        value = value.pop()  # type: ignore[assignment]


def test_the_limit_of_a_payload_is_in_bytes_of_its_json() -> None:
    frame = len(encode_payload({"x": ""}))
    largest = encode_payload({"x": "é" * ((MAX_BYTES - frame) // 2)})

    assert len(largest.encode()) in (MAX_BYTES - 1, MAX_BYTES)
    assert "1,048,576 are allowed" in fault_of({"x": "é" * (MAX_BYTES // 2)})[1]


@pytest.mark.parametrize("limit", [10, 100])
def test_the_limit_of_a_payload_can_be_another(limit: int) -> None:
    exact = {"x": "a" * (limit - len('{"x":""}'))}

    assert len(encode_payload(exact, max_bytes=limit)) == limit
    assert fault_of(exact, max_bytes=limit - 1) == (
        "$",
        f"it is {limit} bytes long, and at most {limit - 1} are allowed",
    )


def test_the_path_to_a_fault_stays_short_whatever_the_keys_are() -> None:
    payload: Any = math.nan
    for _ in range(50):
        payload = {"k" * 1_000: payload}

    path, _ = fault_of(payload)

    assert len(path) <= 300
    assert "characters left out" in path


@given(st.dictionaries(st.text(), st.text() | st.floats() | st.lists(st.text() | st.floats())))
def test_a_payload_is_either_stored_exactly_or_refused(payload: dict[str, object]) -> None:
    try:
        stored = encode_payload(payload)
    except InvalidPayload as refused:
        str(refused).encode()
    else:
        assert decode_payload(stored) == payload


# What is read.


@pytest.mark.parametrize(
    "stored",
    ["", "null", "[]", '"{}"', "{", '{"a":NaN}', '{"a":1e400}', "[" * 200_000, "\ud83d", None],
    ids=lambda stored: ascii(stored)[:20],
)
def test_what_is_no_json_object_cannot_be_read(stored: Any) -> None:
    with pytest.raises(InvalidPayload, match="what is stored is no JSON object"):
        decode_payload(stored)


# What a person typed.


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        ("{}", {}),
        (' {"a": 1} ', {"a": 1}),
        ('{"a": {"a": [{"a": null}]}}', {"a": {"a": [{"a": None}]}}),
        ('{"id": 1970670598291982290}', {"id": 1970670598291982290}),
        (f'{{"id": {10**30}}}', {"id": 10**30}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
        ('{"予約": 7}', {"予約": 7}),
    ],
)
def test_a_json_object_can_be_typed(typed: str, parsed: dict[str, object]) -> None:
    assert parse_object(typed, "--payload") == parsed


@given(json_objects)
def test_what_is_stored_can_be_typed(payload: dict[str, object]) -> None:
    assert parse_object(encode_payload(payload), "--payload") == payload


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("", "--payload is not JSON: Expecting value, line 1, column 1"),
        ("{a: 1}", "line 1, column 2"),
        ('{\n "a": }', "line 2, column 7"),
        ("{} {}", "line 1, column 4"),
        ("\ufeff{}", "--payload is not JSON"),
        ("[1]", "--payload must be a JSON object"),
        ("null", "--payload must be a JSON object"),
        ('{"a": NaN}', "--payload has NaN"),
        ('{"a": [-Infinity]}', "--payload has -Infinity"),
        ('{"a": 1e400}', "--payload has '1e400', which is too big for a float"),
        ('{"a": 1, "b": 2, "a": 3}', "--payload has the key 'a' more than once in one object"),
        ('[{"x": {"a": 1, "a": 1}}]', "--payload has the key 'a' more than once in one object"),
        ('{"a": "\\u0000"}', "$.a: it has a NUL"),
        ('{"a\\u0000": 1}', "NUL"),
        ('{"a": "\\ud83d"}', "$.a: it has half a character"),
        ('{"a": "\ud83d"}', "$.a: it has half a character"),
        ('{"a": ' + "1" * 5_000 + "}", "--payload has an integer of more than 4,000 digits"),
        ('{"a": ' + "[" * 64 + "]" * 64 + "}", "nested more than 64 levels deep"),
        ("[" * 200_000, "--payload is nested more than 64 levels deep"),
        ('{"a":' * 100_000, "--payload is nested more than 64 levels deep"),
        ('{"a": "' + "x" * MAX_BYTES + '"}', "1,048,576 are allowed"),
    ],
    ids=lambda value: ascii(value)[:24],
)
def test_what_was_typed_wrong_is_said_clearly(typed: str, message: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        parse_object(typed, "--payload")

    assert message in str(refused.value)
    assert len(str(refused.value)) < 500


def test_many_keys_with_one_twice_are_refused_quickly() -> None:
    keys = [*map(str, range(80_000)), "79999"]
    typed = "{" + ",".join(f'"{key}":0' for key in keys) + "}"

    with pytest.raises(InvalidPayload, match="the key '79999' more than once"):
        parse_object(typed, "the body")


# Results.


@pytest.mark.parametrize(
    ("result", "stored"),
    [
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (10**30, "1" + "0" * 30),
        (1.5, "1.5"),
        ("予約", '"予約"'),
        ([1, None], "[1,null]"),
        ({"a": 1}, '{"a":1}'),
        (datetime(2027, 1, 1, tzinfo=UTC), '"2027-01-01T00:00:00Z"'),
        (Item(1), '{"price":1}'),
    ],
)
def test_a_result_is_any_json_value(result: object, stored: str) -> None:
    assert encode_result(result) == (stored, None)


class ReprRaises:
    def __repr__(self) -> NoReturn:
        raise SystemExit("no repr")


class ReprIsHuge:
    def __repr__(self) -> str:
        return "x\0\ud83d" * 1_000_000


class Wild(dict[str, object]):
    def items(self) -> NoReturn:
        raise RuntimeError("no items")

    def __iter__(self) -> Iterator[str]:
        raise KeyboardInterrupt


@dataclass
class Trap:
    a: int = field(init=False)

    def __getattribute__(self, name: str) -> NoReturn:
        raise SystemExit(name)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: math.nan, "$: it is nan"),
        (lambda: {"a": [math.inf]}, "$.a[0]: it is inf"),
        (lambda: "a\0b", "$: it has a NUL"),
        (lambda: ["\ud83d"], "$[0]: it has half a character"),
        (lambda: 10**5_000, "$: it has more than 4,000 digits"),
        (object, "$: JSON has no form for builtins.object"),
        (lambda: {1: 2}, "$: its key 1 is no text"),
        (lambda: "x" * MAX_BYTES, "$: it is 1,048,578 bytes long"),
        (lambda: nested(65), "nested more than 64 levels deep"),
        (itself, "$.loop[0]: it contains itself"),
        (ReprRaises, "no form for"),
        (ReprIsHuge, "no form for"),
        (lambda: [ReprRaises()], "$[0]: JSON has no form for"),
        (lambda: Wild(a=1), "KeyboardInterrupt"),
        (Trap, "SystemExit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_result_that_cannot_be_stored_leaves_its_reason_and_its_repr(
    make: Callable[[], object], reason: str
) -> None:
    stored, said = encode_result(make())

    assert said is not None
    assert reason in said
    stand_in = json.loads(stored)
    assert stand_in == {"unstorable": said, "repr": stand_in["repr"]}
    assert 0 < len(stand_in["repr"]) <= 200
    assert "\\u0000" not in stored
    stored.encode()


@given(
    st.recursive(
        st.floats() | st.text() | st.binary() | st.complex_numbers(),
        lambda inner: st.lists(inner) | st.dictionaries(st.integers(), inner),
    )
)
def test_no_result_is_too_strange_to_be_recorded(result: object) -> None:
    stored, _ = encode_result(result)

    json.loads(stored)
    stored.encode()


# Secrets.


def test_secret_keys_are_hidden_and_the_payload_is_left_alone() -> None:
    payload: dict[str, object] = {"card_number": "4111", "amount": 7, "note": {"card_number": 1}}

    assert redact(payload, ("card_number", "missing")) == {
        "card_number": "***",
        "amount": 7,
        "note": {"card_number": 1},
    }
    assert payload["card_number"] == "4111"
