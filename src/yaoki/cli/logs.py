"""Logging to stderr, one readable line for each event."""

import logging
import sys
import traceback
from datetime import UTC, datetime

from yaoki.cli.show.text import one_line


def log_to_stderr(level: str) -> None:
    """Send what this process logs to stderr, from `level` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine())
    logging.basicConfig(level=level.upper(), handlers=[handler])


class OneLine(logging.Formatter):
    """Time, level, message; of an exception its class, message and place."""

    def format(self, record: logging.LogRecord) -> str:
        local = datetime.fromtimestamp(record.created, UTC).astimezone()
        zone = local.tzname() or local.strftime("%z")
        line = f"{local:%Y-%m-%d %H:%M:%S} {zone} {record.levelname.lower():7} {_message(record)}"
        return one_line(line)


def _message(record: logging.LogRecord) -> str:
    message = record.getMessage()
    if not record.name.startswith("yaoki"):
        message = f"{record.name}: {message}"
    error = record.exc_info[1] if record.exc_info else None
    return message if error is None else f"{message} [{_place(error)}]"


def _place(error: BaseException) -> str:
    said = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    return f"{said}, {frames[-1].filename} line {frames[-1].lineno}" if frames else said
