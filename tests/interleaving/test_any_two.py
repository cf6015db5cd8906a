"""Any two operations on a small world, message by message in any order: the promises are kept."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tests.interleaving.arena import Arena, Pick, by_turns, first, last
from tests.interleaving.arena import Outcome as Result
from tests.support import postgres
from tests.support.acts import BOOM, held
from yaoki import LeaseLost
from yaoki.core.definition import Definition
from yaoki.core.job import AT, Job
from yaoki.core.outcomes import Cancelled, Completed, Failed, Outcome, Released, Retried, settle
from yaoki.core.said import NewJob, Unsaid
from yaoki.store.op import Op
from yaoki.store.ops.claims import Claim, Claimed
from yaoki.store.ops.jobs import Cancel, Discard, Enqueue, EnqueueMany, Retry, RetryFailed
from yaoki.store.ops.queues import Pause
from yaoki.store.ops.settling import (
    Exchange,
    Exchanged,
    Extend,
    Held,
    Report,
    Settle,
    Settlement,
    SettleOne,
)
from yaoki.store.ops.upkeep import KeepAlive, Lease, MarkStarted, Rescue, WorkerRow
from yaoki.store.ops.workers import Publish

WORKER = WorkerRow("w1", "host", 1, "0", None, "[]", 1, "working", 60_000_000)
ENDINGS: list[Outcome] = [
    Completed("null"),
    Retried(BOOM, 0),
    Failed(BOOM),
    Released("shutdown"),
    Cancelled("no"),
]
ENDED_BY: dict[str, Outcome | None] = {
    "claimed": None,
    "overdue": None,
    "done": Completed("null"),
    "failed": Failed(BOOM),
    "handed back": Released("shutdown"),
    "cancelled": Cancelled("no"),
}
FATES = ["pending", "delayed", *ENDED_BY]
POLICIES = {"mail": Unsaid(), "image": Unsaid(max_attempts=2)}

fates = st.lists(st.sampled_from(FATES), min_size=1, max_size=3)
turns = st.lists(st.booleans(), min_size=8, max_size=30)
places = st.integers(0, 2)
endings = st.sampled_from(ENDINGS)
wishes = st.builds(
    lambda kind, priority, key: NewJob(kind, "{}", priority=priority, idempotency_key=key),
    st.sampled_from(["mail", "mail", "mail", "image"]),
    st.sampled_from([None, 1]),
    st.sampled_from(["k0", "k1", "k2", "new", None]),
)
on_existing = st.sampled_from(["return", "retry", "raise"])


class World:
    """Jobs 0, 1, 2 with the keys k0, k1, k2, and every claim that there ever was of them."""

    def __init__(self, arena: Arena, fates: Sequence[str]) -> None:
        arena.empty()
        self.claims: list[Held] = []
        self.leases: list[Lease] = []
        jobs = [self._job(arena, f"k{place}", fate) for place, fate in enumerate(fates)]
        self.ids = [job.id for job in jobs]

    def id(self, place: int) -> int:
        return self.ids[place % len(self.ids)]

    def claim(self, place: int) -> Held:
        """Also one that is over; where there is none, one that never was."""
        return self.claims[place % len(self.claims)] if self.claims else Held(self.id(place), 1)

    def _job(self, arena: Arena, key: str, fate: str) -> Job:
        # In a queue of its own, so that nothing else is claimed with it.
        wish = NewJob("mail", "{}", queue=key, idempotency_key=key)
        if fate == "delayed":
            wish = wish._replace(delay=60_000_000)
        job: Job = arena.run(Enqueue(wish))
        if fate not in ENDED_BY:
            return job
        lease_for = 0 if fate == "overdue" else 60_000_000
        claim = Claim(worker_id="w1", limit=1, queues=(key,), lease_for=lease_for)
        [mine] = arena.run(claim).jobs
        self.claims.append(held(mine))
        ending = ENDED_BY[fate]
        if ending is None:
            ends_at = mine._row[AT["lease_expires_at"]]
            self.leases.append(Lease(*held(mine), ends_at, lease_for, False))
        else:
            arena.run(Settle([Settlement(held(mine), settle(ending))]))
        return job


Wanted = Callable[[World], Op[Any]]


def settlement(world: World, place: int, ending: Outcome) -> Settlement:
    return Settlement(world.claim(place), settle(ending))


def claim(limit: int, by_lanes: bool, worker_id: str) -> Claim:
    types = ("mail", "image") if by_lanes else None
    return Claim(
        worker_id=worker_id, limit=limit, types=types, by_lanes=by_lanes, policies=POLICIES
    )


claims = st.builds(claim, st.integers(1, 3), st.booleans(), st.sampled_from(["w2", "w3"]))
batches = st.lists(st.tuples(places, endings), min_size=1, max_size=3)

waiting: st.SearchStrategy[Wanted] = st.one_of(
    st.builds(lambda n: lambda world: Cancel(world.id(n)), places),
    st.builds(lambda n: lambda world: Retry(world.id(n)), places),
    st.builds(lambda n: lambda world: Discard(world.id(n)), places),
    st.builds(lambda wish, mode: lambda world: Enqueue(wish, Unsaid(), mode), wishes, on_existing),
    st.builds(
        lambda many, mode: lambda world: EnqueueMany(many, POLICIES, mode),
        st.lists(wishes, min_size=1, max_size=3),
        on_existing,
    ),
    st.builds(
        lambda batch: lambda world: Settle([settlement(world, *one) for one in batch]), batches
    ),
    st.builds(lambda n, end: lambda world: SettleOne(settlement(world, n, end)), places, endings),
    st.builds(lambda n: lambda world: Extend(world.claim(n), 90_000_000), places),
    st.builds(lambda n: lambda world: Report(world.claim(n), "{}"), places),
    st.just(lambda world: RetryFailed()),
    st.just(lambda world: Pause("type", "mail")),
)
"""What waits for rows that the other has locked."""

passing_over: st.SearchStrategy[Wanted] = st.one_of(
    st.builds(lambda claim: lambda world: claim, claims),
    st.builds(
        lambda batch, claim: (
            lambda world: Exchange([settlement(world, *one) for one in batch], claim)
        ),
        batches,
        st.none() | claims,
    ),
    st.just(lambda world: Rescue(world.leases)),
    st.just(lambda world: Rescue()),
    st.just(lambda world: KeepAlive(WORKER, world.claims)),
    st.just(lambda world: MarkStarted([(one, 0) for one in world.claims])),
    st.just(lambda world: Publish([Definition("mail", queue="k1", max_attempts=9)], "w2")),
)
"""What does not."""


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with postgres.fresh_database() as url:
        made = Arena(postgres.for_libpq(url))
        yield made
        made.close()


TRIED = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@given(fates=fates, wanted=st.tuples(waiting, waiting), turns=turns)
@TRIED
def test_two_who_wait_for_each_other_are_as_one_after_the_other(
    arena: Arena, fates: list[str], wanted: tuple[Wanted, Wanted], turns: list[bool]
) -> None:
    def played(pick: Pick) -> Result:
        world = World(arena, fates)
        answers = arena.meet([want(world) for want in wanted], pick)
        arena.assert_intact()
        return arena.outcome(answers)

    assert played(by_turns(turns)) in (played(first), played(last))


@given(
    fates=fates,
    wanted=st.tuples(passing_over, passing_over | waiting),
    swapped=st.booleans(),
    turns=turns,
)
@TRIED
def test_nothing_is_given_or_recorded_twice(
    arena: Arena,
    fates: list[str],
    wanted: tuple[Wanted, Wanted],
    swapped: bool,
    turns: list[bool],
) -> None:
    world = World(arena, fates)
    before = dict(arena.rows("SELECT id, revision FROM yaoki.jobs"))
    ops = [want(world) for want in wanted[:: -1 if swapped else 1]]
    answers = arena.meet(ops, by_turns(turns))
    arena.assert_intact()

    told = list(zip(ops, answers, strict=True))
    given_out = [held(job) for _, answer in told for job in claimed_in(answer)]
    ended = [one for op, answer in told for one in recorded_in(op, answer)]
    assert len(given_out) == len(set(given_out))
    assert len(ended) == len(set(ended))
    assert_on_record(arena, given_out, ended)
    assert_changed_once(arena, before, [*given_out, *ended])


def claimed_in(answer: object) -> list[Job]:
    match answer:
        case Claimed(jobs=jobs):
            return jobs
        case Exchanged(claimed=Claimed(jobs=jobs)):
            return jobs
    return []


def recorded_in(op: Op[Any], answer: Any) -> list[Held]:
    """The claims that this ended, by its answer."""
    match op:
        case Settle(settlements=settlements):
            refused = answer
        case Exchange(settlements=settlements):
            refused = answer.refused | answer.locked
        case SettleOne(settlement=only):
            settlements, refused = [only], set()
            if isinstance(answer, LeaseLost):
                return []
        case _:
            return []
    each = dict.fromkeys(one.held for one in settlements)
    return [one for one in each if one.id not in refused]


def assert_on_record(arena: Arena, given_out: list[Held], ended: list[Held]) -> None:
    """A job has the token of its last claim, or one more when that has ended."""
    leases = dict(arena.rows("SELECT id, lease FROM yaoki.jobs"))
    for one in given_out:
        assert leases[one.id] >= one.lease
    for one in ended:
        assert one.id not in leases or leases[one.id] > one.lease


def assert_changed_once(arena: Arena, before: dict[int, int], changes: list[Held]) -> None:
    """Each of these changes is in the row's count of them, and none is in it twice."""
    after = dict(arena.rows("SELECT id, revision FROM yaoki.jobs"))
    for job_id, count in Counter(one.id for one in changes).items():
        if job_id in before and job_id in after:
            # The other one may have changed it too, once: a cancel, a rescue, a definition.
            assert count <= after[job_id] - before[job_id] <= count + 1
