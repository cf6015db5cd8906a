"""Workers outlive what happens to a server: sessions that are ended, restarts, a pool that is full.

What a single operation does then is tested in tests/store/postgres/.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import psycopg
import pytest

from servers.postgres import Server
from tests.store.postgres.support_trouble import start_server
from tests.support.databases import ask, assert_intact, locked
from tests.support.eventually import eventually
from tests.support.postgres import for_libpq
from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker, stays
from yaoki import JobContext, RetryPolicy, StoreError, Yaoki, fixed

OFTEN = RetryPolicy(max_attempts=50, backoff=fixed(0))


@pytest.fixture
def app(postgres_url: str) -> Iterator[Yaoki]:
    made = Yaoki(postgres_url)
    yield made
    made.close()


@pytest.fixture
def outside(app: Yaoki) -> Iterator[Yaoki]:
    """Another program on the same queue."""
    made = Yaoki(app.url)
    yield made
    made.close()


def end_every_session(app: Yaoki) -> None:
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    ask(app.store, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")


def all_ended(app: Yaoki, jobs: int, within: float = 30) -> bool:
    """Wait until so many are completed; a session that is ended under this look is no matter."""

    def completed() -> bool:
        with suppress(StoreError):
            return len(list(app.jobs(status="completed", limit=1000))) == jobs
        return False

    return eventually(completed, within=within)


def test_jobs_run_once_while_every_session_is_ended_again_and_again(
    app: Yaoki, outside: Yaoki, start_worker: StartWorker
) -> None:
    runs: Counter[int] = Counter()

    @app.job("plain", retry=OFTEN)
    def plain(ctx: JobContext) -> None:
        runs[ctx.job.id] += 1
        ctx.progress(1, 2)
        ctx.wait_stopping(0.02)

    @app.job("async", retry=OFTEN)
    async def coroutine(ctx: JobContext) -> None:
        runs[ctx.job.id] += 1
        await asyncio.sleep(0.02)

    for kind in ("plain", "async"):
        outside.enqueue_many(kind, [{}] * 150)
    start_worker(concurrency=4, lease_for=6)
    start_worker(concurrency=4, lease_for=6)
    eventually(lambda: len(runs) > 20)
    for _ in range(8):
        end_every_session(outside)
        stays(lambda: True, during=0.1)
    all_ended(outside, 300)

    jobs = list(outside.jobs(limit=1000))
    failed = [error for job in jobs for error in outside.get(job).errors]
    assert len(runs) == 300
    assert {runs[job.id] - job.attempt for job in jobs} == {0}, "each run was counted, once"
    assert {str(one.error).split(":")[0] for one in failed} <= {"StoreUnavailable"}
    assert_intact(outside.store)


@pytest.mark.usefixtures("noted")
def test_effects_in_transactions_happen_once_while_every_session_is_ended(
    app: Yaoki, outside: Yaoki, start_worker: StartWorker
) -> None:
    @app.job("effect", retry=OFTEN)
    def effect(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, f"{ctx.job.id:03}"))
            ctx.wait_stopping(0.03)

    jobs = outside.enqueue_many("effect", [{}] * 200)
    start_worker(concurrency=4, lease_for=6)
    start_worker(concurrency=4, lease_for=6)
    eventually(lambda: notes(outside))
    for _ in range(8):
        end_every_session(outside)
        stays(lambda: True, during=0.1)
    all_ended(outside, 200)

    assert notes(outside) == [f"{job.id:03}" for job in jobs]
    assert any(outside.get(job).errors for job in jobs), "no transaction was cut off"
    assert_intact(outside.store)


def test_what_was_acknowledged_is_there_and_what_was_repeated_by_its_key_is_there_once(
    app: Yaoki, outside: Yaoki, start_worker: StartWorker
) -> None:
    runs: Counter[int] = Counter()

    @outside.job("a", retry=OFTEN)
    def handler(number: int) -> None:
        runs[number] += 1

    def enqueue(number: int) -> None:
        while True:
            with suppress(StoreError):
                app.enqueue("a", {"number": number}, idempotency_key=f"a-{number}")
                return

    enqueuing = threading.Thread(target=lambda: [enqueue(number) for number in range(400)])
    start_worker(outside, lease_for=6)
    eventually(outside.workers)
    enqueuing.start()
    while enqueuing.is_alive():
        end_every_session(app)
        enqueuing.join(0.05)
    all_ended(outside, 400)

    assert set(runs) == set(range(400))
    assert len({job.id for job in outside.jobs(limit=1000)}) == 400
    assert_intact(outside.store)


@pytest.fixture(scope="module")
def mortal() -> Iterator[Server]:
    """A server of these tests' own."""
    made = start_server()
    yield made
    made.delete()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shutdown", "wake"),
    [("INT", "notify"), ("QUIT", "notify"), ("QUIT", "poll")],
    ids=["fast", "like a crash", "like a crash, without notifications"],
)
def test_what_runs_when_the_server_is_started_again_is_recorded_and_no_attempt_is_lost(
    mortal: Server, start_worker: StartWorker, shutdown: str, wake: str
) -> None:
    url = f"{mortal.url}?schema={wake}_{shutdown}&wake={wake}"
    app, outside = Yaoki(url), Yaoki(url)
    runs: Counter[int] = Counter()
    go_on = threading.Event()

    @app.job("long", retry=OFTEN)
    def long(ctx: JobContext) -> str:
        runs[ctx.job.id] += 1
        go_on.wait(20)
        return "done"

    @app.job("short", retry=OFTEN)
    def short(ctx: JobContext) -> None:
        runs[ctx.job.id] += 1

    held = [long.enqueue() for _ in range(3)]
    waiting = outside.enqueue_many("short", [{}] * 20, delay=1)
    start_worker(app, concurrency=4, lease_for=10)
    eventually(lambda: len(runs) == 3)
    mortal.stop(shutdown)
    go_on.set()
    assert stays(lambda: len(runs) == 3, during=1)
    mortal.start()
    ended = [outside.wait(job, timeout=20) for job in [*held, *waiting]]

    assert {(one.status, one.attempt, one.rescues) for one in ended} == {("completed", 1, 0)}
    assert set(runs.values()) == {1}
    assert_picked_up_at_once(outside, within=0.1 if wake == "notify" else 1.5)
    app.close()
    outside.close()


def assert_picked_up_at_once(app: Yaoki, within: float) -> None:
    """Idle workers are woken, or look: the middle one of five jobs waited so long at most."""

    def waited() -> float:
        job = app.wait(app.enqueue("short"), timeout=10)
        assert job.claimed_at is not None
        return (job.claimed_at - job.created_at).total_seconds()

    def quick() -> bool:
        # The end of every session may reach this one a little later than it was wanted.
        with suppress(StoreError):
            return sorted(waited() for _ in range(5))[2] < within
        return False

    eventually(quick, within=15)


def test_a_worker_with_the_smallest_pool_goes_on_after_both_connections_were_stuck(
    postgres_url: str, outside: Yaoki, start_worker: StartWorker
) -> None:
    """A migration of somebody's holds the table for longer than a lease lasts without renewal."""
    small = Yaoki(f"{postgres_url}?pool=2")
    runs: Counter[int] = Counter()

    @small.job("a", retry=OFTEN)
    def handler(ctx: JobContext) -> None:
        runs[ctx.job.id] += 1
        ctx.progress(1, 2)
        small.enqueue("other")
        ctx.wait_stopping(0.3)
        ctx.progress(2, 2)

    outside.enqueue_many("a", [{}] * 40)
    start_worker(small, concurrency=20, lease_for=2)
    start_worker(small, concurrency=20, lease_for=2)
    eventually(lambda: runs)
    with locked(outside.store):
        stays(lambda: True, during=2.5)
    eventually(lambda: len(list(outside.jobs(type="a", status="completed"))) == 40, within=20)

    jobs = list(outside.jobs(type="a"))
    assert {(job.attempt, job.rescues) for job in jobs} == {(1, 0)}
    assert set(runs.values()) == {1}
    small.close()
    assert_intact(outside.store)


def test_a_listening_session_that_is_ended_is_begun_again(
    app: Yaoki, outside: Yaoki, start_worker: StartWorker
) -> None:
    @app.job("short")
    def short() -> None: ...

    start_worker()
    outside.wait(outside.enqueue("short"), timeout=5)
    with psycopg.connect(for_libpq(app.url)) as connection:
        name = "SELECT count(*) FROM pg_stat_activity WHERE query ILIKE '%listen%' AND pid <> "
        [listening] = connection.execute(f"{name} pg_backend_pid()").fetchone() or [0]
    end_every_session(outside)

    assert listening >= 1
    assert_picked_up_at_once(outside, within=0.1)
