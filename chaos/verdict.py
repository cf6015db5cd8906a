"""What became of the jobs, held against what was promised. Pure: evidence in, verdict out."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from chaos.fleet import Ended
from chaos.jobs import KINDS, LOGS, children_of
from chaos.ledger import Entries, Execution
from chaos.plan import Spec
from chaos.producers import Promises
from chaos.troubles import SLACK, Troubles
from yaoki.core.states import FINAL, MOVES, Status

EARLY = 0.02
"""Seconds by which a clock may seem to be late when two programs read it."""


class Row(NamedTuple):
    """A job as the database has it in the end; `result` is the lease that its handler returned."""

    id: int
    kind: str
    name: str
    status: str
    attempt: int
    lease: int
    result: int | None
    error: str | None


class Move(NamedTuple):
    """A change of a job's status or token."""

    job: int
    old: str
    new: str
    held: int
    lease: int


@dataclass
class Evidence:
    """All that is known when it is over."""

    specs: Sequence[Spec]
    promises: Promises
    rows: Sequence[Row]
    moves: Sequence[Move]
    effects: Sequence[str]
    """The names of the jobs that had their effect, once for each time."""
    logged: AbstractSet[tuple[int, int]]
    """The jobs and leases of attempts that have log lines."""
    entries: Entries
    troubles: Troubles
    damage: Sequence[str] = ()
    ended: Sequence[Ended] = ()
    problems: Sequence[str] = ()
    """What was wrong with how workers ended when they were told, and what they left behind."""

    @cached_property
    def by_name(self) -> Mapping[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.name, []).append(row)
        return found

    @cached_property
    def by_job(self) -> Mapping[int, list[Execution]]:
        """The executions of each job, by their leases."""
        found: dict[int, list[Execution]] = {}
        for one in sorted(self.entries.executions, key=lambda one: (one.lease, one.began)):
            found.setdefault(one.job, []).append(one)
        return found

    @cached_property
    def spec_of(self) -> Mapping[str, Spec]:
        return {spec.name: spec for spec in self.specs}

    @cached_property
    def parents(self) -> Mapping[int, int]:
        """Of a process that runs handlers in the place of another one that could."""
        lives = {life.pid for life in self.entries.lives}
        return {life.pid: life.parent for life in self.entries.lives if life.parent in lives}


@dataclass
class Verdict:
    """Figures, and for each promise what broke it."""

    figures: dict[str, object] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why jobs were executed again."""
    exceptions: Counter[str] = field(default_factory=Counter)
    """What handlers ended with that were not meant to."""
    dead: Counter[str] = field(default_factory=Counter)
    """Jobs that failed for good as they must, or whose only attempt was cut short, by type."""
    broken: dict[str, list[str]] = field(default_factory=dict)

    @property
    def good(self) -> bool:
        return not any(self.broken.values())


def judge(evidence: Evidence) -> Verdict:
    """Every promise of PROMISES, looked at."""
    verdict = Verdict()
    for promise, look in PROMISES.items():
        verdict.broken[promise] = list(look(evidence))
    rows, promises = evidence.rows, evidence.promises
    status = Counter(row.status for row in rows)
    verdict.dead = Counter(
        row.kind
        for row in rows
        if row.status == "failed" and (KINDS[row.kind].ends == "failed" or row.kind == "once")
    )
    for _, _, reason in _repeated(evidence):
        if reason is not None:
            verdict.reasons[reason] += 1
    verdict.exceptions = Counter(
        one.how for one in evidence.entries.executions if one.how not in ("ended", "again", None)
    )
    unclear = promises.unanswered | {name for batch in promises.batches for name in batch}
    verdict.figures = {
        "enqueued (acknowledged)": len(promises.ids),
        "enqueued (no answer)": len(unclear),
        "of those without an answer, there": sum(name in evidence.by_name for name in unclear),
        "enqueued by handlers": sum(row.name not in evidence.spec_of for row in rows),
        "completed": status["completed"],
        "dead": status["failed"],
        "cancelled": status["cancelled"],
        "executions": len(evidence.entries.executions),
        "jobs executed more than once": sum(len(each) > 1 for each in evidence.by_job.values()),
    }
    return verdict


def _lost(evidence: Evidence) -> Iterator[str]:
    there = {row.id for row in evidence.rows}
    for name, job_id in evidence.promises.ids.items():
        if job_id not in there:
            yield f"job {job_id} ({name}) was acknowledged and is not there"


def _not_whole(evidence: Evidence) -> Iterator[str]:
    for batch in evidence.promises.batches:
        there = sum(name in evidence.by_name for name in batch)
        if there not in (0, len(batch)):
            yield f"{there} of a batch of {len(batch)} are there"
    for name, rows in evidence.by_name.items():
        if len(rows) > 1:
            yield f"{name} was enqueued once and is there {len(rows)} times"
    for name, second in evidence.promises.again.items():
        if evidence.promises.ids.get(name) != second:
            yield f"the key of {name} gave job {evidence.promises.ids.get(name)}, then {second}"
    for row in evidence.rows:
        spec = evidence.spec_of.get(row.name)
        if spec is None or not row.kind.startswith("parent"):
            continue
        children = children_of(row.name, spec.arguments["times"])
        there = sum(child in evidence.by_name for child in children)
        if row.status == "completed" and there < len(children):
            yield f"job {row.id} completed, and {there} of its {len(children)} jobs are there"
    known = {child for spec in evidence.specs for child in children_of(spec.name, 4)}
    for name in evidence.by_name.keys() - evidence.spec_of.keys() - known:
        yield f"nobody enqueued {name}"


def _stuck(evidence: Evidence) -> Iterator[str]:
    for row in evidence.rows:
        if row.status not in FINAL:
            yield f"job {row.id} ({row.kind}) is {row.status}, attempt {row.attempt}"


def _completed_twice(evidence: Evidence) -> Iterator[str]:
    times = Counter(move.job for move in evidence.moves if move.new == "completed")
    for job, count in times.items():
        if count > 1:
            yield f"job {job} was recorded as completed {count} times"


def _recorded_by_others(evidence: Evidence) -> Iterator[str]:
    """A result shows the token of the attempt that returned it."""
    results = {row.id: row.result for row in evidence.rows}
    for move in evidence.moves:
        if move.new == "completed" and move.held != results.get(move.job):
            yield (
                f"job {move.job} was completed under the lease {move.held} by an attempt that had "
                f"the lease {results.get(move.job)}"
            )


def _not_run(evidence: Evidence) -> Iterator[str]:
    for row in evidence.rows:
        if row.status != "completed":
            continue
        ran = [one for one in evidence.by_job.get(row.id, ()) if one.lease == row.result]
        together = "effect" in row.kind or row.kind == "parent-together"
        if not any(one.returned or together for one in ran):
            yield f"job {row.id} ({row.kind}) is completed, and no handler of it came to its end"


def _without_its_log(evidence: Evidence) -> Iterator[str]:
    """What an attempt has logged is recorded with its outcome, if not before."""
    for row in evidence.rows:
        logs = row.kind in LOGS and row.status == "completed"
        if logs and (row.id, row.result) not in evidence.logged:
            yield f"job {row.id} ({row.kind}) completed, and what it logged is not there"


def _against_the_rules(evidence: Evidence) -> Iterator[str]:
    last: dict[int, int] = {}
    for move in evidence.moves:
        if move.new != move.old and Status(move.new) not in MOVES[Status(move.old)]:
            yield f"job {move.job} went from {move.old} to {move.new}"
        if move.lease < max(move.held, last.get(move.job, 0)):
            yield f"the token of job {move.job} went from {move.held} to {move.lease}"
        last[move.job] = move.lease


def _begun_twice(evidence: Evidence) -> Iterator[str]:
    times = Counter((one.job, one.lease) for one in evidence.entries.executions)
    for (job, lease), count in times.items():
        if count > 1:
            yield f"job {job} began {count} times under one claim ({lease})"


def _early(evidence: Evidence) -> Iterator[str]:
    for one in evidence.entries.executions:
        if one.early > EARLY:
            yield f"job {one.job} began {one.early:.3f} s before it was due"


def _effects(evidence: Evidence) -> Iterator[str]:
    times = Counter(evidence.effects)
    for row in evidence.rows:
        if "effect" not in row.kind:
            continue
        wanted = 1 if row.status == "completed" else 0
        if times[row.name] != wanted:
            yield f"job {row.id} is {row.status} and had its effect {times[row.name]} times"


def _wrong_end(evidence: Evidence) -> Iterator[str]:
    for row in evidence.rows:
        wanted = KINDS[row.kind].ends
        if row.name in evidence.promises.cancelled:
            wanted = "cancelled"
        if row.kind == "once" and row.status == "failed" and _had_bad_luck(evidence, row):
            continue
        if row.status in FINAL and row.status != wanted:
            yield (
                f"job {row.id} ({row.kind}) is {row.status}, not {wanted}, "
                f"after attempt {row.attempt}: {row.error}"
            )
        if row.status == "failed" and not row.error:
            yield f"job {row.id} ({row.kind}) has failed, and does not say why"


def _had_bad_luck(evidence: Evidence, row: Row) -> bool:
    """Something happened in its only attempt; which may have been before its handler began."""
    ran = evidence.by_job.get(row.id, [])
    if not ran:
        return "lease lost" in str(row.error) or "worker process" in str(row.error)
    last = ran[-1]
    return last.how == "raised" or any(
        evidence.troubles.had(last.pid, what, last.claimed - 0.1, last.began + 10)
        for what in ("killed", "stopped", "outage", "hurried")
    )


def _more_than_once(evidence: Evidence) -> Iterator[str]:
    """One that has one attempt, unless it was handed back at a shutdown."""
    kinds = {row.id: row.kind for row in evidence.rows}
    for one, _, reason in _repeated(evidence):
        if kinds.get(one.job) == "once" and reason != HURRIED:
            yield f"job {one.job} has one attempt, and began again: {reason}"


def _unexplained(evidence: Evidence) -> Iterator[str]:
    for one, after, reason in _repeated(evidence):
        if reason is None:
            yield (
                f"job {one.job} (attempt {one.attempt}, process {one.pid}, {one.how or 'no end'}) "
                f"was claimed at {one.claimed:.3f}, began at {one.began:.3f}, ended at {one.at}; "
                f"and began again in process {after.pid} at {after.began:.3f}"
            )


def _repeated(evidence: Evidence) -> Iterator[tuple[Execution, Execution, str | None]]:
    """Each execution that was followed by another one, and why it was."""
    for executions in evidence.by_job.values():
        for one, after in pairwise(executions):
            yield one, after, _reason(evidence, one, after)


HURRIED = "its worker was told twice to end"


def _reason(evidence: Evidence, one: Execution, after: Execution) -> str | None:
    if one.how == "again":
        return "it failed, as it was meant to"
    begin, end = one.claimed - 0.1, max(after.claimed, one.began)

    def had(kind: str, until: float = end) -> bool:
        pids = {one.pid, evidence.parents.get(one.pid, one.pid)}
        return any(evidence.troubles.had(pid, kind, begin, min(until, end)) for pid in pids)

    # What ended in good time was recorded before anything happened to its process.
    recorded_by = end if one.how != "ended" or one.at is None else one.at + SLACK
    if had("killed", until=recorded_by):
        return "its process was killed"
    if had("hurried", until=recorded_by):
        return HURRIED
    if had("stopped"):
        return "its process was stopped past its lease"
    if had("outage"):
        return "nobody could write to the database meanwhile"
    if one.how not in ("ended", None) and had("cut"):
        return "its session was cut off, so it failed"
    return None


def _badly_ended(evidence: Evidence) -> Iterator[str]:
    """One that starts while there is no database says so and ends, and that is all right."""
    yield from evidence.problems
    for one in evidence.ended:
        outage = any(
            evidence.troubles.had(None, what, one.began, one.ended) for what in ("outage", "cut")
        )
        if one.ready or one.code != 1 or not outage:
            yield f"a worker ended with {one.code}: {one.said}"


PROMISES: dict[str, Callable[[Evidence], Iterator[str]]] = {
    "lost": _lost,
    "stuck": _stuck,
    "enqueued in part, or twice": _not_whole,
    "completed twice by record": _completed_twice,
    "recorded without holding the lease": _recorded_by_others,
    "completed without having run": _not_run,
    "moved against the rules": _against_the_rules,
    "ended as it must not": _wrong_end,
    "effect and completion apart": _effects,
    "completed without its log lines": _without_its_log,
    "executed again without a reason": _unexplained,
    "begun twice under one claim": _begun_twice,
    "begun twice with one attempt": _more_than_once,
    "begun before it was due": _early,
    "processes that ended badly, or did not": _badly_ended,
    "damage in the database": lambda evidence: iter(evidence.damage),
}
"""What must hold whatever happens; each finds those for which it did not."""
