"""What a store promises, as a dictionary and a few loops: no tokens, no SQL, no indexes.

A claim is known by its identity, as a person would say it: "the one who has the job now".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from yaoki.core.failures import Failure
from yaoki.core.outcomes import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Released,
    Retried,
    Snoozed,
)
from yaoki.store.ops.claims import Claim

OnExisting = Literal["return", "retry", "raise"]

FREE_RELEASES = 20
ENDED = frozenset({"completed", "failed", "cancelled"})


class Refused(Exception):
    """The store is to refuse this, and to change nothing; `why` names the error."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


@dataclass(frozen=True)
class New:
    """What an enqueue asks for."""

    type: str
    queue: str
    priority: int
    run_at: int
    max_attempts: int
    key: str | None = None


class Place(NamedTuple):
    """The job that a key had already, or else the index in the batch of the one that makes it."""

    existing: int | None
    maker: int


@dataclass(eq=False)
class Hold:
    """One claim of one job."""

    job_id: int
    worker_id: str
    lease_for: int
    ends_at: int
    begun: bool


@dataclass
class ModelJob:
    id: int
    new: New
    run_at: int
    status: str = "pending"
    attempt: int = 0
    holder: Hold | None = None
    cancel_requested: bool = False
    error: str | None = None
    errors: list[str] = field(default_factory=list)
    result: str | None = None
    progress: int | None = None
    releases: int = 0
    snoozes: int = 0
    rescues: int = 0

    @property
    def must_begin_at_once(self) -> bool:
        """It has one attempt, or has cost a worker its life already: it is not claimed ahead."""
        return self.rescues > 0 or self.new.max_attempts == 1

    @property
    def is_dangerous(self) -> bool:
        """It may have killed two workers, or was beside one that did and has one attempt left."""
        last = self.attempt + 1 >= self.new.max_attempts
        return self.rescues >= 2 or (self.rescues > 0 and last)


class Model:
    """All jobs that there are to be."""

    def __init__(self) -> None:
        self.jobs: dict[int, ModelJob] = {}
        self.paused: set[tuple[str, str]] = set()
        self.newest_id = 0

    @property
    def holds(self) -> list[Hold]:
        """Of every job that runs."""
        return [job.holder for job in self.jobs.values() if job.holder is not None]

    @property
    def statuses(self) -> set[str]:
        return {job.status for job in self.jobs.values()}

    # Making jobs

    def places(self, batch: Sequence[New], on_existing: OnExisting, now: int) -> list["Place"]:
        """What becomes of each job of a batch; nothing of any when one is refused."""
        first: dict[str, int] = {}
        places = []
        for index, new in enumerate(batch):
            job = self._with_key(new.key)
            maker = index if new.key is None else first.setdefault(new.key, index)
            if new.type != (batch[maker].type if job is None else job.new.type):
                raise Refused("KeyConflict")
            places.append(Place(None if job is None else job.id, maker))
        new_ones = [place == Place(None, index) for index, place in enumerate(places)]
        if on_existing == "raise" and not all(new_ones):
            raise Refused("DuplicateJob")
        if on_existing == "retry":
            for place in places:
                if place.existing and self.jobs[place.existing].status in ("failed", "cancelled"):
                    self.retry(place.existing, now)
        return places

    def made(self, new: New, job_id: int) -> None:
        assert job_id > self.newest_id, "ids come in order, and none is given twice"
        self.newest_id = job_id
        self.jobs[job_id] = ModelJob(job_id, new, new.run_at)

    # Claims

    def claimable(self, asked: Claim, now: int) -> list[ModelJob]:
        """What a claim may take, in the order in which it is to take it."""
        due = [
            job
            for job in self.jobs.values()
            if job.status == "pending"
            and job.run_at <= now
            and (asked.types is None or job.new.type in asked.types)
            and (asked.queues is None or job.new.queue in asked.queues)
            and ("type", job.new.type) not in self.paused
            and ("queue", job.new.queue) not in self.paused
            and not (asked.alone == "skip" and job.is_dangerous)
        ]
        return sorted(due, key=lambda job: (-job.new.priority, job.run_at, job.id))

    def claim(self, asked: Claim, now: int) -> list[Hold]:
        """Who gets what: all that is due in its order, as far as the limits go."""
        slots = asked.limit if asked.slots is None else asked.slots
        left = dict(asked.caps)
        holds: list[Hold] = []
        for job in self.claimable(asked, now):
            if left.get(job.new.queue, 1) < 1:
                continue
            ahead = len(holds) >= slots
            alone = job.is_dangerous and asked.alone in ("may run", "wait")
            if len(holds) == asked.limit or (ahead and job.must_begin_at_once and not alone):
                break
            if alone and (holds or asked.alone == "wait"):
                break
            holds.append(self._taken(job, asked, now, begun=not ahead))
            left[job.new.queue] = left.get(job.new.queue, asked.limit) - 1
            if alone:
                break
        return holds

    def _taken(self, job: ModelJob, asked: Claim, now: int, *, begun: bool) -> Hold:
        ends_at = now + asked.lease_for
        job.holder = Hold(job.id, asked.worker_id, asked.lease_for, ends_at, begun)
        job.status = "running"
        job.attempt += 1
        return job.holder

    def held(self, hold: Hold) -> ModelJob | None:
        """The job, if this claim is the one that holds it."""
        job = self.jobs.get(hold.job_id)
        return job if job is not None and job.holder is hold else None

    def extend(self, hold: Hold, lease_for: int, now: int) -> bool:
        if self.held(hold) is None:
            return False
        hold.lease_for, hold.ends_at = lease_for, now + lease_for
        return True

    def report(self, hold: Hold, progress: int) -> bool:
        job = self.held(hold)
        if job is not None:
            job.progress = progress
        return job is not None

    def settle(self, hold: Hold, outcome: Outcome, now: int) -> bool:
        """Only the claim that holds a job may end it, and only once."""
        job = self.held(hold)
        if job is None:
            return False
        _end(job, outcome, now)
        return True

    # Rescue

    def rescue(self, hold: Hold, now: int, backoff: int) -> bool:
        """Take the job from a silent worker; does it use an attempt?"""
        job = self.jobs[hold.job_id]
        counts = hold.begun or job.rescues > 0
        why = f"lease lost (worker {hold.worker_id})"
        if counts:
            _end(job, Retried(Failure(why, "", ""), backoff), now)
        else:
            _end(job, Released(f"{why} before it began"), now)
        job.rescues += 1
        return counts

    def expired(self, now: int) -> list[Hold]:
        return [hold for hold in self.holds if hold.ends_at <= now]

    # What operators do

    def cancel(self, job_id: int) -> None:
        job = self._job(job_id)
        if job.status in ("completed", "failed"):
            raise Refused("WrongStatus")
        if job.status == "pending":
            job.status = "cancelled"
        elif job.status == "running":
            job.cancel_requested = True

    def retry(self, job_id: int, now: int) -> None:
        job = self._job(job_id)
        if job.status in ("running", "completed"):
            raise Refused("WrongStatus")
        if job.status != "pending":
            job.attempt = 0
        job.status, job.run_at = "pending", now
        job.releases = job.rescues = 0
        job.cancel_requested, job.progress = False, None

    def retry_failed(self, kind: str | None, queue: str | None, now: int) -> list[int]:
        failed = [
            job.id
            for job in self.jobs.values()
            if job.status == "failed"
            and kind in (None, job.new.type)
            and queue in (None, job.new.queue)
        ]
        for job_id in sorted(failed):
            self.retry(job_id, now)
        return sorted(failed)

    def discard(self, job_id: int) -> None:
        if self._job(job_id).status not in ENDED:
            raise Refused("WrongStatus")
        del self.jobs[job_id]

    def counts(self, now: int) -> dict[str, tuple[int, int, int, int, bool]]:
        """Of each queue: due, delayed, running and failed jobs, and whether it is paused."""
        counts = {
            name: (
                self._count(name, lambda job: job.status == "pending" and job.run_at <= now),
                self._count(name, lambda job: job.status == "pending" and job.run_at > now),
                self._count(name, lambda job: job.status == "running"),
                self._count(name, lambda job: job.status == "failed"),
                ("queue", name) in self.paused,
            )
            for name in {job.new.queue for job in self.jobs.values()}
            | {n for k, n in self.paused if k == "queue"}
        }
        return {name: count for name, count in counts.items() if any(count)}

    def _queues(self) -> set[str]:
        paused = {name for kind, name in self.paused if kind == "queue"}
        return paused | {job.new.queue for job in self.jobs.values()}

    def _count(self, queue: str, fits: Callable[[ModelJob], bool]) -> int:
        return sum(job.new.queue == queue and fits(job) for job in self.jobs.values())

    def _job(self, job_id: int) -> ModelJob:
        if job_id not in self.jobs:
            raise Refused("JobNotFound")
        return self.jobs[job_id]

    def _with_key(self, key: str | None) -> ModelJob | None:
        having = [job for job in self.jobs.values() if key is not None and job.new.key == key]
        return having[0] if having else None


def _end(job: ModelJob, outcome: Outcome, now: int) -> None:
    """The attempt is over; cancel beats every outcome, and nothing runs more often than allowed."""
    free = isinstance(outcome, Snoozed) or (
        isinstance(outcome, Released) and (job.releases < FREE_RELEASES or not outcome.started)
    )
    job.holder = None
    job.attempt -= free
    job.status = _status(job, outcome, free)
    match outcome:
        case Completed(result):
            job.error, job.result = None, result
        case Retried(failure) | Failed(failure):
            job.error = failure.error
        case Released(reason) if not free:
            job.error = reason
    if job.status == "pending" and isinstance(outcome, Retried | Snoozed):
        job.run_at = now + outcome.wait
    if job.error is not None and (isinstance(outcome, Retried) or job.status == "failed"):
        job.errors += [job.error] if job.status != "cancelled" else []
    job.snoozes += isinstance(outcome, Snoozed)
    if not isinstance(outcome, Released):
        job.releases = 0
    elif outcome.started:
        job.releases += 1


def _status(job: ModelJob, outcome: Outcome, free: bool) -> str:
    if job.cancel_requested or isinstance(outcome, Cancelled):
        return "cancelled"
    if isinstance(outcome, Completed):
        return "completed"
    if isinstance(outcome, Failed) or not (free or job.attempt < job.new.max_attempts):
        return "failed"
    return "pending"
