"""Where a tracer learns that jobs are made, and what travels with them to their first attempt."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from yaoki.core.job import Job
from yaoki.core.said import NewJob


class Enqueuing(Protocol):
    """Jobs that are being made."""

    trace: str | None
    """A JSON object of headers, kept with each of them."""

    def made(self, jobs: Sequence[Job]) -> None:
        """They are stored."""


class Tracing(Protocol):
    """Is told of every enqueue; whatever an enqueue raises is raised through the block."""

    def enqueuing(self, jobs: Sequence[NewJob]) -> AbstractContextManager[Enqueuing]: ...
