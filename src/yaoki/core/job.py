"""What a row of the jobs table means to people: a job, its attempts, its progress."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from yaoki.core import payloads
from yaoki.core.priority import label_of
from yaoki.core.states import FINAL, Status
from yaoki.core.times import as_datetime

COLUMNS = (
    "id",
    "type",
    "queue",
    "priority",
    "status",
    "payload",
    "run_at",
    "attempt",
    "max_attempts",
    "timeout",
    "backoff",
    "said",
    "idempotency_key",
    "tags",
    "worker_id",
    "claimed_at",
    "started_at",
    "lease",
    "lease_for",
    "lease_expires_at",
    "cancel_requested_at",
    "error",
    "result",
    "progress",
    "releases",
    "snoozes",
    "rescues",
    "revision",
    "created_at",
    "updated_at",
    "finished_at",
    "trace",
)
"""The columns of the jobs table, in the order in which every row arrives."""

BIGGEST_ID = 2**63 - 1

AT = {name: index for index, name in enumerate(COLUMNS)}

Row = tuple[Any, ...]


class Progress(msgspec.Struct, frozen=True):
    """How far a job says it is; `done` of `total` (None when it does not know)."""

    done: float
    total: float | None = None
    message: str | None = None

    @property
    def fraction(self) -> float | None:
        """Between 0 and 1, or None when the total is not known."""
        if not self.total:
            return None
        return min(max(self.done / self.total, 0.0), 1.0)


class Attempt(msgspec.Struct, frozen=True):
    """One attempt that ended. `error` is what went wrong, or why it was put off or stopped.

    `outcome` is completed, retried, failed, snoozed, released or cancelled. An attempt that was
    snoozed or released used nothing up, so the next one has the same number.
    """

    attempt: int
    outcome: str
    worker_id: str | None
    claimed_us: int
    started_us: int | None
    ended_us: int
    error: str | None = None
    traceback: str | None = None
    token: int | None = None
    """The lease of its claim, which is over: it proves nothing any more."""

    @property
    def claimed_at(self) -> datetime:
        return as_datetime(self.claimed_us)

    @property
    def started_at(self) -> datetime | None:
        return None if self.started_us is None else as_datetime(self.started_us)

    @property
    def ended_at(self) -> datetime:
        return as_datetime(self.ended_us)

    def to_dict(self) -> dict[str, object]:
        """The attempt as JSON shows it."""
        return {
            "attempt": self.attempt,
            "outcome": self.outcome,
            "worker_id": self.worker_id,
            "claimed_at": _iso(self.claimed_us),
            "started_at": _iso(self.started_us),
            "ended_at": _iso(self.ended_us),
            "error": self.error,
            "traceback": self.traceback,
        }


class Job(msgspec.Struct, frozen=True, eq=False):
    """A job as it was when it was read; immutable. Read it again to see it change.

    Made by yaoki only. `lease` is None unless the job came from a claim; `created` is False
    when enqueue gave back the existing job of an idempotency key.
    """

    _row: Row
    _attempts: tuple[Attempt, ...] = ()
    _claimed: bool = False
    created: bool = True

    @property
    def id(self) -> int:
        """Given by the database, in order, and never given twice."""
        return self._number("id")

    @property
    def type(self) -> str:
        """The job's kind; names the handler."""
        return self._text("type")

    @property
    def queue(self) -> str:
        return self._text("queue")

    @property
    def priority(self) -> int:
        """From -100 to 100, higher first."""
        return self._number("priority")

    @property
    def priority_label(self) -> str:
        """low, medium, high or critical: the highest label at or below the priority."""
        return label_of(self.priority)

    @property
    def status(self) -> Status:
        return Status(self._row[AT["status"]])

    @property
    def payload(self) -> dict[str, object]:
        """The handler's keyword arguments, as JSON has them."""
        return payloads.decode_payload(self._text("payload"))

    @property
    def run_at(self) -> datetime:
        """Not before this instant (UTC)."""
        return as_datetime(self._number("run_at"))

    @property
    def attempt(self) -> int:
        """Attempts used up, the one that is running included."""
        return self._number("attempt")

    @property
    def max_attempts(self) -> int:
        """Attempts allowed, the first run included."""
        return self._number("max_attempts")

    @property
    def max_retries(self) -> int:
        return self.max_attempts - 1

    @property
    def retry_count(self) -> int:
        """How often it was, or is being, run again: `attempt` while pending, else one less."""
        return self.attempt if self.status is Status.PENDING else max(self.attempt - 1, 0)

    @property
    def timeout(self) -> float | None:
        """Seconds that one attempt may take; None is no limit."""
        micros = self._row[AT["timeout"]]
        return None if micros is None else micros / 1_000_000

    @property
    def idempotency_key(self) -> str | None:
        return self._text_or_none("idempotency_key")

    @property
    def tags(self) -> tuple[str, ...]:
        text = self._row[AT["tags"]]
        return () if text is None else tuple(msgspec.json.decode(text, type=list[str]))

    @property
    def worker_id(self) -> str | None:
        """Who holds the job, or held it when it ended: a label for people, no proof."""
        return self._text_or_none("worker_id")

    @property
    def claimed_at(self) -> datetime | None:
        return self._time("claimed_at")

    @property
    def lease(self) -> int | None:
        """The token of the claim that this job came from; None when it came otherwise."""
        return self._number("lease") if self._claimed else None

    @property
    def lease_expires_at(self) -> datetime | None:
        """Until then nobody else may claim the job; None unless it is running."""
        return self._time("lease_expires_at")

    @property
    def cancel_requested_at(self) -> datetime | None:
        """Since when a running job is being cancelled."""
        return self._time("cancel_requested_at")

    @property
    def being_cancelled(self) -> bool:
        """Running, and told to stop; it will end `cancelled` whatever its handler does."""
        return self.status is Status.RUNNING and self._row[AT["cancel_requested_at"]] is not None

    @property
    def error(self) -> str | None:
        """What went wrong last; cleared on completion."""
        return self._text_or_none("error")

    @property
    def errors(self) -> tuple[Attempt, ...]:
        """The attempts in which something went wrong, oldest first; kept on completion."""
        return tuple(one for one in self._attempts if one.outcome in ("retried", "failed"))

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts that ended, oldest first; the last 1,000 if there were more."""
        last = self._last_attempt()
        return self._attempts if last is None else (*self._attempts, last)

    @property
    def result(self) -> object:
        """What the handler returned, as JSON has it; None until it completes."""
        text = self._row[AT["result"]]
        return None if text is None else msgspec.json.decode(text)

    @property
    def progress(self) -> Progress | None:
        text = self._row[AT["progress"]]
        return None if text is None else msgspec.json.decode(text, type=Progress)

    @property
    def releases(self) -> int:
        """How often in a row it was handed back unfinished, without using an attempt."""
        return self._number("releases")

    @property
    def snoozes(self) -> int:
        """How often its handler put it off."""
        return self._number("snoozes")

    @property
    def rescues(self) -> int:
        """How often it was taken back from a worker that had gone silent."""
        return self._number("rescues")

    @property
    def revision(self) -> int:
        """Grows by one with every visible change."""
        return self._number("revision")

    @property
    def created_at(self) -> datetime:
        return as_datetime(self._number("created_at"))

    @property
    def updated_at(self) -> datetime:
        return as_datetime(self._number("updated_at"))

    @property
    def finished_at(self) -> datetime | None:
        return self._time("finished_at")

    @property
    def is_final(self) -> bool:
        """Completed, failed or cancelled."""
        return self.status in FINAL

    def to_dict(self) -> dict[str, object]:
        """The job as JSON shows it, under the names of its fields."""
        return {
            "id": self.id,
            "type": self.type,
            "payload": self.payload,
            "queue": self.queue,
            "priority": self.priority,
            "priority_label": self.priority_label,
            "status": self.status.value,
            "attempt": self.attempt,
            "max_attempts": self.max_attempts,
            "retry_count": self.retry_count,
            "max_retries": self.max_retries,
            "run_at": _iso(self._row[AT["run_at"]]),
            "timeout": self.timeout,
            "idempotency_key": self.idempotency_key,
            "tags": list(self.tags),
            "worker_id": self.worker_id,
            "claimed_at": _iso(self._row[AT["claimed_at"]]),
            "lease": self.lease,
            "lease_expires_at": _iso(self._row[AT["lease_expires_at"]]),
            "cancel_requested_at": _iso(self._row[AT["cancel_requested_at"]]),
            "error": self.error,
            "errors": [attempt.to_dict() for attempt in self.errors],
            "result": self.result,
            "progress": None if self.progress is None else msgspec.to_builtins(self.progress),
            "releases": self.releases,
            "snoozes": self.snoozes,
            "rescues": self.rescues,
            "revision": self.revision,
            "created_at": _iso(self._row[AT["created_at"]]),
            "updated_at": _iso(self._row[AT["updated_at"]]),
            "finished_at": _iso(self._row[AT["finished_at"]]),
        }

    def redacted(self, secret: Sequence[str]) -> "Job":
        """The same job with the values of these payload keys hidden."""
        if not secret:
            return self
        hidden = payloads.encode_payload(payloads.redact(self.payload, secret))
        return self._with(payload=hidden)

    def __repr__(self) -> str:
        return (
            f"<Job {self.id} {self.type} {self.status} "
            f"queue={self.queue} attempt={self.attempt}/{self.max_attempts}>"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self._row == other._row

    def __hash__(self) -> int:
        return hash(self._row)

    def _with(self, **columns: object) -> "Job":
        row = list(self._row)
        for name, value in columns.items():
            row[AT[name]] = value
        return Job(tuple(row), self._attempts, self._claimed, self.created)

    def _last_attempt(self) -> Attempt | None:
        # An attempt that completed has no record of its own: the job's row holds all of it.
        ended, claimed = self._row[AT["finished_at"]], self._row[AT["claimed_at"]]
        if ended is None or claimed is None or self.status is Status.FAILED:
            return None
        if any(attempt.token == self._number("lease") - 1 for attempt in self._attempts):
            return None
        started = self._row[AT["started_at"]]
        return Attempt(self.attempt, self.status.value, self.worker_id, claimed, started, ended)

    def _number(self, column: str) -> int:
        number: int = self._row[AT[column]]
        return number

    def _text(self, column: str) -> str:
        text: str = self._row[AT[column]]
        return text

    def _text_or_none(self, column: str) -> str | None:
        text: str | None = self._row[AT[column]]
        return text

    def _time(self, column: str) -> datetime | None:
        micros = self._row[AT[column]]
        return None if micros is None else as_datetime(micros)


def _iso(micros: int | None) -> str | None:
    return None if micros is None else as_datetime(micros).isoformat().replace("+00:00", "Z")
