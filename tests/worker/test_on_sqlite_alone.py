"""What is so on SQLite alone: one write lock for all, and a file that must be there."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.support_effects import add, notes
from tests.worker.support_workers import StartWorker
from yaoki import JobContext, RetryPolicy, StoreUnavailable, TransactionLost, Yaoki

ONCE = RetryPolicy(max_attempts=1)


@pytest.fixture
def app(url: str) -> Iterator[Yaoki]:
    """A queue in a file of its own."""
    made = Yaoki(url)
    yield made
    made.close()


def test_a_worker_that_cannot_open_its_database_says_so_and_ends(tmp_path: Path) -> None:
    app = Yaoki(f"sqlite:///{tmp_path}/no/such/folder/jobs.db")

    @app.job("a")
    def handler() -> None: ...

    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match="does not exist"):
        app.run_worker()

    assert time.monotonic() - began < 5


@pytest.mark.usefixtures("noted")
@pytest.mark.parametrize("touches", [True, False])
def test_a_block_that_holds_the_lock_too_long_is_rolled_back_while_others_go_on(
    app: Yaoki, start_worker: StartWorker, touches: bool
) -> None:
    inside, seen = threading.Event(), []

    @app.job("hogs", retry=ONCE)
    def hogs(ctx: JobContext) -> None:
        try:
            with ctx.transaction() as tx:
                tx.execute(*add(app, "never"))
                inside.set()
                time.sleep(1.4)
                if touches:
                    tx.execute(*add(app, "never either"))
        except TransactionLost:
            seen.append("lost")
            raise

    @app.job("other")
    def other() -> None: ...

    job = hogs.enqueue()
    start_worker(lease_for=2)
    inside.wait(5)
    began = time.monotonic()
    next_job = other.enqueue()
    waited = time.monotonic() - began
    app.wait(next_job, timeout=5)
    assert app.get(job).status == "running"
    ended = app.wait(job, timeout=5)

    assert waited < 1.2
    assert seen == ["lost"]
    assert (ended.status, ended.attempt) == ("failed", 1)
    assert str(ended.error).startswith("TransactionLost: ")
    assert notes(app) == []
