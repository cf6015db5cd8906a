"""What a job is up to, in a word and a few more: told apart as people think of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self

from yaoki.cli.show.times import ahead, moment, now, since
from yaoki.client import Client
from yaoki.core.job import Job
from yaoki.core.states import Status
from yaoki.store.ops.queues import PausedName
from yaoki.store.ops.workers import Worker


class Situation(NamedTuple):
    """`word` is one of ready, delayed, retrying, running, cancelling, completed, failed, cancelled;
    `detail` says the rest."""

    word: str
    detail: str

    def __str__(self) -> str:
        return f"{self.word}: {self.detail}" if self.detail else self.word


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a job's situation depends on besides itself."""

    present: datetime
    workers: Sequence[Worker] = ()
    paused: Sequence[PausedName] = ()

    @classmethod
    def of(cls, client: Client) -> Self:
        """What there is now."""
        return cls(now(), client.workers(), client.paused())

    def why_held_back(self, job: Job) -> str | None:
        """Which pause keeps the job from being claimed."""
        names = {(one.kind, one.name) for one in self.paused}
        if ("queue", job.queue) in names:
            return "its queue is paused"
        return "its type is paused" if ("type", job.type) in names else None

    def why_nobody(self, job: Job) -> str | None:
        """Why no worker will take the job, as far as the workers that are there say so."""
        live = [worker for worker in self.workers if not worker.silent]
        if not live:
            return None
        knowing = [worker for worker in live if job.type in worker.types]
        if not knowing:
            return "no worker knows this type"
        if not any(worker.queues is None or job.queue in worker.queues for worker in knowing):
            return "no worker that knows this type serves its queue"
        return None


def situation(job: Job, around: Surroundings) -> Situation:
    """What the job is up to now."""
    match job.status:
        case Status.PENDING:
            return _pending(job, around)
        case Status.RUNNING:
            return _running(job, around.present)
        case Status.COMPLETED:
            return Situation("completed", _completed(job, around.present))
        case Status.FAILED:
            tried = _times(job.attempt, "attempt")
            return Situation("failed", _because(f"after {tried}", job.error))
        case Status.CANCELLED:
            return Situation("cancelled", _finished(job, around.present))


def _pending(job: Job, around: Surroundings) -> Situation:
    present = around.present
    why = [reason for reason in (around.why_held_back(job), around.why_nobody(job)) if reason]
    due = job.run_at <= present
    if job.attempt > 0:
        retry = f"retry {job.attempt}/{job.max_retries} {ahead(job.run_at, present)}"
        return Situation("retrying", _because(_listed(retry, *why), job.error))
    if not due:
        when = f"{ahead(job.run_at, present)} ({moment(job.run_at, present)})"
        put_off = ["put off by its handler"] if job.snoozes else []
        return Situation("delayed", _listed(when, *why, *put_off))
    waits = f"waits {since(job.run_at, present)}"
    handed_back = [f"handed back {_times(job.releases, 'time')}"] if job.releases else []
    return Situation("ready", _listed(*why, waits, *handed_back))


def _running(job: Job, present: datetime) -> Situation:
    begun = "" if job.claimed_at is None else f" since {moment(job.claimed_at, present)}"
    by = f"by {job.worker_id}{begun}"
    if job.being_cancelled:
        return Situation("cancelling", by)
    return Situation("running", _listed(by, *_progress(job)))


def _progress(job: Job) -> list[str]:
    if job.progress is None:
        return []
    fraction = job.progress.fraction
    return [f"{job.progress.done:g} done" if fraction is None else f"{fraction:.0%}"]


def _completed(job: Job, present: datetime) -> str:
    failures = len(job.errors)
    after = f"after {_times(failures, 'failure')}, " if failures else ""
    return f"{after}{_finished(job, present)}"


def _finished(job: Job, present: datetime) -> str:
    return "" if job.finished_at is None else f"at {moment(job.finished_at, present)}"


def _times(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _listed(*parts: str) -> str:
    return ", ".join(parts)


def _because(what: str, error: str | None) -> str:
    return f"{what}: {error}" if error else what
