"""What types, queues, keys, workers and tags may be called."""

import re

from yaoki.core.errors import InvalidOption
from yaoki.core.failures import shown

MAX_NAME = 200
MAX_KEY = 500

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def check_type(value: object) -> str:
    """The type of a job, if it can be one."""
    return _checked(value, "the type of a job", MAX_NAME)


def check_queue(value: object) -> str:
    """The name of a queue, if it can be one."""
    return _checked(value, "the name of a queue", MAX_NAME)


def check_key(value: object) -> str:
    """An idempotency key, if it can be one."""
    return _checked(value, "an idempotency key", MAX_KEY)


def check_worker_id(value: object) -> str:
    """A worker's id, if it can be one."""
    return _checked(value, "a worker_id", MAX_NAME)


def check_tag(value: object) -> str:
    """A tag, if it can be one."""
    return _checked(value, "a tag", MAX_NAME)


def _checked(value: object, what: str, longest: int) -> str:
    # The plain text under a StrEnum or another subclass, whatever its own __str__ says.
    name = str.__str__(value) if isinstance(value, str) else None
    wrong = _wrong(name, longest)
    if wrong:
        raise InvalidOption(
            f"{what} must be text of 1 to {longest} characters, "
            f"without control characters and without blanks at its ends; {shown(value)} {wrong}"
        )
    assert name is not None
    return name


def _wrong(name: str | None, longest: int) -> str | None:
    if name is None:
        return "is no text"
    if not name:
        return "is empty"
    if len(name) > longest:
        return f"has {len(name):,} characters"
    if name[0].isspace() or name[-1].isspace():
        return "begins or ends with a blank"
    if name.isprintable():
        return None
    if _CONTROL.search(name):
        return "has a control character"
    if _SURROGATE.search(name):
        return "has half a character (a lone surrogate)"
    return None
