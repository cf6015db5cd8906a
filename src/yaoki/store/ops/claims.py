"""Claiming: which jobs a worker gets, and what the claim writes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType
from typing import Literal, NamedTuple

from yaoki.core.definition import read_definition
from yaoki.core.job import AT, Job, Row
from yaoki.core.said import DEFAULT_LEASE, SAID_MAX_ATTEMPTS, SAID_TIMEOUT, Unsaid
from yaoki.store.op import Op, Steps, ask, tell
from yaoki.store.ops.jobs import with_attempts

WINDOW = 1_000
"""How many due jobs at the head a claim looks at before it goes around them by lanes."""

TIERS = 10
"""How many priorities a claim looks at one by one before it goes around them by lanes."""

ALONE_AFTER = 2
"""A job that was rescued so often runs with no other job beside it in its process.

So does one that was rescued at all, in its last attempt: whoever took its worker down with it then
does not take its last chance.
"""

_ID, _TYPE, _QUEUE = AT["id"], AT["type"], AT["queue"]
_SAID, _LEASE = AT["said"], AT["lease"]
_MAX_ATTEMPTS, _TIMEOUT, _BACKOFF = AT["max_attempts"], AT["timeout"], AT["backoff"]
_ATTEMPT, _RESCUES = AT["attempt"], AT["rescues"]
_PRIORITY, _RUN_AT = AT["priority"], AT["run_at"]
_STATUS, _REVISION, _UPDATED_AT = AT["status"], AT["revision"], AT["updated_at"]
_WORKER_ID, _CLAIMED_AT, _STARTED_AT = AT["worker_id"], AT["claimed_at"], AT["started_at"]
_LEASE_FOR, _LEASE_EXPIRES_AT = AT["lease_for"], AT["lease_expires_at"]
_COUNTED = slice(AT["releases"], AT["rescues"] + 1)


Places = Mapping[int, tuple[int, int]]
"""A place in the line of each priority: the run_at and id of a job."""

THE_HEAD = (-(2**63), 0)


class Claimed(NamedTuple):
    """What a claim brought, and what the claimer wants to know next.

    `next_run_at` is when the first delayed job is due (microseconds), None when there is none.
    `by_lanes` says that the head of the queue holds jobs this claimer may not take.
    `alone_waits` says that a dangerous job waits for the process to be empty; `alone` that the one
    claimed is such a job. `after` is where each priority's due jobs go on behind what was taken:
    for the next claim.
    """

    jobs: list[Job]
    next_run_at: int | None
    now: int
    by_lanes: bool = False
    alone_waits: bool = False
    after: Places = MappingProxyType({})
    alone: bool = False


class Ahead(NamedTuple):
    """What a look without the write lock found."""

    due: bool
    next_run_at: int | None
    now: int


@dataclass(frozen=True, slots=True)
class Look(Op[Ahead]):
    """Is anything due, and when will something be? Reads only, one seek a priority."""

    writes = False
    atomic = False

    def steps(self) -> Steps[Ahead]:
        tiers = yield ask("tiers")
        return _ahead(tiers.rows, tiers.now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(Op[Claimed]):
    """Mark up to `limit` due jobs running, each under a new lease.

    Highest priority first, then the earliest run_at, then the lowest id; never more than
    `limit`; and no job that another claim has. `types` and `queues` are what may be taken (None:
    any); `policies` are what the claimer's own definitions say; `caps` how many jobs of a queue
    at the most. Only the first `slots` may be of the kind that must start at once: those with
    one attempt, or that were rescued before.

    With `after`, the first look of each priority begins behind that place, which saves walking
    over what earlier claims have taken. Jobs may have come to lie before it, so a look that
    finds too few is repeated from the head, unless `behind_only`.
    """

    worker_id: str
    limit: int
    slots: int | None = None
    queues: tuple[str, ...] | None = None
    types: tuple[str, ...] | None = None
    policies: Mapping[str, Unsaid] = field(default_factory=dict)
    caps: Mapping[str, int] = field(default_factory=dict)
    lease_for: int = DEFAULT_LEASE
    alone: Literal["never mind", "may run", "wait", "skip"] = "never mind"
    by_lanes: bool = False
    window: int = WINDOW
    after: Places = field(default_factory=dict)
    behind_only: bool = False

    def steps(self) -> Steps[Claimed]:
        tiers = yield ask("tiers")
        ahead = _ahead(tiers.rows, tiers.now)
        if not ahead.due or self.limit < 1:
            return Claimed([], ahead.next_run_at, ahead.now)
        found, short = yield from self._found(tiers.rows)
        slots = self.limit if self.slots is None else self.slots
        taken, alone_waits = self._taken((yield from self._decided(found)), slots)
        rows = yield from self._marked(taken, slots, ahead.now)
        jobs = yield from _jobs(rows)
        after = self._after([row for row, _ in taken])
        alone = self._minds and any(_is_dangerous(row, policy) for row, policy in taken)
        return Claimed(jobs, ahead.next_run_at, ahead.now, short, alone_waits, after, alone)

    def _found(self, tiers: Sequence[Row]) -> Steps[tuple[list[Row], bool]]:
        """Due jobs in order; True when jobs that may not be taken crowd the head."""
        if not self.caps:
            return (yield from self._found_in(self.queues, self.limit, tiers))
        # The first of each queue, as far as its cap goes: the first of all are among them.
        others = None if self.queues is None else [q for q in self.queues if q not in self.caps]
        found, short = yield from self._found_in(others, self.limit, tiers)
        for queue, cap in self.caps.items():
            limit = min(cap, self.limit)
            if limit > 0 and (self.queues is None or queue in self.queues):
                rows, crowded = yield from self._found_in((queue,), limit, tiers)
                found, short = found + rows, short or crowded
        return sorted(found, key=_in_order)[: self.limit], short

    def _found_in(
        self, queues: Sequence[str] | None, limit: int, tiers: Sequence[Row]
    ) -> Steps[tuple[list[Row], bool]]:
        found, short = yield from self._from_the_head(queues, limit, tiers)
        if short:
            found = yield from self._around_the_head(queues, limit)
        return found, short

    def _from_the_head(
        self, queues: Sequence[str] | None, limit: int, tiers: Sequence[Row]
    ) -> Steps[tuple[list[Row], bool]]:
        found: list[Row] = []
        if self.by_lanes:
            return found, True
        may = {
            "types": _list_or_none(self.types),
            "queues": _list_or_none(queues),
            "but_not": list(self.caps) if queues is None else [],
            "rescues_below": self._safe(),
        }
        window = max(self.window, limit)
        due_tiers = [priority for priority, due, _ in tiers if due]
        for place, priority in enumerate(due_tiers):
            missing = limit - len(found)
            if missing < 1:
                break
            if place >= TIERS:
                return found, True
            run_at, above = at = self.after.get(priority, THE_HEAD)
            look = {"priority": priority, "window": window, "limit": missing} | may
            rows = (yield ask("due", after_run_at=run_at, after_id=above, **look)).rows
            if len(rows) < missing and at != THE_HEAD and not self.behind_only:
                run_at, above = THE_HEAD
                rows = (yield ask("due", after_run_at=run_at, after_id=above, **look)).rows
            found += sorted(rows, key=_in_order)
            if len(rows) < missing:
                count = ask(
                    "due_count",
                    priority=priority,
                    most=window + 1,
                    after_run_at=run_at,
                    after_id=above,
                )
                [(seen,)] = (yield count).rows
                if seen > window:
                    return found, True
                window -= seen
        return found, False

    def _around_the_head(self, queues: Sequence[str] | None, limit: int) -> Steps[list[Row]]:
        """The same jobs in the same order, found by type, queue and priority."""
        types = self.types if self.types is not None else (yield from _pending_types())
        lanes = yield from _lanes(types, queues)
        if queues is None:
            lanes = [lane for lane in lanes if lane[1] not in self.caps]
        lanes.sort(key=lambda lane: -lane[2])
        chosen: list[tuple[int, int]] = []
        for priority, tier in groupby(lanes, key=lambda lane: lane[2]):
            missing = limit - len(chosen)
            if missing < 1:
                break
            due: list[tuple[int, int]] = []
            for kind, queue, _ in tier:
                place = {"type": kind, "queue": queue, "priority": priority}
                lane = ask("lane", limit=missing, rescues_below=self._safe(), **place)
                due += (yield lane).rows
            chosen += sorted(due)
        if not chosen:
            return []
        ids = [job_id for _, job_id in chosen]
        rows = (yield ask("first_of", ids=ids, limit=limit)).rows
        return sorted(rows, key=_in_order)

    def _after(self, taken: Sequence[Row]) -> Places:
        # By lanes, or by queues of their own, what is not taken does not lie behind what is.
        if self.by_lanes or self.caps:
            return {}
        return {**self.after, **{row[_PRIORITY]: (row[_RUN_AT], row[_ID]) for row in taken}}

    @property
    def _minds(self) -> bool:
        """It is asked that some jobs run alone."""
        return self.alone != "never mind"

    def _safe(self) -> int | None:
        """Jobs that were rescued so often, or once before their last attempt, are passed over.

        None: none are.
        """
        return ALONE_AFTER if self.alone == "skip" else None

    def _decided(self, rows: Sequence[Row]) -> Steps[list[tuple[Row, Unsaid]]]:
        """Each job with the policy that decides what its caller left open."""
        known: dict[str, Unsaid] = dict(self.policies)
        decided = []
        for row in rows:
            policy = known.get(row[_TYPE])
            if policy is None:
                policy = yield from _published(row)
                known[row[_TYPE]] = policy
            decided.append((row, policy))
        return decided

    def _taken(
        self, found: Sequence[tuple[Row, Unsaid]], slots: int
    ) -> tuple[list[tuple[Row, Unsaid]], bool]:
        taken: list[tuple[Row, Unsaid]] = []
        for row, policy in found:
            if self._minds and _is_dangerous(row, policy):
                if self.alone == "skip":
                    continue
                if self.alone == "may run" and not taken:
                    return [(row, policy)], False
                return taken, True
            at_once = row[_RESCUES] > 0 or _allowed(row, policy) == 1
            if at_once and len(taken) >= slots:
                break
            taken.append((row, policy))
        return taken, False

    def _marked(
        self, taken: Sequence[tuple[Row, Unsaid]], slots: int, now: int
    ) -> Steps[list[Row]]:
        """Write the claim, one statement for all that have the same policy; the rows after it."""
        groups: dict[tuple[object, ...], list[int]] = {}
        rows = []
        for place, (row, policy) in enumerate(taken):
            said = row[_SAID]
            mark = (
                _allowed(row, policy),
                row[_TIMEOUT] if said & SAID_TIMEOUT else policy.timeout,
                policy.backoff,
                now if place < slots else None,
            )
            groups.setdefault(mark, []).append(row[_ID])
            rows.append(self._as_written(row, mark, now))
        for (max_attempts, timeout, backoff, started_at), ids in groups.items():
            yield tell(
                "claim",
                ids=ids,
                token=now | 1,
                max_attempts=max_attempts,
                timeout=timeout,
                backoff=backoff,
                worker_id=self.worker_id,
                claimed_at=now,
                started_at=started_at,
                lease_for=self.lease_for,
            )
        return rows

    def _as_written(self, row: Row, mark: tuple[object, ...], now: int) -> Row:
        """The row as the claim leaves it, without reading it back."""
        values = list(row)
        values[_STATUS] = "running"
        values[_MAX_ATTEMPTS], values[_TIMEOUT], values[_BACKOFF], values[_STARTED_AT] = mark
        values[_ATTEMPT] += 1
        values[_WORKER_ID] = self.worker_id
        values[_CLAIMED_AT] = values[_UPDATED_AT] = now
        values[_LEASE] = max(row[_LEASE] + 1, now | 1)
        values[_LEASE_FOR] = self.lease_for
        values[_LEASE_EXPIRES_AT] = now + self.lease_for
        values[_REVISION] += 1
        return tuple(values)


@dataclass(frozen=True, slots=True)
class DueTypes(Op[list[str]]):
    """Every type that has due jobs, in these queues (None: in any)."""

    queues: tuple[str, ...] | None = None
    writes = False

    def steps(self) -> Steps[list[str]]:
        types = yield from _pending_types()
        lanes = yield from _lanes(types, self.queues)
        found: list[str] = []
        for kind, queue, priority in lanes:
            place = {"type": kind, "queue": queue, "priority": priority}
            lane = ask("lane", limit=1, rescues_below=None, **place)
            if kind not in found and (yield lane).rows:
                found.append(kind)
        return found


def _lanes(types: Iterable[str], queues: Sequence[str] | None) -> Steps[list[Row]]:
    """Each (type, queue, priority) that has pending jobs, but for paused ones; each once."""
    if queues is None:
        return (yield ask("lanes", types=_list(types))).rows
    return (yield ask("lanes_of", types=_list(types), queues=_list(queues))).rows


def _ahead(tiers: Sequence[Row], now: int) -> Ahead:
    later = [next_run_at for _, _, next_run_at in tiers if next_run_at is not None]
    return Ahead(any(due for _, due, _ in tiers), min(later, default=None), now)


def _pending_types() -> Steps[list[str]]:
    return [name for (name,) in (yield ask("pending_types")).rows]


def _published(row: Row) -> Steps[Unsaid]:
    """The published policy of the job's type; what stands on its row where there is none."""
    rows = (yield ask("definition", type=row[_TYPE])).rows
    if rows:
        return read_definition(row[_TYPE], rows[0][0]).unsaid()
    return Unsaid(max_attempts=row[_MAX_ATTEMPTS], timeout=row[_TIMEOUT], backoff=row[_BACKOFF])


def _allowed(row: Row, policy: Unsaid) -> int:
    """How many attempts; at least this one, for which a newer definition may be too strict."""
    said = row[_SAID] & SAID_MAX_ATTEMPTS
    allowed: int = row[_MAX_ATTEMPTS] if said else max(policy.max_attempts, row[_ATTEMPT] + 1)
    return allowed


def _is_dangerous(row: Row, policy: Unsaid) -> bool:
    """It runs alone: it may be what kills its workers, or this may be its last chance."""
    rescues: int = row[_RESCUES]
    last: bool = row[_ATTEMPT] + 1 >= _allowed(row, policy)
    return rescues >= ALONE_AFTER or (rescues > 0 and last)


def _jobs(rows: Sequence[Row]) -> Steps[list[Job]]:
    """Jobs from claimed rows; only those that ran before have a history to read."""
    before = [row for row in rows if row[_ATTEMPT] > 1 or any(row[_COUNTED])]
    if not before:
        return [Job(row, (), True) for row in rows]
    told = {job.id: job for job in (yield from with_attempts(before, claimed=True))}
    return [told.get(row[_ID]) or Job(row, (), True) for row in rows]


def _in_order(row: Row) -> tuple[int, int, int]:
    return -row[_PRIORITY], row[_RUN_AT], row[_ID]


def _list_or_none(values: Iterable[str] | None) -> list[str] | None:
    return None if values is None else _list(values)


def _list(values: Iterable[str]) -> list[str]:
    """Each once, in the order in which they came."""
    return list(dict.fromkeys(values))
