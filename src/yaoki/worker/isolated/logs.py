"""Log lines of a child come out where the worker's own do, in the same format and from one level.

A child sends each record to its worker, which hands it to its own logger of that name. So nothing
has to be set up in the child, nothing is written by two processes at once, and what was logged
before a crash is there. Where the app sets up logging when it is imported, that stands.
"""

import logging
from collections.abc import Mapping
from typing import Any

from yaoki.core.failures import text
from yaoki.jobtypes.log_handler import name_the_job
from yaoki.worker.isolated.messages import Record
from yaoki.worker.isolated.wire import Wire

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_SENT = (
    "name", "levelno", "levelname", "pathname", "filename", "module", "lineno", "funcName",
    "created", "msecs", "relativeCreated", "thread", "threadName", "process", "processName",
    "stack_info",
)  # fmt: skip

_PLAIN = (str, int, float, bool, type(None))

MOST_TEXT = 64_000
"""Characters of a message, or of a traceback."""

_formatter = logging.Formatter()


def levels() -> dict[str, int]:
    """The levels that were set here, by the logger's name; "" is the root."""
    loggers = list(logging.root.manager.loggerDict.items())
    named = {name: one.level for name, one in loggers if isinstance(one, logging.Logger)}
    return {"": logging.root.level} | {name: level for name, level in named.items() if level}


def adopt(levels: Mapping[str, int], wire: Wire) -> None:
    """In a child: log from these levels on, to the worker."""
    for name, level in levels.items():
        logger = logging.getLogger(name or None)
        if not name or logger.level == logging.NOTSET:
            logger.setLevel(level)
    logging.root.addHandler(_ToWorker(wire))


def emit(record: Record) -> None:
    """In the worker: log what a child has logged."""
    made = logging.makeLogRecord(record.fields)
    logger = logging.getLogger(made.name)
    if logger.isEnabledFor(made.levelno):
        logger.handle(made)


class _ToWorker(logging.Handler):
    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self._wire = wire

    def emit(self, record: logging.LogRecord) -> None:
        if self._is_handled_here(record.name):
            return
        if not self._wire.is_ours:
            # As Python does where nobody has set anything up.
            if logging.lastResort is not None and record.levelno >= logging.lastResort.level:
                logging.lastResort.handle(record)
            return
        try:
            name_the_job(record)
            self._wire.send(Record(_fields(record)))
        except Exception:
            self.handleError(record)

    def _is_handled_here(self, name: str) -> bool:
        """Does the app have a handler of its own for this?"""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            for handler in logger.handlers:
                if handler is not self and not isinstance(handler, logging.NullHandler):
                    return True
            logger = logger.parent if logger.propagate else None
        return False


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    values = vars(record)
    fields = {name: values.get(name) for name in _SENT}
    fields["msg"] = text(record.getMessage(), MOST_TEXT)
    if record.exc_info and record.exc_info[0] is not None:
        fields["exc_text"] = text(_formatter.formatException(record.exc_info), MOST_TEXT)
    for name, value in values.items():
        if name not in _STANDARD and isinstance(value, _PLAIN):
            fields[name] = text(value, MOST_TEXT) if isinstance(value, str) else value
    return fields
