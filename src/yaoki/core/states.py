"""The states of a job and the moves between them: the table that everything else obeys."""

from enum import StrEnum


class Status(StrEnum):
    """Where a job is in its life."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


# pending covers due now, delayed, and waiting for the next attempt; run_at and attempt tell which.
MOVES: dict[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.RUNNING, Status.CANCELLED}),
    Status.RUNNING: frozenset(
        {Status.COMPLETED, Status.PENDING, Status.FAILED, Status.CANCELLED},
    ),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset({Status.PENDING}),
    Status.CANCELLED: frozenset({Status.PENDING}),
}

FINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
"""Nothing runs any more; failed and cancelled jobs come back only when somebody puts them back."""
