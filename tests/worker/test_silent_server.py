"""A server that takes everything and never answers: a worker is not stuck, and loses no lease."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from servers.postgres import Server
from tests.store.postgres.support_trouble import Proxy, frozen, proxied, start_server
from tests.support.databases import assert_intact
from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker
from yaoki import JobContext, Yaoki

RECOVERED_WITHIN = 5.0
"""Seconds after the end of an outage; what a busy machine may add is in the tests."""


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    with proxied(postgres_url) as made:
        yield made


@pytest.fixture
def app(proxy: Proxy) -> Iterator[Yaoki]:
    """The worker's, whose way to the server may go dark."""
    made = Yaoki(f"{proxy.url}?prepared=off")
    yield made
    made.close()


@pytest.fixture
def outside(postgres_url: str) -> Iterator[Yaoki]:
    """Others, who reach the server whatever happens."""
    made = Yaoki(postgres_url)
    yield made
    made.close()


def pickup(outside: Yaoki, kind: str = "short") -> float:
    """Seconds from the enqueue of a job to its claim, by the database's clock."""
    job = outside.wait(outside.enqueue(kind), timeout=30)
    assert job.claimed_at is not None
    return (job.claimed_at - job.created_at).total_seconds()


def is_quick(latency: Callable[[], float]) -> bool:
    """The middle one of five."""
    return sorted(latency() for _ in range(5))[2] < 0.2


def test_a_network_that_swallows_everything_costs_no_lease_and_five_seconds_at_most(
    app: Yaoki, outside: Yaoki, proxy: Proxy, start_worker: StartWorker
) -> None:
    ran: list[int] = []
    over: list[int] = []

    @app.job("long")
    def long(ctx: JobContext) -> None:
        ran.append(ctx.job.id)
        while not over:
            ctx.progress(1, 2)
            ctx.wait_stopping(0.1)

    @app.job("short")
    def short(ctx: JobContext) -> None:
        ran.append(ctx.job.id)

    @outside.job("long")
    def stolen() -> None: ...

    held = [outside.enqueue("long") for _ in range(3)]
    working = start_worker(lease_for=6)
    eventually(lambda: len(ran) == 3)
    eventually(lambda: is_quick(lambda: pickup(outside)), within=20)
    start_worker(outside, lease_for=6)
    # In the middle of a claim.
    proxy.dark_after = b"SKIP LOCKED"
    eventually(lambda: outside.enqueue("short") and proxy.dark, within=20, every=0.05)
    parts = [working.worker.keeper, working.worker.exchanger]
    eventually(lambda: all(part.failures > 1 for part in parts), within=20)
    proxy.heal()
    healed = time.monotonic()
    pickup(outside)
    back = time.monotonic() - healed
    eventually(lambda: is_quick(lambda: pickup(outside)), within=20)
    quick = time.monotonic() - healed
    over.append(1)
    ended = [outside.wait(job, timeout=20) for job in held]

    assert back < RECOVERED_WITHIN + 1
    assert quick < RECOVERED_WITHIN + 3
    assert {(job.status, job.attempt, job.rescues) for job in ended} == {("completed", 1, 0)}
    eventually(lambda: not outside.jobs(status="running"))
    eventually(lambda: not any(part.failures for part in parts))
    assert sorted(ran) == sorted(set(ran)), "nothing ran twice"
    assert_intact(outside.store)


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of this test's own."""
    made = start_server()
    yield made
    made.delete()


@pytest.fixture
def own(server: Server) -> Iterator[Yaoki]:
    """A queue there."""
    made = Yaoki(server.url)
    yield made
    made.close()


@pytest.mark.slow
@pytest.mark.crash
def test_a_server_that_stood_still_for_a_lease_costs_nothing_that_runs(
    server: Server, own: Yaoki, start_worker: StartWorker
) -> None:
    """It does afterwards what it was asked before, and nobody waits for that any more."""
    app, runs, over = own, Counter[int](), threading.Event()

    @app.job("long")
    def long(ctx: JobContext) -> None:
        runs[ctx.job.id] += 1
        over.wait(30)

    @app.job("short")
    def short(ctx: JobContext) -> None:
        runs[ctx.job.id] += 1
        ctx.wait_stopping(0.01)

    jobs = [app.enqueue("long") for _ in range(3)]
    workers = [start_worker(app, lease_for=3) for _ in range(2)]
    eventually(lambda: len(runs) == 3)
    jobs += app.enqueue_many("short", [{}] * 400)
    eventually(lambda: len(runs) > 50)
    with frozen(server):
        parts = [part for one in workers for part in (one.worker.keeper, one.worker.exchanger)]
        over_a_lease = time.monotonic() + 3.1
        eventually(lambda: all(part.failures for part in parts), within=30)
        eventually(lambda: time.monotonic() > over_a_lease)
    thawed = time.monotonic()
    jobs.append(app.enqueue("short", priority=9))
    eventually(lambda: runs[jobs[-1].id], within=20)
    back = time.monotonic() - thawed
    eventually(lambda: len(runs) == len(jobs), within=20)
    over.set()
    ended = [app.wait(job, timeout=20) for job in jobs]

    assert back < RECOVERED_WITHIN + 1
    assert {(job.status, job.attempt, job.rescues) for job in ended} == {("completed", 1, 0)}
    assert set(runs.values()) == {1}
    assert_intact(app.store)
