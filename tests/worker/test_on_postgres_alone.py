"""What is so on PostgreSQL alone: transactions beside each other, and a server to be reached."""

import threading
import time
from collections.abc import Iterator

import pytest

from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker
from yaoki import JobContext, RetryPolicy, StoreUnavailable, Yaoki

ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture
def app(postgres_url: str) -> Iterator[Yaoki]:
    made = Yaoki(postgres_url)
    yield made
    made.close()


def test_a_worker_that_cannot_reach_its_server_says_so_and_ends() -> None:
    app = Yaoki("postgresql://shop:geheim@127.0.0.1:1/shop")

    @app.job("a")
    def handler() -> None: ...

    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="refused") as error:
        app.run_worker()

    assert time.monotonic() - began < 5
    assert "geheim" not in str(error.value)


@pytest.mark.usefixtures("noted")
def test_a_block_may_last_longer_than_a_lease_and_keeps_nobody_from_his_work(
    app: Yaoki, start_worker: StartWorker
) -> None:
    """On SQLite it would be rolled back, because it holds the only write lock."""
    inside = threading.Event()

    @app.job("long", retry=ONCE)
    def long(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, "a"))
            inside.set()
            time.sleep(2.5)

    @app.job("other")
    def other() -> None: ...

    job = long.enqueue()
    start_worker(lease_for=1)
    start_worker(lease_for=1)
    assert inside.wait(5)
    began = time.monotonic()
    for _ in range(10):
        app.wait(other.enqueue(), timeout=5)
    took = time.monotonic() - began
    assert app.get(job).status == "running"
    ended = app.wait(job, timeout=10)

    assert took < 1.5
    assert (ended.status, ended.attempt, ended.rescues) == ("completed", 1, 0)
    assert notes(app) == ["a"]


@pytest.mark.usefixtures("noted")
def test_twenty_blocks_are_open_at_once(app: Yaoki, start_worker: StartWorker) -> None:
    """Each has a connection of its own, so none waits for another's end."""
    together = threading.Barrier(20)

    @app.job("a", retry=ONCE)
    def handler(ctx: JobContext, note: str) -> None:
        with ctx.transaction() as tx:
            tx.execute(*add(app, note))
            together.wait(20)

    jobs = handler.enqueue_many([{"note": f"{number:02}"} for number in range(20)])
    start_worker(concurrency=20)
    ended = [app.wait(job, timeout=20) for job in jobs]

    assert {(one.status, one.error) for one in ended} == {("completed", None)}
    assert notes(app) == [f"{number:02}" for number in range(20)]
