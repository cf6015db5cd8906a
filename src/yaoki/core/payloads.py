"""Payloads and results as strict JSON, the same for every database.

What is made of plain JSON types, as nearly everything is, is seen to be so by a glance at its
types. The rest, and what came out suspicious, is looked through part by part, and the first
fault is reported with its path.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

import msgspec

from yaoki.core.errors import InvalidPayload
from yaoki.core.failures import describe, kind_of, shown
from yaoki.core.failures import text as storable

MAX_BYTES = 1 << 20
"""Of the JSON, in UTF-8."""

MAX_DEPTH = 64
"""Objects and arrays inside one another, the payload itself included."""

MAX_DIGITS = 4_000
"""Of one integer; Python refuses to read more than 4,300 unless it is told to."""


def encode_payload(payload: Mapping[str, object], *, max_bytes: int = MAX_BYTES) -> str:
    """The payload as JSON text; InvalidPayload says where it is wrong if it cannot be."""
    if type(payload) is not dict:
        payload = _as_dict(payload)
    return _encode(payload, max_bytes)


def decode_payload(text: str) -> dict[str, object]:
    """The payload that encode_payload() wrote."""
    try:
        return _read_object(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError, TypeError) as error:
        raise InvalidPayload("$", f"what is stored is no JSON object: {error}") from None


def parse_object(text: str, what: str) -> dict[str, object]:
    """The JSON object that a person typed; `what` says where, as in "--payload"."""
    if len(text) > MAX_BYTES:
        raise _too_big(len(text), MAX_BYTES)
    try:
        parsed = _parse(text)
    except json.JSONDecodeError as error:
        reason = f"is not JSON: {error.msg}, line {error.lineno}, column {error.colno}"
        raise InvalidPayload("$", f"{what} {reason}") from None
    except ValueError as error:
        raise InvalidPayload("$", f"{what} {error}") from None
    except RecursionError:
        raise InvalidPayload("$", f"{what} is {_TOO_DEEP}") from None
    if not isinstance(parsed, dict):
        raise InvalidPayload("$", f"{what} must be a JSON object, like {{}}")
    encode_payload(parsed)
    return parsed


def encode_result(value: object) -> tuple[str, str | None]:
    """The result as JSON text; or a stand-in for it, and why it could not be stored.

    Never raises: a job that did its work does not fail for what it returns.
    """
    if value is None:
        return "null", None
    try:
        return _encode(value, MAX_BYTES), None
    except InvalidPayload as fault:
        reason = f"{fault.path}: {fault.reason}"
    except BaseException as error:  # code of the value's own may run
        reason = describe(error).error
    stored = storable(reason, 1_000)
    return _write({"unstorable": stored, "repr": shown(value, 200)}).decode(), stored


def redact(payload: dict[str, object], secret: Collection[str]) -> dict[str, object]:
    """The payload with the values of these keys hidden."""
    return {key: "***" if key in secret else value for key, value in payload.items()}


def _encode(value: object, max_bytes: int) -> str:
    if not _is_plain(value, _SCALARS):
        _refuse_faults(value)
    try:
        encoded = _write(value)
    except Exception as error:
        _refuse_faults(value)
        raise InvalidPayload("$", f"it cannot be written as JSON: {error}") from None
    if len(encoded) > max_bytes:
        raise _too_big(len(encoded), max_bytes)
    text = encoded.decode()
    if _is_suspicious(text, value):
        _refuse_faults(value)
    return text


def _is_suspicious(text: str, value: object) -> bool:
    """Whether it may have one of the faults that do not keep it from being written.

    NaN and infinity are written as null, NUL as an escape, and integers in full, although no
    reader takes the longest. A false alarm costs only time.
    """
    if "\\u0000" in text or ("null" in text and not _is_plain(value, _FLOATLESS)):
        return True
    half = MAX_DIGITS // 2  # more digits than that fill at least one of the halves below
    return len(text) > MAX_DIGITS and any(
        text[start : start + half].isdecimal() for start in range(0, len(text) - half, half)
    )


def _is_plain(value: Any, scalars: frozenset[type], levels: int = MAX_DEPTH) -> bool:
    """Whether it is made of nothing but lists, dicts and `scalars`, at most `levels` deep."""
    if type(value) in scalars:
        return True
    if levels == 0:
        return False
    parts: Iterable[Any]
    if type(value) is dict and _TEXT.issuperset(map(type, value)):
        parts = value.values()
    elif type(value) is list:
        parts = value
    else:
        return False
    # A set looks at all their types at once; only what has parts of its own is looked into.
    return scalars.issuperset(map(type, parts)) or all(
        _is_plain(part, scalars, levels - 1) for part in parts
    )


class _Fault(NamedTuple):
    path: str
    reason: str


def _refuse_faults(value: object) -> None:
    fault = _fault(value, ())
    if fault is not None:
        raise InvalidPayload(storable(f"${fault.path}", 300), fault.reason)


def _fault(value: object, above: tuple[object, ...]) -> _Fault | None:
    """The first part that cannot be stored exactly; `above` are the containers it is in."""
    if isinstance(value, _LEAVES):
        reason = _leaf_fault(value)
        return _Fault("", reason) if reason else None
    if isinstance(value, Enum):
        return _fault(value.value, above)
    parts = _parts(value)
    reason = _no_form(value) if parts is None else _container_fault(value, above)
    if reason:
        return _Fault("", reason)
    above = (*above, value)
    for key, part in parts or ():
        fault = _fault(part, above)
        if fault is not None:
            return _Fault(_step(key) + fault.path, fault.reason)
    return None


def _parts(value: object) -> Iterable[tuple[object, object]] | None:
    """What is in a container, with the key of each; None for what is no container."""
    match value:
        case dict():
            return dict.items(value)
        case list() | tuple() | set() | frozenset():
            return enumerate(value)
        case msgspec.Struct():
            keys = dict(zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True))
        case _ if isinstance(value, type):
            return None
        case _ if is_dataclass(value):
            keys = {field.name: field.name for field in fields(value)}
        case _ if attributes := getattr(type(value), "__attrs_attrs__", ()):
            keys = {attribute.name: attribute.name for attribute in attributes}
        case _:
            return None
    parts = {key: getattr(value, name, msgspec.UNSET) for key, name in keys.items()}
    return ((key, part) for key, part in parts.items() if part is not msgspec.UNSET)


def _container_fault(value: object, above: tuple[object, ...]) -> str | None:
    if any(value is each for each in above):
        return "it contains itself"
    if len(above) == MAX_DEPTH:
        return f"it is {_TOO_DEEP}"
    if isinstance(value, dict):
        return next(filter(None, map(_key_fault, value)), None)
    return None


def _key_fault(key: object) -> str | None:
    if not isinstance(key, str):
        return f"its key {shown(key, 40)} is no text"
    wrong = _text_fault(key)
    return wrong and f"its key {shown(key, 40)} {wrong}"


def _leaf_fault(value: object) -> str | None:
    match value:
        case str():
            wrong = _text_fault(value)
            return wrong and f"it {wrong}"
        case int():
            return None if abs(value) < _TOO_MANY_DIGITS else f"it has {_MORE_DIGITS}"
        case float():
            return None if isfinite(value) else f"it is {float(value)}, which JSON has not"
        case datetime() if value.utcoffset() is None:
            return "it is a datetime without a time zone; its astimezone() has one"
        case _:
            return None


def _text_fault(text: str) -> str | None:
    if "\0" in text:
        return "has a NUL character, which PostgreSQL cannot store"
    if _SURROGATE.search(text):
        return "has half a character (a lone surrogate)"
    return None


def _step(key: object) -> str:
    if isinstance(key, str):
        return f".{key}" if key.isidentifier() else f"[{shown(key, 40)}]"
    return f"[{key}]"


def _as_dict(payload: object) -> dict[str, object]:
    if not isinstance(payload, Mapping):
        raise InvalidPayload("$", f"it must be a mapping, not a {kind_of(type(payload))}")
    return dict(payload)


def _too_big(size: int, most: int) -> InvalidPayload:
    return InvalidPayload("$", f"it is {size:,} bytes long, and at most {most:,} are allowed")


def _as_json_has_it(value: object) -> object:
    """The plain value in an instance of a subclass, for which msgspec has no encoding."""
    match value:
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
    raise TypeError(_no_form(value))


def _no_form(value: object) -> str:
    return f"JSON has no form for {kind_of(type(value))}"


def _parse(text: str) -> object:
    return json.loads(
        text,
        object_pairs_hook=_without_duplicates,
        parse_constant=_refuse_constant,
        parse_float=_finite,
        parse_int=_whole,
    )


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    parsed = dict(pairs)
    if len(parsed) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"has the key {shown(key, 40)} more than once in one object")
    return parsed


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"has {name}, which is no JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError(f"has {shown(digits, 40)}, which is too big for a float")
    return number


def _whole(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"has an integer of {_MORE_DIGITS}")
    return int(digits)


_write = msgspec.json.Encoder(enc_hook=_as_json_has_it).encode
_read_object = msgspec.json.Decoder(dict[str, object]).decode

_SCALARS: frozenset[type] = frozenset({str, int, float, bool, type(None)})
_FLOATLESS = _SCALARS - {float}
_TEXT = frozenset({str})
_WRITTEN_AS_TEXT = (bytes, bytearray, memoryview, date, time, timedelta, UUID, Decimal)
_LEAVES = (str, int, float, type(None), *_WRITTEN_AS_TEXT)
_SURROGATE = re.compile("[\ud800-\udfff]")
_TOO_MANY_DIGITS = 10**MAX_DIGITS
_MORE_DIGITS = f"more than {MAX_DIGITS:,} digits"
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"
