"""What programs read: JSON with the names of the fields, whole numbers exact."""

import json
import re
import sys
from datetime import date

import click

# JSON lets these stand in text as they are, and terminals obey them.
_OBEYED = re.compile("[\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def as_json(value: object, *, indent: int | None = 2) -> str:
    """The value as JSON text; instants in ISO 8601."""
    text = json.dumps(
        value, indent=indent, ensure_ascii=not _speaks_unicode(), default=_plain, allow_nan=False
    )
    return _OBEYED.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def show_json(value: object, *, indent: int | None = 2) -> None:
    """Print the value as JSON."""
    click.echo(as_json(value, indent=indent))


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, date) else str(value)


def _speaks_unicode() -> bool:
    encoding = getattr(sys.stdout, "encoding", None) or ""
    return encoding.lower().replace("-", "").startswith("utf")
