"""Isolated handlers: each runs in a process that can be killed, and the worker goes on."""

from yaoki.worker.isolated.guard import refuse_when_imported
from yaoki.worker.isolated.pool import Pool

__all__ = ["Pool", "refuse_when_imported"]
