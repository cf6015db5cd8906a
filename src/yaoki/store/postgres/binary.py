"""Values as PostgreSQL sends and receives them: bigint, text, and lists of either.

Only what our statements declare (statements.py). psycopg converts anything, but takes a hundred
times as long for a list of numbers, which there are several of in every batch.
"""

from collections.abc import Sequence
from struct import Struct, pack
from typing import Any

_bigint = Struct("!q").pack
_length = Struct("!i").pack
_header = Struct("!iiIii").pack

_NULL = _length(-1)

BIGINT, TEXT = 20, 25
"""Object identifiers of the types (pg_type.dat)."""


def binary(value: Any) -> bytes | None:
    """A value for a parameter; None for NULL."""
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return _array(value)
    return _bigint(value)


def _array(values: Sequence[Any]) -> bytes:
    """array_recv in arrayfuncs.c: dimensions, nulls, type; length and first index; elements."""
    if not values:
        return pack("!iiI", 0, 0, TEXT)
    count, first = len(values), values[0]
    if isinstance(first, int):
        body = [8] * (2 * count)
        body[1::2] = values
        return _header(1, 0, BIGINT, count, 1) + pack("!" + "iq" * count, *body)
    if values.count(first) == count:
        return _header(1, first is None, TEXT, count, 1) + _text(first) * count
    return _header(1, None in values, TEXT, count, 1) + b"".join(map(_text, values))


def _text(value: str | None) -> bytes:
    if value is None:
        return _NULL
    encoded = value.encode()
    return _length(len(encoded)) + encoded
