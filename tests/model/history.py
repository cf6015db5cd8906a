"""A random history: a store, the model beside it, and how the two are compared."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from tests.model.model import ENDED, Hold, Model, ModelJob, New, Place, Refused
from tests.model.world import BACKOFF
from tests.support.acts import lease_of
from tests.support.clocks import Clock
from yaoki import JobNotFound, LeaseLost, YaokiError
from yaoki.core.job import AT, Job
from yaoki.store import Store
from yaoki.store.op import Op
from yaoki.store.ops.claims import Claim, Look
from yaoki.store.ops.jobs import Get
from yaoki.store.ops.listing import ListJobs
from yaoki.store.ops.queues import Queues
from yaoki.store.ops.settling import Held

T = TypeVar("T")

Handle = tuple[Held, Hold]


class History(RuleBasedStateMachine):
    """After each step, every job of the store is as the model has it.

    `handles` are all claims that there ever were: those of long ago play the late workers.
    """

    def __init__(self, store: Store, clock: Clock, end: Callable[[], None]) -> None:
        super().__init__()
        self.store, self.clock, self.model = store, clock, Model()
        self.teardown = end  # type: ignore[method-assign]
        self.handles: list[Handle] = []
        self.ids: list[int] = []
        self.seen: dict[int, tuple[int, object]] = {}

    @property
    def now(self) -> int:
        return self.clock.now

    # What is drawn

    def any_handle(self) -> st.SearchStrategy[Handle]:
        """Mostly one that holds its job."""
        ours = [handle for handle in self.handles if self.model.held(handle[1])]
        return st.one_of(map(st.sampled_from, filter(None, (ours, ours, self.handles))))

    @property
    def ahead(self) -> list[Handle]:
        """Claims of jobs that have not begun, or never did."""
        return [handle for handle in self.handles if not handle[1].begun]

    @property
    def late(self) -> list[Handle]:
        """Claims that are over, of jobs that somebody else has by now."""
        held = [hold.job_id for hold in self.model.holds]
        over = [handle for handle in self.handles if not self.model.held(handle[1])]
        return [handle for handle in over if handle[1].job_id in held]

    def any_id(self, *usual: str) -> st.SearchStrategy[int]:
        """Of a job with one of these statuses; sometimes of any that there is, or was."""
        fitting = [job.id for job in self.model.jobs.values() if job.status in usual]
        return st.one_of(map(st.sampled_from, filter(None, (fitting, self.ids))))

    # What is done, and compared at once

    def both(self, op: Op[T], promise: Callable[[], Any]) -> tuple[T, Any] | None:
        """Do it to the store and to the model; None when both refuse it, for the same reason."""
        refused, expected = None, None
        try:
            value = self.store.run(op)
        except YaokiError as error:
            refused = type(error).__name__
        try:
            promised = promise()
        except Refused as refusal:
            expected = refusal.why
        assert refused == expected
        return (value, promised) if refused is None else None

    def lands(self, op: Op[Any], hold: Hold) -> bool:
        """Was an owner's verb accepted? LeaseLost says no."""
        try:
            self.store.run(op)
        except LeaseLost:
            return False
        except JobNotFound:
            assert hold.job_id not in self.model.jobs
            return False
        return True

    def made(self, batch: Sequence[New], places: Sequence[Place], jobs: Sequence[Job]) -> None:
        for index, (new, place, job) in enumerate(zip(batch, places, jobs, strict=True)):
            assert job.created == (place == Place(None, index))
            if job.created:
                self.model.made(new, job.id)
                self.ids.append(job.id)
                assert job == self.store.run(Get(job.id))
            else:
                assert job.id == (place.existing or jobs[place.maker].id)

    def claimed(self, claim: Claim, jobs: Sequence[Job]) -> list[Handle]:
        holds = self.model.claim(claim, self.now)
        assert [job.id for job in jobs] == [hold.job_id for hold in holds]
        known = {held for held, _ in self.handles}
        tokens = [Held(job.id, lease_of(job)) for job in jobs]
        handles = list(zip(tokens, holds, strict=True))
        assert known.isdisjoint(tokens), "a token is never given twice"
        assert list(jobs) == [self.store.run(Get(job.id)) for job in jobs]
        self.handles += handles
        return handles

    def rescued(self, holds: Sequence[Hold], told: dict[int, bool]) -> None:
        counted = {}
        for hold in holds:
            backoff = BACKOFF[self.model.jobs[hold.job_id].new.type]
            counted[hold.job_id] = self.model.rescue(hold, self.now, backoff)
        assert told == counted

    # What is always true

    @invariant()
    def every_job_is_as_promised(self) -> None:
        jobs = self.store.run(ListJobs(limit=1_000))

        assert {job.id: _shown(job) for job in jobs} == {
            job.id: _promised(job) for job in self.model.jobs.values()
        }
        assert all(job.attempt <= job.max_attempts for job in jobs)
        for job in jobs:
            self.revision_grows_with_every_visible_change(job)

    def revision_grows_with_every_visible_change(self, job: Job) -> None:
        before, told = self.seen.get(job.id, (0, None))
        news = _news(job)
        assert job.revision >= before + (news != told)
        self.seen[job.id] = job.revision, news

    @invariant()
    def it_is_known_when_to_look_again(self) -> None:
        pending = [job.run_at for job in self.model.jobs.values() if job.status == "pending"]

        ahead = self.store.run(Look())

        assert ahead.due == any(run_at <= self.now for run_at in pending)
        assert ahead.next_run_at == min((at for at in pending if at > self.now), default=None)

    @invariant()
    def queues_are_counted(self) -> None:
        counts = {
            queue.name: (queue.due, queue.delayed, queue.running, queue.failed, queue.paused)
            for queue in self.store.run(Queues())
        }

        assert counts == self.model.counts(self.now)


def _shown(job: Job) -> dict[str, object]:
    """A job of the store, as far as something is promised about it now."""
    shown: dict[str, object] = {
        "what": (job.type, job.queue, job.priority, job.idempotency_key, job.max_attempts),
        "status": job.status.value,
        "attempt": job.attempt,
        "error": job.error,
        "errors": [attempt.error for attempt in job.errors],
        "result": job._row[AT["result"]],
        "progress": None if job.progress is None else job.progress.done,
        "to be cancelled": None if job.is_final else job.cancel_requested_at is not None,
        "ended": job.finished_at is not None,
        "handed back": None if job.is_final else (job.releases, job.snoozes, job.rescues),
        "run_at": job._row[AT["run_at"]] if job.status == "pending" else None,
        "lease": job._row[AT["lease_expires_at"]],
        "worker": None if job.is_final else job.worker_id,
        "begun": job.status == "running" and job._row[AT["started_at"]] is not None,
    }
    return shown


def _promised(job: ModelJob) -> dict[str, object]:
    """The same of a job of the model."""
    new, hold, ended = job.new, job.holder, job.status in ENDED
    return {
        "what": (new.type, new.queue, new.priority, new.key, new.max_attempts),
        "status": job.status,
        "attempt": job.attempt,
        "error": job.error,
        "errors": job.errors,
        "result": job.result,
        "progress": job.progress,
        "to be cancelled": None if ended else job.cancel_requested,
        "ended": ended,
        "handed back": None if ended else (job.releases, job.snoozes, job.rescues),
        "run_at": job.run_at if job.status == "pending" else None,
        "lease": None if hold is None else hold.ends_at,
        "worker": None if hold is None else hold.worker_id,
        "begun": hold is not None and hold.begun,
    }


def _news(job: Job) -> dict[str, object]:
    """What followers are told of: that a lease is renewed, or a job begun, is no news."""
    return _shown(job) | {"lease": None, "begun": None}
