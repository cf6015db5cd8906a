"""Logging to stderr, one line for each event: as text for people, or as JSON for programs."""

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Literal

from yaoki.cli.show.text import one_line
from yaoki.core.failures import describe, shown
from yaoki.jobtypes.log_handler import name_the_job

Form = Literal["text", "json"]

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; the rest was said with `extra=`."""


def log_to_stderr(level: str, form: Form = "text") -> None:
    """Send what this process logs to stderr, from `level` on.

    Where the app has set logging up itself, that stands; but what it prints gives way to JSON.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(name_the_job)
    handler.setFormatter(JsonLine() if form == "json" else OneLine())
    root = logging.getLogger()
    if form == "json" and root.handlers:
        for other in [each for each in root.handlers if _prints(each)]:
            root.removeHandler(other)
        root.addHandler(handler)
    else:
        logging.basicConfig(level=level.upper(), handlers=[handler])


class OneLine(logging.Formatter):
    """Time, level, message; of an exception its class, message and place."""

    def format(self, record: logging.LogRecord) -> str:
        local = datetime.fromtimestamp(record.created, UTC).astimezone()
        zone = local.tzname() or local.strftime("%z")
        line = f"{local:%Y-%m-%d %H:%M:%S} {zone} {record.levelname.lower():7} {_message(record)}"
        return one_line(line)


class JsonLine(logging.Formatter):
    """An object: time (UTC), level, logger and message, what was said with `extra=`, the error."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in vars(record).items():
            if name not in _OWN and value is not None:
                said.setdefault(name, value)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            failure = describe(error)
            said |= {"error": failure.error, "traceback": failure.traceback}
        elif record.exc_text:
            said |= {"error": _last_line(record.exc_text), "traceback": record.exc_text}
        try:
            return json.dumps(said, default=shown, allow_nan=False)
        except (TypeError, ValueError, RecursionError):  # keys, numbers or loops that JSON has not
            return json.dumps({name: _storable(value) for name, value in said.items()})


def _storable(value: object) -> object:
    plain = isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
    return value if plain else shown(value)


def _prints(handler: logging.Handler) -> bool:
    """Does it write to where this program's own output goes?"""
    printed = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    return isinstance(handler, logging.StreamHandler) and handler.stream in printed


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if not record.name.startswith("yaoki"):
        message = f"{record.name}: {message}"
    error = record.exc_info[1] if record.exc_info else None
    if error is None and record.exc_text:  # it was logged in the process of an isolated handler
        return f"{message} [{_last_line(record.exc_text)}]"
    return message if error is None else f"{message} [{_place(error)}]"


def _last_line(trace: str) -> str:
    """Of a traceback: the error itself."""
    return trace.rstrip().rpartition("\n")[2]


def _place(error: BaseException) -> str:
    said = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{said}, {frames[-1].filename} line {frames[-1].lineno}" if frames else said
