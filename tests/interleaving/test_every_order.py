"""Two clients at once, message by message, in every order: as if one had come after the other."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings

from tests.interleaving.arena import Arena, Outcome, Pick, by_turns, every_order, first, last
from tests.support import postgres
from tests.support.acts import BOOM, OUTCOMES, held
from yaoki.core.definition import Definition
from yaoki.core.job import Job
from yaoki.core.outcomes import Completed, Failed, Retried, settle
from yaoki.core.outcomes import Outcome as Ending
from yaoki.core.said import NewJob, Unsaid
from yaoki.store.op import Op, Steps
from yaoki.store.ops.claims import Claim, Claimed
from yaoki.store.ops.jobs import Cancel, Discard, Enqueue, EnqueueMany, Retry, RetryFailed
from yaoki.store.ops.queues import Pause
from yaoki.store.ops.settling import Exchange, Extend, Report, Settle, Settlement, SettleOne
from yaoki.store.ops.upkeep import KeepAlive, Leases, MarkStarted, Rescue, WorkerRow
from yaoki.store.ops.workers import Publish

Ops = tuple[Op[Any], Op[Any]]

MOST = 700
"""Orders of one pair that are tried at the most: some have a hundred, none has more than these."""

MAIL = {"mail": Unsaid()}
ONE = Claim(worker_id="w1", limit=1, policies=MAIL)
TWO = replace(ONE, limit=2)
OTHER = replace(TWO, worker_id="w2")
WORKER = WorkerRow("w1", "host", 1, "0", None, "[]", 1, "working", 60_000_000)
PUBLISH = Publish([Definition("mail", queue="slow", max_attempts=9)], "w2")


def wish(key: str | None = None, **said: Any) -> NewJob:
    return NewJob("mail", "{}", idempotency_key=key, **said)


def wishes(*keys: str | None) -> EnqueueMany:
    return EnqueueMany([wish(key) for key in keys])


def claimed(arena: Arena, count: int = 1, claim: Claim = ONE) -> list[Job]:
    arena.run(wishes(*[None] * count))
    jobs: list[Job] = arena.run(replace(claim, limit=count)).jobs
    return jobs


def failed(arena: Arena, *keys: str | None) -> list[Job]:
    """Jobs with these keys, each with a failed attempt on record."""
    arena.run(wishes(*keys))
    jobs: list[Job] = arena.run(replace(ONE, limit=len(keys))).jobs
    arena.run(Settle([ended(job, Failed(BOOM)) for job in jobs]))
    return jobs


def ended(job: Job, ending: Ending | None = None, **more: Any) -> Settlement:
    return Settlement(held(job), settle(ending or Completed("null")), **more)


def overdue(arena: Arena, count: int = 1) -> list[Job]:
    """Claimed jobs whose leases are over."""
    jobs = claimed(arena, count)
    arena.now += 61_000_000
    return jobs


# What the two do


def two_claims(arena: Arena) -> Ops:
    arena.run(wishes(None, None, None))
    return TWO, OTHER


def two_claims_by_lanes(arena: Arena) -> Ops:
    arena.run(wishes(None, None, None))
    by_lanes = replace(TWO, types=("mail",), by_lanes=True)
    return by_lanes, replace(by_lanes, worker_id="w2")


def a_claim_from_the_head_and_one_by_lanes(arena: Arena) -> Ops:
    arena.run(wishes(None, None))
    return ONE, replace(OTHER, types=("mail",), by_lanes=True)


def a_claim_and_a_cancel(arena: Arena) -> Ops:
    job, _ = arena.run(wishes(None, None))
    return ONE, Cancel(job.id)


def a_claim_and_a_retry(arena: Arena) -> Ops:
    [job] = failed(arena, None)
    arena.run(wishes(None))
    return ONE, Retry(job.id)


def a_claim_and_a_pause(arena: Arena) -> Ops:
    arena.run(wishes(None, None))
    return ONE, Pause("queue", "default")


def a_claim_and_a_hand_back(arena: Arena) -> Ops:
    [job] = claimed(arena)
    return OTHER, Settle([ended(job, OUTCOMES["released"])])


def an_end_and_a_cancel(arena: Arena) -> Ops:
    [job] = claimed(arena)
    return SettleOne(ended(job)), Cancel(job.id)


def a_failure_and_a_cancel(arena: Arena) -> Ops:
    [job] = claimed(arena)
    return SettleOne(ended(job, Retried(BOOM, 0))), Cancel(job.id)


def two_ends_of_one_claim(arena: Arena) -> Ops:
    [job] = claimed(arena)
    return SettleOne(ended(job)), SettleOne(ended(job, Failed(BOOM)))


def two_batches_of_ends_in_opposite_orders(arena: Arena) -> Ops:
    some, others = claimed(arena, 2), claimed(arena, 2)
    mixed = [some[0], others[1]], [others[1], some[0]]
    return Settle([ended(job) for job in mixed[0]]), Settle([ended(job) for job in mixed[1]])


def an_end_and_a_rescue(arena: Arena) -> Ops:
    [job] = overdue(arena)
    return SettleOne(ended(job)), Rescue(arena.run(Leases()).suspects)


def a_failure_and_a_rescue_at_once(arena: Arena) -> Ops:
    [job] = overdue(arena)
    return SettleOne(ended(job, Retried(BOOM, 0))), Rescue()


def two_rescues(arena: Arena) -> Ops:
    overdue(arena, 2)
    seen = arena.run(Leases()).suspects
    return Rescue(seen), Rescue(seen[::-1])


def a_rescue_and_a_cancel(arena: Arena) -> Ops:
    [job] = overdue(arena)
    return Rescue(arena.run(Leases()).suspects), Cancel(job.id)


def a_rescue_and_an_extension(arena: Arena) -> Ops:
    [job] = overdue(arena)
    return Rescue(arena.run(Leases()).suspects), Extend(held(job), 60_000_000)


def a_report_and_an_end(arena: Arena) -> Ops:
    [job] = claimed(arena)
    return Report(held(job), '{"done":1}'), SettleOne(ended(job))


def two_cancels(arena: Arena) -> Ops:
    [job] = claimed(arena)
    return Cancel(job.id), Cancel(job.id)


def a_cancel_and_a_retry(arena: Arena) -> Ops:
    [job] = arena.run(EnqueueMany([wish(delay=60_000_000)]))
    return Cancel(job.id), Retry(job.id)


def a_retry_and_a_cancel_of_what_was_cancelled(arena: Arena) -> Ops:
    [job] = arena.run(wishes(None))
    arena.run(Cancel(job.id))
    return Retry(job.id), Cancel(job.id)


def an_end_and_a_retry(arena: Arena) -> Ops:
    [job] = claimed(arena)
    return SettleOne(ended(job, Failed(BOOM))), Retry(job.id)


def an_end_and_a_discard(arena: Arena) -> Ops:
    [job] = claimed(arena)
    return SettleOne(ended(job)), Discard(job.id)


def two_retries(arena: Arena) -> Ops:
    [job] = failed(arena, None)
    return Retry(job.id), Retry(job.id)


def a_retry_and_a_discard(arena: Arena) -> Ops:
    [job] = failed(arena, None)
    return Retry(job.id), Discard(job.id)


def two_discards(arena: Arena) -> Ops:
    [job] = failed(arena, None)
    return Discard(job.id), Discard(job.id)


def one_key_twice(arena: Arena) -> Ops:
    return Enqueue(wish("k"), Unsaid()), Enqueue(wish("k"), Unsaid())


def one_key_for_two_types(arena: Arena) -> Ops:
    return Enqueue(wish("k"), Unsaid()), Enqueue(NewJob("image", "{}", idempotency_key="k"))


def one_key_and_a_batch(arena: Arena) -> Ops:
    return Enqueue(wish("b"), Unsaid()), EnqueueMany([wish(key) for key in "abc"], MAIL)


def two_batches_of_the_same_keys_in_opposite_orders(arena: Arena) -> Ops:
    return (
        EnqueueMany([wish(key) for key in "abc"], MAIL),
        EnqueueMany([wish(key) for key in "cba"], MAIL),
    )


def two_batches_with_a_key_that_is_known(arena: Arena) -> Ops:
    arena.run(wishes("b"))
    return (
        EnqueueMany([wish(key) for key in "ba"], MAIL),
        EnqueueMany([wish(key) for key in "ab"], MAIL, "retry"),
    )


def a_discard_and_its_key(arena: Arena) -> Ops:
    [job] = failed(arena, "k")
    return Discard(job.id), Enqueue(wish("k"), Unsaid())


def a_discard_and_its_key_in_a_batch(arena: Arena) -> Ops:
    [job] = failed(arena, "b")
    return Discard(job.id), EnqueueMany([wish(key) for key in "abc"], MAIL)


def a_discard_and_its_key_to_be_put_back(arena: Arena) -> Ops:
    [job] = failed(arena, "k")
    return Discard(job.id), Enqueue(wish("k"), Unsaid(), "retry")


def two_who_put_one_key_back(arena: Arena) -> Ops:
    failed(arena, "k")
    again = Enqueue(wish("k"), Unsaid(), "retry")
    return again, again


def two_batches_that_put_the_same_keys_back_in_opposite_orders(arena: Arena) -> Ops:
    failed(arena, "a", "b")
    return (
        EnqueueMany([wish(key) for key in "ab"], MAIL, "retry"),
        EnqueueMany([wish(key) for key in "ba"], MAIL, "retry"),
    )


def two_who_put_all_back(arena: Arena) -> Ops:
    failed(arena, None, None)
    return RetryFailed(), RetryFailed()


def a_batch_that_puts_keys_back_and_one_who_puts_all_back(arena: Arena) -> Ops:
    failed(arena, "b", "a")
    return EnqueueMany([wish(key) for key in "ab"], MAIL, "retry"), RetryFailed()


def two_who_publish(arena: Arena) -> Ops:
    arena.run(EnqueueMany([NewJob("mail", "{}"), NewJob("image", "{}")]))
    definitions = [Definition(kind, queue=kind) for kind in ("mail", "image")]
    return Publish(definitions, "w1"), Publish(definitions[::-1], "w2")


def an_exchange_and_a_cancel(arena: Arena) -> Ops:
    [job] = claimed(arena)
    return Exchange([ended(job)]), Cancel(job.id)


def an_exchange_and_a_rescue(arena: Arena) -> Ops:
    [job] = overdue(arena)
    return Exchange([ended(job)]), Rescue()


def a_renewal_and_a_rescue(arena: Arena) -> Ops:
    [job] = overdue(arena)
    return KeepAlive(WORKER, [held(job)]), Rescue(arena.run(Leases()).suspects)


def a_renewal_and_a_cancel(arena: Arena) -> Ops:
    [job] = overdue(arena)
    return KeepAlive(WORKER, [held(job)]), Cancel(job.id)


def a_beginning_and_a_cancel(arena: Arena) -> Ops:
    [job] = claimed(arena, 1, replace(ONE, slots=0))
    return MarkStarted([(held(job), 5)]), Cancel(job.id)


def a_claim_and_its_definition(arena: Arena) -> Ops:
    arena.run(wishes(None))
    return replace(ONE, policies={}), PUBLISH


def two_exchanges(arena: Arena) -> Ops:
    mine, others = claimed(arena), claimed(arena, 1, OTHER)
    arena.run(wishes(None, None, None))
    return (
        Exchange([ended(job) for job in mine], TWO),
        Exchange([ended(job, Retried(BOOM, 0)) for job in others], OTHER),
    )


PAIRS: list[Callable[[Arena], Ops]] = [
    two_claims,
    a_claim_from_the_head_and_one_by_lanes,
    a_claim_and_a_cancel,
    a_claim_and_a_retry,
    a_claim_and_a_pause,
    a_claim_and_a_hand_back,
    an_end_and_a_cancel,
    a_failure_and_a_cancel,
    two_ends_of_one_claim,
    two_batches_of_ends_in_opposite_orders,
    an_end_and_a_rescue,
    a_failure_and_a_rescue_at_once,
    two_rescues,
    a_rescue_and_an_extension,
    a_report_and_an_end,
    two_cancels,
    a_cancel_and_a_retry,
    a_retry_and_a_cancel_of_what_was_cancelled,
    an_end_and_a_retry,
    an_end_and_a_discard,
    two_retries,
    a_retry_and_a_discard,
    two_discards,
    one_key_twice,
    one_key_for_two_types,
    one_key_and_a_batch,
    two_batches_of_the_same_keys_in_opposite_orders,
    two_batches_with_a_key_that_is_known,
    a_discard_and_its_key,
    a_discard_and_its_key_in_a_batch,
    a_discard_and_its_key_to_be_put_back,
    two_who_put_all_back,
    a_batch_that_puts_keys_back_and_one_who_puts_all_back,
    two_who_publish,
]


LONG = [
    two_claims_by_lanes,
    two_exchanges,
    two_who_put_one_key_back,
    two_batches_that_put_the_same_keys_back_in_opposite_orders,
]
"""Pairs that have thousands of orders."""

NextTime = Callable[[Any, Any], Op[Any] | None]

HINDERED: dict[Callable[[Arena], Ops], NextTime] = {
    a_rescue_and_a_cancel: lambda op, rescued: None if rescued else op,
    an_exchange_and_a_cancel: lambda op, exchanged: op if exchanged.locked else None,
    an_exchange_and_a_rescue: lambda op, exchanged: op if exchanged.locked else None,
    a_renewal_and_a_rescue: lambda op, kept: op,
    a_renewal_and_a_cancel: lambda op, kept: op,
    a_beginning_and_a_cancel: lambda op, begun: op,
}
"""Pairs of which the first does not wait for rows that the other has locked, and what it does
about them the next time: the same again, if its answer says that there is need to."""


@pytest.fixture(scope="module")
def arena() -> Iterator[Arena]:
    with postgres.fresh_database() as url:
        made = Arena(postgres.for_libpq(url))
        yield made
        made.close()


def played(arena: Arena, pair: Callable[[Arena], Ops], pick: Pick) -> Outcome:
    """Both meet in this order, in tables that were made for them; what comes of it."""
    arena.empty()
    ops = pair(arena)
    answers = arena.meet(ops, pick)
    arena.assert_intact()
    return arena.outcome(answers)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.__name__)
def test_two_at_once_are_as_one_after_the_other(pair: Callable[[Arena], Ops], arena: Arena) -> None:
    one_after_the_other = [played(arena, pair, pick) for pick in (first, last)]

    for pick in every_order(MOST):
        assert played(arena, pair, pick) in one_after_the_other


@pytest.mark.parametrize("pair", LONG, ids=lambda pair: pair.__name__)
@given(turns=st.lists(st.booleans(), min_size=12, max_size=40))
@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_so_are_two_who_say_much_in_any_order_that_was_tried(
    pair: Callable[[Arena], Ops], arena: Arena, turns: list[bool]
) -> None:
    one_after_the_other = [played(arena, pair, pick) for pick in (first, last)]

    assert played(arena, pair, by_turns(turns)) in one_after_the_other


@pytest.mark.parametrize("pair", HINDERED, ids=lambda pair: pair.__name__)
def test_what_was_passed_over_is_done_the_next_time(
    pair: Callable[[Arena], Ops], arena: Arena
) -> None:
    one_after_the_other = [in_the_end(arena, pair, pick) for pick in (first, last)]

    for pick in every_order(MOST):
        assert in_the_end(arena, pair, pick) in one_after_the_other


def test_a_job_that_is_claimed_while_its_type_is_published_is_claimed_once(arena: Arena) -> None:
    """Whether by the definition that is new or by what was before, both are right."""
    for pick in every_order(MOST):
        arena.empty()
        claim, publish = a_claim_and_its_definition(arena)
        claimed, _ = arena.meet((claim, publish), pick)
        later = arena.run(replace(claim, worker_id="w2"))
        arena.assert_intact()

        [job] = claimed.jobs + later.jobs
        assert (job.attempt, job.status) == (1, "running")
        assert job.max_attempts in (4, 9)


def in_the_end(arena: Arena, pair: Callable[[Arena], Ops], pick: Pick) -> Outcome:
    """What is in the tables when the first of the two had his next time."""
    arena.empty()
    ops = pair(arena)
    answer, _ = arena.meet(ops, pick)
    arena.assert_intact()
    again = HINDERED[pair](ops[0], answer)
    if again is not None:
        arena.run(again)
    arena.assert_intact()
    return arena.outcome(())


# Does it find what is wrong?

WITHOUT_A_SECOND_LOOK = """
SELECT job.*
FROM (
    SELECT id FROM yaoki.jobs
    WHERE status = 'pending' AND priority = :priority AND run_at <= :now
    ORDER BY priority, run_at, id
    LIMIT :limit
) AS head
CROSS JOIN LATERAL (
    SELECT * FROM yaoki.jobs AS mine WHERE mine.id = head.id FOR NO KEY UPDATE
) AS job
"""

WITHOUT_LOCKS = """
SELECT * FROM yaoki.jobs
WHERE status = 'pending' AND priority = :priority AND run_at <= :now
ORDER BY priority, run_at, id
LIMIT :limit
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Careless(Claim):
    """A claim with a mistake in it."""

    due: str

    def steps(self) -> Steps[Claimed]:
        steps = Claim.steps(self)
        statement = next(steps)
        try:
            while True:
                if statement.name == "due":
                    statement = statement._replace(text=self.due)
                statement = steps.send((yield statement))
        except StopIteration as end:
            found: Claimed = end.value
            return found


@pytest.mark.parametrize("due", [WITHOUT_A_SECOND_LOOK, WITHOUT_LOCKS])
def test_it_finds_a_claim_that_takes_what_another_has_taken(due: str, arena: Arena) -> None:
    def two_careless_claims(arena: Arena) -> Ops:
        arena.run(wishes(None, None, None))
        careless = Careless(worker_id="w1", limit=2, policies=MAIL, due=due)
        return careless, replace(careless, worker_id="w2")

    one_after_the_other = [played(arena, two_careless_claims, pick) for pick in (first, last)]

    def play_all() -> None:
        for pick in every_order(MOST):
            assert played(arena, two_careless_claims, pick) in one_after_the_other

    with pytest.raises((AssertionError, psycopg.errors.CheckViolation)):
        play_all()
