"""Making a job, reading it, and what operators do to it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

from yaoki.core.definition import read_definition
from yaoki.core.errors import DuplicateJob, JobNotFound, KeyConflict, WrongStatus
from yaoki.core.job import AT, COLUMNS, Attempt, Job, Row
from yaoki.core.said import (
    NO_LIMIT,
    SAID_BY_NOBODY,
    SAID_MAX_ATTEMPTS,
    SAID_PRIORITY,
    SAID_QUEUE,
    SAID_TIMEOUT,
    NewJob,
    Unsaid,
)
from yaoki.core.states import Status
from yaoki.store.op import Interfered, Op, Params, Statement, Steps, ask, ask_many

T = TypeVar("T")

OnExisting = Literal["return", "retry", "raise"]

ATTEMPTS_SHOWN = 1_000
"""The last attempts of a job that are read with it; all are kept."""

PORTION = 8_000_000
"""Characters of payloads that are sent with one statement."""

_AT_FIRST = {
    "status": "pending",
    "attempt": 0,
    "lease": 0,
    "releases": 0,
    "snoozes": 0,
    "rescues": 0,
    "revision": 1,
}
_NEW_ROW: list[object] = [_AT_FIRST.get(column) for column in COLUMNS]
_GIVEN = (
    "type",
    "queue",
    "priority",
    "payload",
    "max_attempts",
    "timeout",
    "said",
    "idempotency_key",
    "tags",
    "trace",
)


@dataclass(frozen=True, slots=True)
class Enqueue(Op[Job]):
    """Make a job, or give back the one that has its idempotency key.

    Of callers with the same key at the same instant one makes the job and all get it. A key
    that belongs to a job of another type raises KeyConflict.
    """

    atomic = False
    job: NewJob
    unsaid: Unsaid | None = None
    on_existing: OnExisting = "return"

    @property
    def wakes(self) -> bool:
        return True

    def steps(self) -> Steps[Job]:
        params = yield from _resolved(self.job, self.unsaid)
        answer = yield Statement("enqueue", params)
        if answer.changed and answer.made is not None:
            return Job(_row(params, answer.made, answer.now))
        return (yield from _existing(self.job, self.on_existing))


@dataclass(frozen=True, slots=True)
class EnqueueMany(Op[list[Job]]):
    """Make many jobs, all or none, in this order; known keys give the existing jobs back."""

    jobs: Sequence[NewJob]
    unsaid: Mapping[str, Unsaid] = field(default_factory=dict)
    on_existing: OnExisting = "return"

    @property
    def wakes(self) -> bool:
        return True

    def steps(self) -> Steps[list[Job]]:
        if self._are_alike():
            return (yield from self._made_alike())
        owners = yield from self._owners()
        fresh: list[Params] = []
        places: list[int | NewJob] = []
        resolved: dict[tuple[Any, ...], Params] = {}
        for job in self.jobs:
            key = job.idempotency_key
            if key is not None and key in owners:
                _same_type(job, *owners[key])
                places.append(job)
                continue
            params = yield from self._params(job, resolved)
            if key is not None:
                owners[key] = (job.type, 0)
            places.append(len(fresh))
            fresh.append(params)
        made = yield from _insert(fresh)
        existing = yield from self._existing(
            [place for place in places if not isinstance(place, int)], owners
        )
        return [
            made[place] if isinstance(place, int) else existing[str(place.idempotency_key)]
            for place in places
        ]

    def _existing(
        self, known: list[NewJob], owners: Mapping[str, tuple[str, int]]
    ) -> Steps[dict[str, Job]]:
        """The jobs that had these keys, by key; in the order of id, in which rows are locked."""
        found: dict[str, Job] = {}
        for job in sorted(known, key=lambda job: owners[str(job.idempotency_key)][1]):
            found[str(job.idempotency_key)] = yield from _existing(job, self.on_existing)
        return found

    def _are_alike(self) -> bool:
        """Do they differ by their payloads only?"""
        if len({(job.type, *job[2:]) for job in self.jobs}) != 1:
            return False
        return self.jobs[0].idempotency_key is None

    def _made_alike(self) -> Steps[list[Job]]:
        first = self.jobs[0]
        params = yield from _resolved(first, self.unsaid.get(first.type))
        jobs: list[Job] = []
        for some in _portions([job.payload for job in self.jobs], len):
            answer = yield ask("enqueue_alike", **params, payloads=some, count=len(some))
            head, tail = _around_the_payload(_row(params, 0, answer.now))
            ids = sorted(job_id for (job_id,) in answer.rows)
            each = zip(ids, some, strict=True)
            jobs += [Job((job_id, *head, payload, *tail)) for job_id, payload in each]
        return jobs

    def _owners(self) -> Steps[dict[str, tuple[str, int]]]:
        keys = sorted({job.idempotency_key for job in self.jobs if job.idempotency_key is not None})
        if not keys:
            return {}
        answer = yield ask("get_by_keys", keys=keys)
        existing = [Job(row) for row in answer.rows]
        return {str(job.idempotency_key): (job.type, job.id) for job in existing}

    def _params(self, job: NewJob, resolved: dict[tuple[Any, ...], Params]) -> Steps[Params]:
        # The options of a batch repeat: they are resolved once, and each job adds its own.
        options = (job.type, job.queue, job.priority, job.max_attempts, job.timeout)
        known = resolved.get(options)
        if known is None:
            known = yield from _resolved(job, self.unsaid.get(job.type))
            resolved[options] = known
        return known | _own(job)


@dataclass(frozen=True, slots=True)
class Get(Op[Job]):
    """The job with this id, its attempts included; JobNotFound when there is none."""

    writes = False
    id: int

    def steps(self) -> Steps[Job]:
        rows = (yield ask("get", id=self.id)).rows
        if not rows:
            raise JobNotFound(self.id)
        [job] = yield from with_attempts(rows)
        return job


@dataclass(frozen=True, slots=True)
class Cancel(Op[Job]):
    """End a pending job, or ask a running one to stop.

    Of a cancel and a claim at the same instant, one is first: the job either never runs, or is
    running and told. Cancelling twice changes nothing; a job that has ended otherwise raises.
    """

    id: int

    def steps(self) -> Steps[Job]:
        answer = yield ask("cancel", id=self.id)
        job = yield from Get(self.id).steps()
        if answer.changed == 0:
            if not job.is_final and not job.being_cancelled:
                raise Interfered(_SINCE)
            if job.status in (Status.COMPLETED, Status.FAILED):
                raise WrongStatus(job.id, job.status, "there is nothing left to cancel")
        return job


@dataclass(frozen=True, slots=True)
class Retry(Op[Job]):
    """Put a failed or cancelled job back with no attempts used; let a waiting one run now."""

    id: int

    @property
    def wakes(self) -> bool:
        return True

    def steps(self) -> Steps[Job]:
        answer = yield ask("retry", id=self.id, waiting=1)
        job = yield from Get(self.id).steps()
        if answer.changed == 0:
            if job.status in (Status.PENDING, Status.FAILED, Status.CANCELLED):
                raise Interfered(_SINCE)
            raise WrongStatus(job.id, job.status, _why_no_retry(job))
        return job


@dataclass(frozen=True, slots=True)
class RetryFailed(Op[list[int]]):
    """Put back up to `limit` failed jobs with ids above `after`, oldest first."""

    type: str | None = None
    queue: str | None = None
    after: int = 0
    limit: int = 500

    @property
    def wakes(self) -> bool:
        return True

    def steps(self) -> Steps[list[int]]:
        answer = yield ask(
            "failed_ids", type=self.type, queue=self.queue, after=self.after, limit=self.limit
        )
        ids = [job_id for (job_id,) in answer.rows]
        if ids:
            yield ask_many("retry", [{"id": job_id, "waiting": 0} for job_id in ids])
        return ids


@dataclass(frozen=True, slots=True)
class Discard(Op[None]):
    """Delete a job that has ended, with its history. Its idempotency key is free again."""

    id: int

    def steps(self) -> Steps[None]:
        answer = yield ask("discard", id=self.id)
        if answer.changed == 0:
            job = yield from Get(self.id).steps()
            if job.is_final:
                raise Interfered(_SINCE)
            raise WrongStatus(job.id, job.status, "cancel it first; only ended jobs are discarded")


_SINCE = "the job has changed since, and what was not possible then is possible now"


def with_attempts(rows: Sequence[Row], *, claimed: bool = False) -> Steps[list[Job]]:
    """The jobs of these rows, with the attempts that are on record."""
    if not rows:
        return []
    ids = [row[0] for row in rows]
    answer = yield ask("attempts", ids=ids, most=ATTEMPTS_SHOWN)
    attempts: dict[int, list[Attempt]] = {}
    for job_id, *columns in answer.rows:
        attempts.setdefault(job_id, []).append(Attempt(*columns))
    return [Job(row, tuple(attempts.get(row[0], ())), claimed) for row in rows]


def _resolved(job: NewJob, unsaid: Unsaid | None) -> Steps[Params]:
    """Every option of a job: what its caller said, else its definition, else the defaults."""
    said = _said(job)
    if unsaid is None:
        rows = (yield ask("definition", type=job.type)).rows
        said |= 0 if rows else SAID_BY_NOBODY
        unsaid = read_definition(job.type, rows[0][0]).unsaid() if rows else Unsaid()
    return {
        "type": job.type,
        "queue": unsaid.queue if job.queue is None else job.queue,
        "priority": unsaid.priority if job.priority is None else job.priority,
        "max_attempts": unsaid.max_attempts if job.max_attempts is None else job.max_attempts,
        "timeout": _timeout(job.timeout, unsaid),
        "said": said,
        "payload": job.payload,
        "run_at": job.run_at,
        "delay": job.delay,
        "idempotency_key": job.idempotency_key,
        "tags": job.tags,
        "trace": job.trace,
    }


def _said(job: NewJob) -> int:
    return (
        (SAID_QUEUE if job.queue is not None else 0)
        | (SAID_PRIORITY if job.priority is not None else 0)
        | (SAID_MAX_ATTEMPTS if job.max_attempts is not None else 0)
        | (SAID_TIMEOUT if job.timeout is not None else 0)
    )


def _own(job: NewJob) -> Params:
    return {
        "payload": job.payload,
        "run_at": job.run_at,
        "delay": job.delay,
        "idempotency_key": job.idempotency_key,
        "tags": job.tags,
        "trace": job.trace,
    }


def _timeout(said: int | None, unsaid: Unsaid) -> int | None:
    if said is None:
        return unsaid.timeout
    return None if said == NO_LIMIT else said


def _portions(items: list[T], length: Callable[[T], int]) -> Iterator[list[T]]:
    """As many at a time as have PORTION characters together: usually all of them."""
    start = size = 0
    for place, item in enumerate(items):
        size += length(item)
        if size > PORTION and place > start:
            yield items[start:place]
            start, size = place, length(item)
    if items:
        yield items[start:]


def _around_the_payload(row: Row) -> tuple[Row, Row]:
    place = AT["payload"]
    return row[1:place], row[place + 1 :]


def _insert(fresh: list[Params]) -> Steps[list[Job]]:
    jobs: list[Job] = []
    for some in _portions(fresh, lambda params: len(params["payload"])):
        answer = yield ask_many("enqueue_many", some, count=len(some))
        ids = sorted(job_id for (job_id,) in answer.rows)
        if len(ids) < len(some):
            raise Interfered("somebody else has just used one of these keys")
        each = zip(some, ids, strict=True)
        jobs += [Job(_row(params, job_id, answer.now)) for params, job_id in each]
    return jobs


def _row(params: Params, job_id: int, now: int) -> Row:
    """The row that was just written, without reading it back."""
    row = _NEW_ROW.copy()
    for column in _GIVEN:
        row[AT[column]] = params[column]
    row[AT["id"]] = job_id
    row[AT["run_at"]] = now + params["delay"] if params["run_at"] is None else params["run_at"]
    row[AT["created_at"]] = row[AT["updated_at"]] = now
    return tuple(row)


def _existing(job: NewJob, on_existing: OnExisting) -> Steps[Job]:
    rows = (yield ask("get_by_key", key=job.idempotency_key)).rows
    if not rows:
        raise Interfered("the job that had this key has just been discarded")
    [existing] = yield from with_attempts(rows)
    _same_type(job, existing.type, existing.id)
    if on_existing == "raise":
        raise DuplicateJob(str(job.idempotency_key), existing.id, existing.status)
    if on_existing == "retry" and existing.status in (Status.FAILED, Status.CANCELLED):
        if (yield ask("retry", id=existing.id, waiting=0)).changed == 0:
            raise Interfered("somebody else has just put it back")
        existing = yield from Get(existing.id).steps()
    return msgspec.structs.replace(existing, created=False)


def _same_type(job: NewJob, existing_type: str, existing_id: int) -> None:
    if existing_type != job.type:
        raise KeyConflict(str(job.idempotency_key), job.type, existing_type, existing_id)


def _why_no_retry(job: Job) -> str:
    if job.being_cancelled:
        return "it is being cancelled; put it back when it has ended"
    if job.status is Status.RUNNING:
        return f"worker {job.worker_id} is at it; cancel it first, or wait"
    return "it is done; enqueue a new job to have it done again"
