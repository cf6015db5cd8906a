"""What tests do to a store all the time, in one word each."""

from typing import Any

from yaoki.core.definition import Definition
from yaoki.core.failures import Failure
from yaoki.core.job import AT, Job
from yaoki.core.outcomes import (
    Cancelled,
    Completed,
    Failed,
    Outcome,
    Released,
    Retried,
    Snoozed,
    settle,
)
from yaoki.core.said import NewJob, Unsaid
from yaoki.store import Store
from yaoki.store.ops.claims import Claim
from yaoki.store.ops.jobs import Enqueue, Get
from yaoki.store.ops.settling import Held, Settlement, SettleOne
from yaoki.store.ops.workers import Publish

SECOND = 1_000_000
BOOM = Failure("Boom: it failed", "Traceback …", "tests.Boom")

OUTCOMES: dict[str, Outcome] = {
    "completed": Completed('{"sent":1}'),
    "retried": Retried(BOOM, 30 * SECOND),
    "failed": Failed(BOOM),
    "snoozed": Snoozed(30 * SECOND, "not now"),
    "released": Released("shutdown"),
    "released unbegun": Released("shutdown", started=False),
    "cancelled": Cancelled("no longer wanted"),
}
"""One of each kind; those that wait do so for 30 s."""


def make(
    store: Store, kind: str = "mail", payload: str = "{}", unsaid: Unsaid | None = None, **said: Any
) -> Job:
    """A new job of which its caller said this much."""
    return store.run(Enqueue(NewJob(kind, payload, **said), unsaid))


def claim(store: Store, limit: int = 1, worker_id: str = "w1", **how: Any) -> list[Job]:
    return store.run(Claim(worker_id=worker_id, limit=limit, **how)).jobs


def claim_one(store: Store, worker_id: str = "w1", **how: Any) -> Job:
    """Exactly one, when there is one; a list of one otherwise fails the test."""
    [job] = claim(store, 1, worker_id, **how)
    return job


def ids(jobs: list[Job]) -> list[int]:
    return [job.id for job in jobs]


def read(store: Store, job: Job | int) -> Job:
    return store.run(Get(job if isinstance(job, int) else job.id))


def held(job: Job) -> Held:
    """The claim that this job came from."""
    assert job.lease is not None, "it was read, not claimed"
    return Held(job.id, job.lease)


def end(store: Store, job: Job, outcome: Outcome, **more: Any) -> Job:
    """Record how an attempt ended; LeaseLost when the claim does not hold any more."""
    return store.run(SettleOne(Settlement(held(job), settle(outcome), **more)))


def failed_for_now(wait: float = 0) -> Retried:
    return Retried(BOOM, round(wait * SECOND))


def publish(store: Store, kind: str = "mail", **definition: Any) -> None:
    store.run(Publish([Definition(kind, **definition)], "w1"))


def lease_of(job: Job) -> int:
    """The token on the row, also where `job.lease` hides it."""
    token: int = job._row[AT["lease"]]
    return token


def row_of(store: Store, job: Job | int) -> tuple[Any, ...]:
    """All of the row, to see that nothing was changed."""
    found = read(store, job)
    return (*found._row, found._attempts)
