"""What keeps jobs from being lost: renewing leases, taking back those of the dead."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from yaoki.core.backoff import read_backoff
from yaoki.core.failures import Failure
from yaoki.core.job import AT, Row
from yaoki.core.outcomes import Released, Retried, settle
from yaoki.store.op import Op, Steps, ask, ask_many, tell, tell_many
from yaoki.store.ops.settling import Held, Settle, Settlement, refused_now

_ATTEMPT, _BACKOFF, _RESCUES = AT["attempt"], AT["backoff"], AT["rescues"]
_STARTED, _WORKER, _TYPE, _LEASE = AT["started_at"], AT["worker_id"], AT["type"], AT["lease"]
_EXPIRES = AT["lease_expires_at"]


class Lease(NamedTuple):
    """A lease as a rescuer sees it; times are microseconds."""

    id: int
    lease: int
    expires_at: int
    lease_for: int
    expired: bool


class Rescued(NamedTuple):
    """A job that was taken back from a silent worker; `counted` says if an attempt was used."""

    id: int
    type: str
    worker_id: str | None
    counted: bool


@dataclass(frozen=True, slots=True)
class Leases(Op[list[Lease]]):
    """Every lease there is."""

    writes = False
    atomic = False

    def steps(self) -> Steps[list[Lease]]:
        rows = (yield ask("leases")).rows
        return [
            Lease(job_id, lease, expires_at, lease_for, bool(expired))
            for job_id, lease, expires_at, lease_for, expired in rows
        ]


@dataclass(frozen=True, slots=True)
class Rescue(Op[list[Rescued]]):
    """Take jobs back whose lease is over: a failed attempt, by the rules of any other.

    With `seen`, exactly those leases, if nothing has happened to them since. Without, up to
    `limit` that the clock says are over. A job that its worker had claimed ahead and not begun
    goes back uncounted, the first time. Of two rescuers of one job one does it.
    """

    seen: Sequence[Lease] | None = None
    limit: int = 500
    seed: int = 0

    @property
    def wakes(self) -> bool:
        return True

    def steps(self) -> Steps[list[Rescued]]:
        rows = yield from self._rows()
        rng = Random(self.seed)
        settlements = [_settlement(row, rng) for row in rows]
        refused = yield from Settle(settlements).steps()
        return [
            Rescued(row[0], row[_TYPE], row[_WORKER], _counts(row))
            for row in rows
            if row[0] not in refused
        ]

    def _rows(self) -> Steps[list[Row]]:
        if self.seen is None:
            return (yield ask("expired_rows", limit=self.limit)).rows
        seen = {lease.id: (lease.lease, lease.expires_at) for lease in self.seen}
        if not seen:
            return []
        rows = (yield ask("held_rows", ids=list(seen))).rows
        return [row for row in rows if (row[_LEASE], row[_EXPIRES]) == seen[row[0]]]


@dataclass(frozen=True, slots=True)
class KeepAlive(Op["Kept"]):
    """Renew leases, say that the worker lives, and look at what it holds by the database.

    A lease that is not ours any more is not renewed, and is named.
    """

    worker: "WorkerRow"
    held: Sequence[Held]

    def steps(self) -> Steps["Kept"]:
        yield tell("beat", **self.worker._asdict())
        refused = yield from refused_now(self.held)
        renewals = [{"id": one.id, "lease": one.lease} for one in self.held if one not in refused]
        if renewals:
            yield tell_many("renew", renewals)
        rows = (yield ask("held_by", worker_id=self.worker.worker_id)).rows
        return Kept(frozenset(refused), [Held(*row) for row in rows])


class Kept(NamedTuple):
    """What was lost of what it held, and all that the database says this worker holds."""

    lost: frozenset[Held]
    held: list[Held]


class WorkerRow(NamedTuple):
    """A worker as it announces itself; `lease_for` is microseconds."""

    worker_id: str
    host: str
    pid: int
    version: str
    queues_json: str | None
    types_json: str
    concurrency: int
    state: str
    lease_for: int


@dataclass(frozen=True, slots=True)
class MarkStarted(Op[None]):
    """Note that jobs which were claimed ahead have begun, so many microseconds ago.

    A rescue counts the attempt of a job that had begun.
    """

    atomic = False
    started: Sequence[tuple[Held, int]]

    def steps(self) -> Steps[None]:
        marks = [
            {"id": job_id, "lease": lease, "ran_for": ran_for}
            for (job_id, lease), ran_for in self.started
            if lease % 2 == 1
        ]
        if marks:
            yield ask_many("mark_started", marks)


@dataclass(frozen=True, slots=True)
class Cancelling(Op[list[Held]]):
    """The running jobs that somebody wants to stop."""

    writes = False
    atomic = False

    def steps(self) -> Steps[list[Held]]:
        return [Held(*row) for row in (yield ask("cancelling")).rows]


class Rest(NamedTuple):
    """What a worker that stops when empty still has to wait for.

    `next_retry_in` is seconds until the first job that failed or was put off runs again.
    """

    running: int
    due: bool
    next_retry_in: float | None


@dataclass(frozen=True, slots=True)
class Remaining(Op[Rest]):
    """Is anything of these types and queues running, due, or waiting to run again?"""

    types: tuple[str, ...]
    queues: tuple[str, ...] | None = None
    writes = False
    atomic = False

    def steps(self) -> Steps[Rest]:
        queues = None if self.queues is None else list(self.queues)
        [row] = (yield ask("remaining", types=list(self.types), queues=queues)).rows
        running, due, next_retry_at, now = row
        wait = None if next_retry_at is None else max(next_retry_at - now, 0) / 1_000_000
        return Rest(running, bool(due), wait)


def _settlement(row: Row, rng: Random) -> Settlement:
    held = Held(row[0], row[_LEASE])
    why = f"lease lost (worker {row[_WORKER]})"
    if not _counts(row):
        change = settle(Released(f"{why} before it began", started=False))
    else:
        wait = round(read_backoff(row[_BACKOFF]).wait(row[_ATTEMPT], rng) * 1_000_000)
        change = settle(Retried(Failure(why, "", "yaoki.LeaseLost"), wait))
    return Settlement(held, change, rescued=True)


def _counts(row: Row) -> bool:
    """An attempt that began counts; so does the second time that one never began."""
    return row[_STARTED] is not None or row[_RESCUES] > 0
