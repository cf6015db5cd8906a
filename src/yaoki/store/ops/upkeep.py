"""What keeps jobs from being lost: renewing leases, taking back those of the dead."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from yaoki.core.backoff import read_backoff
from yaoki.core.failures import Failure
from yaoki.core.outcomes import Released, Retried, settle
from yaoki.store.op import Op, Steps, ask, ask_many, tell, tell_many
from yaoki.store.ops.settling import Held, Settle, Settlement, refused_now

LEASES_AT_ONCE = 5_000
"""How many leases are looked at by one statement."""


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


class LeasePage(NamedTuple):
    """Some of all leases: those that may be without a holder, of many that were looked at.

    `last` is the id behind which the next page begins, None when this was the last; `shortest` the
    length of the shortest of all that were looked at, and `looked_at` how many they were.
    """

    suspects: list[Lease]
    last: int | None = None
    shortest: int | None = None
    looked_at: int = 0


@dataclass(frozen=True, slots=True)
class Leases(Op[LeasePage]):
    """The leases behind an id, a page of them; those that are plainly good are passed over."""

    after: int = 0
    most: int = LEASES_AT_ONCE
    writes = False
    atomic = False

    def steps(self) -> Steps[LeasePage]:
        page = ask("lease_page", after=self.after, most=self.most)
        [(count, last, shortest)] = (yield page).rows
        if not count:
            return LeasePage([])
        rows = (yield ask("leases", after=self.after, upto=last)).rows
        suspects = [
            Lease(job_id, lease, expires_at, lease_for, bool(expired))
            for job_id, lease, expires_at, lease_for, expired in rows
        ]
        return LeasePage(suspects, last if count == self.most else None, shortest, count)


@dataclass(frozen=True, slots=True)
class CanWrite(Op[None]):
    """Write, and change nothing: whoever wants to renew a lease now can do so."""

    def steps(self) -> Steps[None]:
        yield ask("can_write")


class Orphan(NamedTuple):
    """A running job as far as a rescue needs it; payloads may be large, and there may be many."""

    id: int
    lease: int
    expires_at: int
    type: str
    worker_id: str | None
    attempt: int
    backoff: str | None
    rescues: int
    started_at: int | None

    @property
    def counts(self) -> bool:
        """An attempt that began counts; so does the second time that one never began."""
        return self.started_at is not None or self.rescues > 0


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
        orphans = yield from self._orphans()
        rng = Random(self.seed)
        settlements = [_settlement(one, rng) for one in orphans]
        refused = yield from Settle(settlements).steps()
        return [
            Rescued(one.id, one.type, one.worker_id, one.counts)
            for one in orphans
            if one.id not in refused
        ]

    def _orphans(self) -> Steps[list[Orphan]]:
        if self.seen is None:
            rows = (yield ask("expired_rows", limit=self.limit)).rows
            return [Orphan(*row) for row in rows]
        seen = {lease.id: (lease.lease, lease.expires_at) for lease in self.seen}
        if not seen:
            return []
        rows = (yield ask("held_rows", ids=list(seen))).rows
        held = [Orphan(*row) for row in rows]
        return [one for one in held if (one.lease, one.expires_at) == seen[one.id]]


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


@dataclass(frozen=True, slots=True)
class HeldBy(Op[list[Held]]):
    """All that the database says a worker holds."""

    worker_id: str
    writes = False
    atomic = False

    def steps(self) -> Steps[list[Held]]:
        rows = (yield ask("held_by", worker_id=self.worker_id)).rows
        return [Held(*row) for row in rows]


class Kept(NamedTuple):
    """What was lost of what it held, and all that the database says this worker holds."""

    lost: frozenset[Held]
    held: list[Held]


class WorkerRow(NamedTuple):
    """A worker as it announces itself; `lease_for` is microseconds, `health` JSON."""

    worker_id: str
    host: str
    pid: int
    version: str
    queues_json: str | None
    types_json: str
    concurrency: int
    state: str
    lease_for: int
    health: str | None = None


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
    """Those of these claims that somebody wants to stop."""

    held: Sequence[Held]
    writes = False
    atomic = False

    def steps(self) -> Steps[list[Held]]:
        # Who holds nothing asks for nothing: an empty list has no type of its own.
        if not self.held:
            return []
        rows = (yield ask("cancelling", ids=[one.id for one in self.held])).rows
        wanted = {Held(*row) for row in rows}
        return [one for one in self.held if one in wanted]


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


def _settlement(orphan: Orphan, rng: Random) -> Settlement:
    held = Held(orphan.id, orphan.lease)
    why = f"lease lost (worker {orphan.worker_id})"
    if not orphan.counts:
        change = settle(Released(f"{why} before it began", started=False))
    else:
        wait = round(read_backoff(orphan.backoff).wait(orphan.attempt, rng) * 1_000_000)
        change = settle(Retried(Failure(why, "", "yaoki.LeaseLost"), wait))
    return Settlement(held, change, rescued=True)
