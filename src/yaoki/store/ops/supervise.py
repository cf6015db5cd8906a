"""What a supervisor asks on behalf of the worker processes that it has started."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from yaoki.core.backoff import read_backoff
from yaoki.core.errors import TimeLimitExceeded
from yaoki.core.failures import Failure, describe
from yaoki.core.job import AT, Row
from yaoki.core.outcomes import Change, Released, Retried, settle
from yaoki.core.times import in_words
from yaoki.store.op import Op, Steps, ask, tell, tell_many
from yaoki.store.ops.settling import Held, Settle, Settlement
from yaoki.store.ops.upkeep import Rescued

_ATTEMPT, _BACKOFF, _TIMEOUT = AT["attempt"], AT["backoff"], AT["timeout"]
_STARTED, _WORKER, _TYPE, _LEASE = AT["started_at"], AT["worker_id"], AT["type"], AT["lease"]

AT_ONCE = 500
"""Jobs of a dead worker that are given back in one transaction."""


class Watched(NamedTuple):
    """A job as the supervisor of its worker sees it; times are microseconds.

    `left` until its lease is over, `ran_for` since it began (None: it has not), `timeout` its time
    limit (None: it has none).
    """

    id: int
    lease: int
    left: int
    lease_for: int
    ran_for: int | None
    timeout: int | None

    @property
    def held(self) -> Held:
        return Held(self.id, self.lease)


@dataclass(frozen=True, slots=True)
class Watch(Op[list[Watched]]):
    """All that a worker holds."""

    worker_id: str
    writes = False
    atomic = False

    def steps(self) -> Steps[list[Watched]]:
        return [Watched(*row) for row in (yield ask("watched", worker_id=self.worker_id)).rows]


@dataclass(frozen=True, slots=True)
class Sustain(Op[None]):
    """Renew these leases, for a worker that does not do it itself, and say that it lives.

    A lease that has ended meanwhile is not renewed.
    """

    worker_id: str
    held: Sequence[Held]

    def steps(self) -> Steps[None]:
        yield tell("seen", worker_id=self.worker_id)
        yield tell_many("renew", [{"id": one.id, "lease": one.lease} for one in self.held])


class Buried(NamedTuple):
    """What a dead worker held and was given back, and how many jobs it still holds."""

    jobs: list[Rescued]
    left: int


@dataclass(frozen=True, slots=True)
class Bury(Op[Buried]):
    """Give back at once what a worker held whose process has ended, and strike it off the list.

    What had begun counts as a failed attempt for the reason `why`, as any job may be the one that
    killed it. Unless somebody is known to be to blame (`culprits`, past their time limits), or
    nobody is (`blameless`: it was ended on purpose): the others then go back uncounted, as does
    always what had not begun. `begun` are jobs of which the database does not know yet that they
    had. To be repeated while something is left: a row may be locked.
    """

    worker_id: str
    why: str
    blameless: bool = False
    culprits: Collection[Held] = ()
    begun: Collection[int] = ()
    seed: int = 0

    @property
    def wakes(self) -> bool:
        return True

    def steps(self) -> Steps[Buried]:
        rows = (yield ask("dead_rows", worker_id=self.worker_id, limit=AT_ONCE)).rows
        rng = Random(self.seed)
        settlements = [self._settlement(row, rng) for row in rows]
        refused = yield from Settle(settlements).steps()
        left = len((yield ask("held_by", worker_id=self.worker_id)).rows)
        if not left:
            yield tell("leave", worker_id=self.worker_id)
        jobs = [
            Rescued(row[0], row[_TYPE], row[_WORKER], one.change.outcome == "retried")
            for row, one in zip(rows, settlements, strict=True)
            if row[0] not in refused
        ]
        return Buried(jobs, left)

    def _settlement(self, row: Row, rng: Random) -> Settlement:
        held = Held(row[0], row[_LEASE])
        guilty = held in self.culprits
        if row[_STARTED] is None and row[0] not in self.begun:
            change = settle(Released(f"{self.why} before it began", started=False))
        elif guilty:
            change = _retried(row, _overran(row, self.why), rng)
        elif self.blameless or self.culprits:
            change = settle(Released(self.why))
        else:
            change = _retried(row, Failure(self.why, "", "yaoki.ProcessDied"), rng)
        # What may have killed one worker is not claimed ahead again, and runs alone in the end.
        suspect = change.outcome == "retried" or not (self.blameless or self.culprits)
        return Settlement(held, change, rescued=suspect)


def _retried(row: Row, failure: Failure, rng: Random) -> Change:
    wait = round(read_backoff(row[_BACKOFF]).wait(row[_ATTEMPT], rng) * 1_000_000)
    return settle(Retried(failure, wait))


def _overran(row: Row, why: str) -> Failure:
    limit = in_words((row[_TIMEOUT] or 0) / 1_000_000)
    return describe(TimeLimitExceeded(f"ran longer than its time limit of {limit}; {why}"))
