"""Who may change a running job: the claim that holds it, and nobody else (promise 3)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tests.support.acts import (
    BOOM,
    OUTCOMES,
    SECOND,
    claim_one,
    end,
    failed_for_now,
    held,
    lease_of,
    make,
    row_of,
)
from tests.support.clocks import Clock
from yaoki import LeaseLost, Yaoki
from yaoki.core.outcomes import Cancelled, Completed, Failed, Outcome, Snoozed, settle
from yaoki.store import Store
from yaoki.store.ops.jobs import Discard, Retry
from yaoki.store.ops.listing import ListJobs
from yaoki.store.ops.settling import (
    Exchange,
    Extend,
    Held,
    Report,
    Settle,
    Settlement,
    SettleOne,
    StillHeld,
)
from yaoki.store.ops.upkeep import KeepAlive, MarkStarted, WorkerRow


class Refusal(NamedTuple):
    """A way to ask for a change, and how to see that it was refused."""

    act: Callable[[Store, Held], Any]
    refused: Callable[[Any], bool]


def settled(outcome: Outcome) -> Refusal:
    return Refusal(
        lambda store, held: store.run(SettleOne(Settlement(held, settle(outcome)))),
        lambda answer: isinstance(answer, LeaseLost),
    )


def settled_in_a_batch(outcome: Outcome) -> Refusal:
    return Refusal(
        lambda store, held: store.run(Settle([Settlement(held, settle(outcome))])),
        lambda answer: len(answer) == 1,
    )


WORKER = WorkerRow("w1", "host", 1, "0", None, "[]", 1, "working", 60 * SECOND)

OPERATIONS: dict[str, Refusal] = {
    **{f"{name}, one": settled(outcome) for name, outcome in OUTCOMES.items()},
    **{f"{name}, in a batch": settled_in_a_batch(outcome) for name, outcome in OUTCOMES.items()},
    "exchange": Refusal(
        lambda store, held: store.run(Exchange([Settlement(held, settle(Completed()))])),
        lambda answer: len(answer.refused) == 1,
    ),
    "extend": Refusal(
        lambda store, held: store.run(Extend(held, 99 * SECOND)),
        lambda answer: isinstance(answer, LeaseLost),
    ),
    "report progress": Refusal(
        lambda store, held: store.run(Report(held, '{"done":1.0}')),
        lambda answer: isinstance(answer, LeaseLost),
    ),
    "renew": Refusal(
        lambda store, held: store.run(KeepAlive(WORKER, [held])),
        lambda answer: len(answer.lost) == 1,
    ),
    "is it still ours?": Refusal(
        lambda store, held: store.run(StillHeld(held)),
        lambda answer: answer is False,
    ),
    "mark as begun": Refusal(
        lambda store, held: store.run(MarkStarted([(held, 0)])),
        lambda answer: answer is None,
    ),
}


def running_under_another(store: Store, clock: Clock) -> Held:
    """The stale token while the job runs under its new owner, on the same worker."""
    job = claim_one(store)
    end(store, job, Snoozed(0, "later"))
    claim_one(store)
    return held(job)


def a_token_to_come(store: Store, clock: Clock) -> Held:
    job = claim_one(store)
    return Held(job.id, held(job).lease + 2)


def even_token_of_a_pending_job(store: Store, clock: Clock) -> Held:
    """Exactly what stands on the row: known from a log, but nobody's."""
    job = claim_one(store)
    return Held(job.id, lease_of(end(store, job, failed_for_now())))


def even_token_of_a_new_job(store: Store, clock: Clock) -> Held:
    return Held(claim_one(store).id + 1, 0)


def ended(outcome: Outcome) -> Callable[[Store, Clock], Held]:
    def then_ended(store: Store, clock: Clock) -> Held:
        job = claim_one(store)
        end(store, job, outcome)
        return held(job)

    return then_ended


def even_token_of_a_completed_job(store: Store, clock: Clock) -> Held:
    job = claim_one(store)
    return Held(job.id, lease_of(end(store, job, Completed())))


def put_back_by_an_operator(store: Store, clock: Clock) -> Held:
    job = claim_one(store)
    end(store, job, Failed(BOOM))
    store.run(Retry(job.id))
    claim_one(store)
    return held(job)


def discarded(store: Store, clock: Clock) -> Held:
    job = claim_one(store)
    end(store, job, Completed())
    store.run(Discard(job.id))
    return held(job)


def never_there(store: Store, clock: Clock) -> Held:
    return Held(999, clock.now | 1)


WRONG = {
    "it runs under another token": running_under_another,
    "the token is one to come": a_token_to_come,
    "the even token of a pending job": even_token_of_a_pending_job,
    "the token 0 of a new job": even_token_of_a_new_job,
    "it was retried": ended(failed_for_now()),
    "it is completed": ended(Completed()),
    "the even token of a completed job": even_token_of_a_completed_job,
    "it is failed": ended(Failed(BOOM)),
    "it is cancelled": ended(Cancelled("x")),
    "it was put back and runs again": put_back_by_an_operator,
    "it was discarded": discarded,
    "it was never there": never_there,
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_who_does_not_hold_the_job_is_refused_and_changes_nothing(
    store: Store, clock: Clock, operation: str, wrong: str
) -> None:
    """A table of every owner's operation and every wrong claim to it (faults 21, 22, 24)."""
    [make(store), make(store, delay=SECOND)]
    claim_of = WRONG[wrong](store, clock)
    clock.advance(1)
    before = everything(store)

    answer = try_to(OPERATIONS[operation], store, claim_of)

    assert OPERATIONS[operation].refused(answer), answer
    assert everything(store) == before


def try_to(operation: Refusal, store: Store, claim_of: Held) -> Any:
    try:
        return operation.act(store, claim_of)
    except LeaseLost as refused:
        return refused


def everything(store: Store) -> list[Any]:
    return [row_of(store, job) for job in store.run(ListJobs())]


def test_a_late_completion_leaves_the_new_owner_and_its_result_alone(app: Yaoki) -> None:
    app.enqueue("mail")
    [first] = app.claim("w1")
    app.release(first)
    [second] = app.claim("w2")

    for late in (
        lambda: app.complete(first, "late"),
        lambda: app.fail(first, "late"),
        lambda: app.release(first),
        lambda: app.extend(first),
    ):
        with pytest.raises(LeaseLost, match=r"running|another"):
            late()
    done = app.complete(second, "in time")
    with pytest.raises(LeaseLost, match="completed"):
        app.complete(first, "later still")

    assert app.get(first) == done
    assert app.get(first).result == "in time"


def test_a_job_that_was_only_read_proves_no_ownership(app: Yaoki) -> None:
    app.enqueue("mail")
    [job] = app.claim("w1")

    with pytest.raises(LeaseLost, match="read, not claimed"):
        app.complete(app.get(job))

    assert app.get(job).status == "running"


def test_only_the_job_itself_names_a_claim(app: Yaoki) -> None:
    app.enqueue("mail")
    [job] = app.claim("w1")

    with pytest.raises(ValueError, match="pass the Job"):
        app.complete(job.id)  # type: ignore[arg-type]
