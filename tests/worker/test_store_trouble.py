"""The worker outlives a database that is away, and answers that never arrive."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from tests.support.databases import execute_all, locked
from tests.support.dialects import on_postgres
from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, stays, work_off
from yaoki import JobContext, RetryPolicy, StoreUnavailable, Yaoki, fixed
from yaoki.store import SQLiteStore
from yaoki.store.op import Op
from yaoki.store.ops.settling import Exchange
from yaoki.store.ops.upkeep import KeepAlive, Rescue
from yaoki.store.postgres.store import PostgresStore
from yaoki.worker import limits

T = TypeVar("T")


class Cuts:
    """A real store behind a line that can be cut, before or after the work is done."""

    def __init__(self, url: str) -> None:
        super().__init__(url)  # type: ignore[call-arg]
        self.before: Callable[[Op[Any]], bool] = lambda op: False
        self.after: Callable[[Op[Any], Any], bool] = lambda op, value: False

    def run(self, op: Op[T]) -> T:
        if self.before(op):
            raise StoreUnavailable("the line was cut before anything was done")
        value: T = super().run(op)  # type: ignore[misc]
        if self.after(op, value):
            raise StoreUnavailable("the line was cut, and the answer with it")
        return value


class UnreliableSQLite(Cuts, SQLiteStore):
    pass


class UnreliablePostgres(Cuts, PostgresStore):
    pass


Unreliable = UnreliableSQLite | UnreliablePostgres


@pytest.fixture
def store(any_url: str) -> Unreliable:
    return UnreliablePostgres(any_url) if on_postgres(any_url) else UnreliableSQLite(any_url)


@pytest.fixture
def app(store: Unreliable) -> Iterator[Yaoki]:
    """A queue on the unreliable line."""
    made = Yaoki(store.url)
    made.store = store
    yield made
    made.close()


@pytest.fixture
def reliable(store: Unreliable) -> Iterator[Yaoki]:
    """The same queue on a line of its own."""
    made = Yaoki(store.url)
    yield made
    made.close()


def test_a_claim_whose_answer_was_lost_is_no_burnt_attempt(
    app: Yaoki, store: Unreliable, reliable: Yaoki, start_worker: StartWorker
) -> None:
    ran, lost = [], []

    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(ctx: JobContext) -> None:
        ran.append(ctx.attempt)

    def lose_the_first_claim(op: Op[Any], value: Any) -> bool:
        if lost or not isinstance(op, Exchange) or value.claimed is None or not value.claimed.jobs:
            return False
        lost.extend(job.id for job in value.claimed.jobs)
        return True

    store.after = lose_the_first_claim
    job = reliable.enqueue("a", max_attempts=1)
    start_worker(lease_for=60)
    ended = reliable.wait(job, timeout=10)

    assert lost == [job.id], "handed back at once, and not a third of the lease later"
    assert ran == [1]
    assert (ended.status, ended.attempt, ended.releases) == ("completed", 1, 0)


def test_a_claim_that_is_committed_when_nobody_waits_for_it_any_more_is_handed_back(
    app: Yaoki, reliable: Yaoki, start_worker: StartWorker
) -> None:
    """As if the worker had claimed it: somebody else does, in its name."""
    app.job("a")(lambda: None)
    working = start_worker(lease_for=2)
    eventually(reliable.workers)
    job = reliable.enqueue("b")
    reliable.claim(working.worker.settings.worker_id, types=["b"])
    eventually(lambda: reliable.get(job).status == "pending", within=20)

    after = reliable.get(job)
    assert (after.attempt, after.rescues) == (0, 0)


def test_an_outcome_whose_answer_was_lost_is_recorded_once(
    app: Yaoki, store: Unreliable, reliable: Yaoki, start_worker: StartWorker
) -> None:
    ran, lost = [], []

    @app.job("a", retry=RetryPolicy(backoff=fixed(0)))
    def handler() -> str:
        ran.append(1)
        return "done"

    def lose_the_first_record(op: Op[Any], value: Any) -> bool:
        if lost or not isinstance(op, Exchange) or not op.settlements:
            return False
        lost.append(1)
        return True

    store.after = lose_the_first_record
    job = reliable.enqueue("a")
    working = start_worker()
    eventually(lambda: lost)
    eventually(lambda: working.worker.slots.idle and working.worker.outcomes.all_recorded)
    working.drain()

    assert ran == [1]
    assert (reliable.get(job).status, reliable.get(job).attempt) == ("completed", 1)
    assert lost == [1]


def test_a_job_whose_record_takes_long_is_kept_meanwhile(
    app: Yaoki, store: Unreliable, reliable: Yaoki, start_worker: StartWorker
) -> None:
    """It was taken for one whose claim was never answered, handed back, and run again."""
    ran, slow = [], []

    @app.job("a", retry=RetryPolicy(backoff=fixed(0)))
    def handler() -> str:
        ran.append(1)
        return "done"

    def hold_the_first_record(op: Op[Any]) -> bool:
        if isinstance(op, Exchange) and op.settlements and not slow:
            slow.append(threading.Event().wait(2.2))
        return False

    store.before = hold_the_first_record
    job = reliable.enqueue("a")
    start_worker(lease_for=2)
    ended = reliable.wait(job, timeout=15)

    assert (ran, len(slow)) == ([1], 1)
    assert (ended.status, ended.result, ended.attempt) == ("completed", "done", 1)


def test_a_worker_goes_on_after_an_outage_of_everything(
    app: Yaoki, store: Unreliable, reliable: Yaoki, start_worker: StartWorker
) -> None:
    outage, runs = threading.Event(), []

    @app.job("a", retry=RetryPolicy(backoff=fixed(0)))
    def handler(ctx: JobContext) -> None:
        runs.append(ctx.job.id)
        ctx.wait_stopping(0.5)

    store.before = lambda op: outage.is_set()
    jobs = reliable.enqueue_many("a", [{}] * 3)
    start_worker(lease_for=10, concurrency=3)
    eventually(lambda: len(runs) == 3)
    outage.set()
    assert stays(lambda: len(runs) == 3, during=1)
    outage.clear()
    later = reliable.enqueue("a")
    ended = [reliable.wait(job, timeout=10) for job in [*jobs, later]]

    assert sorted(runs) == [job.id for job in [*jobs, later]]
    assert {(one.status, one.attempt) for one in ended} == {("completed", 1)}


def test_a_renewal_that_fails_is_tried_again_well_before_the_lease_ends(
    app: Yaoki, store: Unreliable, reliable: Yaoki, start_worker: StartWorker
) -> None:
    runs, failures = [], []

    @app.job("a", retry=RetryPolicy(backoff=fixed(0)))
    def handler(ctx: JobContext) -> None:
        runs.append(ctx.attempt)
        ctx.wait_stopping(2.4)

    def every_second_time(op: Op[Any]) -> bool:
        if not isinstance(op, KeepAlive) or not runs:
            return False
        failures.append(len(failures) % 2 == 0)
        return failures[-1]

    store.before = every_second_time
    job = reliable.enqueue("a")
    start_worker(lease_for=1)
    eventually(lambda: runs, within=5)
    start_worker(reliable_worker(reliable), lease_for=1)
    ended = reliable.wait(job, timeout=10)

    assert failures.count(True) >= 3
    assert runs == [1]
    assert (ended.status, ended.attempt) == ("completed", 1)


def reliable_worker(reliable: Yaoki) -> Yaoki:
    """Somebody else who would take the job if its lease ended."""

    @reliable.job("a")
    def handler() -> None: ...

    return reliable


def test_a_lock_held_by_another_program_only_delays(
    app: Yaoki, reliable: Yaoki, start_worker: StartWorker
) -> None:
    runs = []

    @app.job("a")
    def handler() -> None:
        runs.append(1)

    start_worker(lease_for=5)
    eventually(reliable.workers)
    with locked(app.store):
        enqueuing = threading.Thread(target=reliable.enqueue, args=("a",))
        enqueuing.start()
        assert stays(lambda: runs == [], during=1)
    enqueuing.join(10)

    eventually(lambda: runs == [1])


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_worker_that_cannot_renew_its_leases_lets_go_of_its_jobs_and_works_on_afterwards(
    app: Yaoki,
    store: Unreliable,
    start_worker: StartWorker,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All else may work: it claims nothing that it could not keep (faults 50)."""
    monkeypatch.setattr(limits, "SILENCE", 0)
    begun, told, outage = threading.Event(), [], threading.Event()

    @app.job("def", retry=RetryPolicy(backoff=fixed(0)))
    def plain(ctx: JobContext) -> str:
        if not begun.is_set():
            begun.set()
            ctx.wait_stopping(20)
            told.append(ctx.stopping)
        return f"attempt {ctx.attempt}"

    @app.job("async def", retry=RetryPolicy(backoff=fixed(0)))
    async def coroutine(ctx: JobContext) -> str:
        if not begun.is_set():
            begun.set()
            try:
                await asyncio.sleep(20)
            finally:
                told.append(ctx.stopping)
        return f"attempt {ctx.attempt}"

    store.before = lambda op: outage.is_set() and isinstance(op, KeepAlive | Rescue)
    job = app.enqueue(kind)
    start_worker(lease_for=1)
    begun.wait(10)
    outage.set()
    let_go = eventually(lambda: app.get(job).errors and app.get(job), within=10)
    assert let_go
    another = app.enqueue(kind)
    assert stays(lambda: {app.get(one).status for one in (job, another)} == {"pending"}, during=1.2)
    outage.clear()
    ended = app.wait(job, timeout=20)

    assert told == ["lease lost"]
    assert (
        let_go.error
        == f"lease lost (worker {let_go.attempts[0].worker_id}): it could not be renewed"
    )
    assert (ended.status, ended.attempt, ended.result) == ("completed", 2, "attempt 2")
    assert app.wait(another, timeout=20).status == "completed"


def test_an_outage_that_is_longer_than_a_lease_ends_no_attempt(
    app: Yaoki, store: Unreliable, reliable: Yaoki, start_worker: StartWorker
) -> None:
    """Most outages are everybody's: nobody takes the job meanwhile, and then it is recorded."""
    outage, runs, told = threading.Event(), [], []

    @app.job("a", retry=RetryPolicy(backoff=fixed(0)))
    def handler(ctx: JobContext) -> str:
        runs.append(ctx.attempt)
        eventually(outage.is_set, within=10)
        told.append(ctx.wait_stopping(2.5))
        eventually(lambda: not outage.is_set(), within=10)
        return "done"

    store.before = lambda op: outage.is_set()
    job = reliable.enqueue("a")
    start_worker(lease_for=1)
    eventually(lambda: runs)
    outage.set()
    eventually(lambda: told, within=10)
    outage.clear()
    ended = reliable.wait(job, timeout=20)

    assert (runs, told) == ([1], [False])
    assert (ended.status, ended.attempt, ended.result) == ("completed", 1, "done")


def test_what_a_claim_brings_whose_worker_has_ended_meanwhile_goes_back_at_once(
    app: Yaoki, store: Unreliable, reliable: Yaoki, start_worker: StartWorker
) -> None:
    """It was in the middle of its claim when it was struck off the list (faults 10)."""
    claimed, may_answer, ran = threading.Event(), threading.Event(), []

    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler() -> None:
        ran.append(1)

    def hold_back_the_answer(op: Op[Any], value: Any) -> bool:
        if isinstance(op, Exchange) and value.claimed is not None and value.claimed.jobs:
            claimed.set()
            may_answer.wait(20)
        return False

    store.after = hold_back_the_answer
    job = reliable.enqueue("a", max_attempts=1)
    working = start_worker(lease_for=60)
    claimed.wait(10)
    working.worker.drain()
    working.worker.hurry(15)
    working.wait()
    held = reliable.get(job)
    assert (held.status, reliable.workers()) == ("running", [])
    may_answer.set()
    back = eventually(lambda: (now := reliable.get(job)).status == "pending" and now, within=10)

    assert back
    assert (back.attempt, back.rescues, ran) == (0, 0, [])


REFUSE_ONE = {
    False: [
        "CREATE TRIGGER no BEFORE UPDATE ON yaoki_jobs "
        "WHEN NEW.result = '\"result 5\"' BEGIN SELECT RAISE(ABORT, 'not this'); END"
    ],
    True: [
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql "
        "AS 'BEGIN RAISE EXCEPTION ''not this''; END'",
        "CREATE TRIGGER no BEFORE UPDATE ON yaoki.jobs FOR EACH ROW "
        "WHEN (NEW.result = '\"result 5\"') EXECUTE FUNCTION no()",
    ],
}


def test_an_outcome_that_cannot_be_stored_gives_way_to_one_that_can(
    app: Yaoki, start_worker: StartWorker
) -> None:
    """A trigger of the user's refuses one row; its neighbours in the batch are recorded."""

    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(number: int) -> str:
        return f"result {number}"

    app.migrate()
    execute_all(app.store, REFUSE_ONE[on_postgres(app.url)])
    jobs = handler.enqueue_many([{"number": number} for number in range(10)])
    work_off(app)

    ended = [app.get(job) for job in jobs]
    assert {one.status for one in ended} == {"completed"}
    assert [one.result for one in ended] == [
        None if number == 5 else f"result {number}" for number in range(10)
    ]


def test_twenty_hand_backs_are_free_and_each_further_one_counts(app: Yaoki) -> None:
    app.enqueue("a", max_attempts=2)
    attempts = []
    for _ in range(22):
        [job] = app.claim("w")
        after = app.release(job)
        attempts.append(after.attempt)

    assert attempts == [0] * 20 + [1, 2]
    assert after.status == "failed"
    assert after.releases == 22


def test_a_run_in_between_makes_hand_backs_free_again(app: Yaoki) -> None:
    app.enqueue("a", max_attempts=3)
    for _ in range(20):
        [job] = app.claim("w")
        app.release(job)
    [job] = app.claim("w")
    app.fail(job, "tried", retry_in=0)
    [job] = app.claim("w")
    after = app.release(job)

    assert (after.attempt, after.releases) == (1, 1)
