"""Recording how attempts ended, and claiming the next jobs in the same transaction."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from yaoki.core.errors import LeaseLost
from yaoki.core.job import Job
from yaoki.core.outcomes import RELEASES_FREE, Change
from yaoki.store.op import Op, Params, Steps, ask, tell, tell_many
from yaoki.store.ops.claims import Claim, Claimed
from yaoki.store.ops.jobs import Get, with_attempts
from yaoki.store.ops.logs import Lines, written

PORTION = 1_000_000
"""Bytes of results that are recorded by one statement."""

_ALL_FREE = 2**62
"""Hand-backs of a job that never began use no attempt, however many there are."""

_FINAL = frozenset({"completed", "failed", "cancelled"})


class Held(NamedTuple):
    """A job under one claim: all that an owner needs to name it."""

    id: int
    lease: int


class Settlement(NamedTuple):
    """How the attempt that `held` names ended; `ran_for` is microseconds."""

    held: Held
    change: Change
    ran_for: int = 0
    progress: str | None = None
    rescued: bool = False
    lines: Lines | None = None

    def params(self) -> Params:
        (job_id, lease), change = self.held, self.change
        return {
            "id": job_id,
            "lease": lease,
            "outcome": change.outcome,
            "wait": change.wait,
            "error": change.error,
            "traceback": change.traceback,
            "started": change.started,
            "ran_for": self.ran_for,
            "progress": self.progress,
            "rescued": self.rescued,
            "releases_free": RELEASES_FREE if change.started or self.rescued else _ALL_FREE,
        }


@dataclass(frozen=True, slots=True)
class Settle(Op[frozenset[int]]):
    """Record how attempts ended; the ids of those whose lease was not theirs any more.

    Each is one conditional statement on id and lease. A job that has since been given to
    another worker, or was put back, is not touched. Whether a failed job is pending or failed
    is decided by the statement that records it.
    """

    settlements: Sequence[Settlement]

    @property
    def wakes(self) -> bool:
        return any(one.change.outcome not in _FINAL for one in self.settlements)

    def steps(self) -> Steps[frozenset[int]]:
        settled = yield from _settled(self.settlements)
        return settled.refused


class _Settled(NamedTuple):
    refused: frozenset[int]
    locked: frozenset[int] = frozenset()


def _settled(settlements: Sequence[Settlement], *, patient: bool = True) -> Steps[_Settled]:
    """Record what can be recorded; a patient one waits for rows that others have locked."""
    if not settlements:
        return _Settled(frozenset())
    held, refused, locked = yield from _sifted(settlements, patient)
    said = [(one.held, one.lines) for one in held if one.lines is not None]
    if said:
        yield from written(said)
    for some in _portions([one for one in held if one.change.outcome == "completed"]):
        rows = [(*one.held, one.ran_for, one.change.result, one.progress) for one in some]
        ids, leases, times, results, notes = map(list, zip(*rows, strict=True))
        yield tell(
            "complete", rows=rows, ids=ids, leases=leases, times=times, results=results, notes=notes
        )
    other = [one.params() for one in held if one.change.outcome != "completed"]
    if other:
        yield tell_many("settle", other)
    return _Settled(frozenset(refused), frozenset(locked))


def _sifted(
    settlements: Sequence[Settlement], patient: bool
) -> Steps[tuple[list[Settlement], set[int], set[int]]]:
    """Those whose claim holds now; the ids of those whose does not, and of those to try later.

    Asked before anything is recorded: afterwards, the token of a claim that this statement has
    ended looks like that of one which had ended before.
    """
    ids = sorted({one.held.id for one in settlements})
    leases = yield from _leases("leases_held" if patient else "leases_free", ids)
    busy: dict[int, int] = {}
    if not patient and len(leases) < len(ids):
        busy = yield from _leases("leases_of", [one for one in ids if one not in leases])
    held, refused, locked = [], set(), set()
    for one in settlements:
        job_id, lease = one.held
        if leases.get(job_id) == lease and lease % 2 == 1:
            # A claim ends once: a second settlement of it, in this very batch, is refused.
            del leases[job_id]
            held.append(one)
        elif busy.get(job_id) == lease:
            locked.add(job_id)
        else:
            refused.add(job_id)
    return held, refused, locked


@dataclass(frozen=True, slots=True)
class SettleOne(Op[Job]):
    """Record how one attempt ended and give the job back; LeaseLost when it is not ours."""

    settlement: Settlement

    @property
    def wakes(self) -> bool:
        return Settle([self.settlement]).wakes

    def steps(self) -> Steps[Job]:
        job_id = self.settlement.held.id
        refused = yield from Settle([self.settlement]).steps()
        rows = (yield ask("get", id=job_id)).rows
        if refused:
            raise LeaseLost(job_id, f"it is {Job(rows[0]).status}" if rows else "it is gone")
        [job] = yield from with_attempts(rows)
        return job


class Exchanged(NamedTuple):
    """What an exchange brought.

    The ids that were refused, those to be tried again because somebody else's transaction has
    their rows locked, and what was claimed.
    """

    refused: frozenset[int]
    locked: frozenset[int]
    claimed: Claimed | None


@dataclass(frozen=True, slots=True)
class Exchange(Op[Exchanged]):
    """Record what is finished and claim what is next, in one transaction."""

    settlements: Sequence[Settlement]
    claim: Claim | None = None

    @property
    def wakes(self) -> bool:
        return Settle(self.settlements).wakes

    def steps(self) -> Steps[Exchanged]:
        settled = yield from _settled(self.settlements, patient=False)
        claimed = None if self.claim is None else (yield from self.claim.steps())
        return Exchanged(*settled, claimed)


@dataclass(frozen=True, slots=True)
class Report(Op[None]):
    """Write how far a running job is; LeaseLost when it is not ours any more."""

    atomic = False
    held: Held
    progress: str

    def steps(self) -> Steps[None]:
        job_id, lease = _owned(self.held)
        answer = yield ask("progress", id=job_id, lease=lease, progress=self.progress)
        if answer.changed == 0:
            raise LeaseLost(job_id)


@dataclass(frozen=True, slots=True)
class Extend(Op[Job]):
    """Move the end of a lease to `lease_for` (microseconds) from now; LeaseLost otherwise."""

    held: Held
    lease_for: int | None = None

    def steps(self) -> Steps[Job]:
        job_id, lease = _owned(self.held)
        answer = yield ask("extend", id=job_id, lease=lease, lease_for=self.lease_for)
        if answer.changed == 0:
            raise LeaseLost(job_id)
        return (yield from Get(job_id).steps())


@dataclass(frozen=True, slots=True)
class StillHeld(Op[bool]):
    """Is the job running under this lease?"""

    atomic = False
    held: Held

    def steps(self) -> Steps[bool]:
        refused = yield from refused_now([self.held])
        return not refused


def _owned(held: Held) -> Held:
    """An even token belongs to nobody: it is what a job has while it does not run."""
    if held.lease % 2 == 0:
        raise LeaseLost(held.id, "that is no token of a claim")
    return held


def _portions(done: Sequence[Settlement]) -> Iterator[Sequence[Settlement]]:
    """As many at a time as have results of PORTION together: usually all of them."""
    start = size = 0
    for place, one in enumerate(done):
        length = len(one.change.result or "")
        if size + length > PORTION and place > start:
            yield done[start:place]
            start, size = place, 0
        size += length
    if done:
        yield done[start:]


def refused_now(held: Sequence[Held]) -> Steps[set[Held]]:
    """Those of `held` that are not running under these leases now."""
    leases = yield from _leases("leases_of", [one.id for one in held])
    return {one for one in held if leases.get(one.id) != one.lease or one.lease % 2 == 0}


def _leases(statement: str, ids: Sequence[int]) -> Steps[dict[int, int]]:
    return dict((yield ask(statement, ids=ids)).rows) if ids else {}
