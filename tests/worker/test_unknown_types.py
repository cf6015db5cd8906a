"""Jobs whose type a worker does not know are left for one that does, and people are told."""

import pytest

from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, work_off
from yaoki import Yaoki


@pytest.fixture
def newer(app: Yaoki) -> Yaoki:
    """The next release of the same program, on the same database."""
    made = Yaoki(app.url)

    @made.job("new")
    def new() -> str:
        return "done"

    yield made
    made.close()


def test_they_are_not_claimed_use_no_attempt_and_are_warned_about(
    app: Yaoki, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("old")
    def old() -> None: ...

    unknown = app.enqueue("new")
    known = old.enqueue()
    start_worker()
    app.wait(known, timeout=5)
    eventually(lambda: "jobs of type 'new' are due" in caplog.text)

    left = app.get(unknown)
    assert (left.status, left.attempt, left.attempts) == ("pending", 0, ())


def test_it_is_warned_about_once_for_each_worker_and_type(
    app: Yaoki, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("old")
    def old() -> None: ...

    app.enqueue_many("new", [{}] * 100)
    app.enqueue_many("newer", [{}] * 100)
    start_worker()
    eventually(lambda: "type 'newer'" in caplog.text)

    assert caplog.text.count("are due, and this worker has no handler") == 2


def test_all_run_on_the_worker_that_knows_them(
    app: Yaoki, newer: Yaoki, start_worker: StartWorker
) -> None:
    @app.job("old")
    def old() -> None: ...

    jobs = app.enqueue_many("new", [{}] * 100)
    start_worker()
    start_worker(newer)
    eventually(lambda: app.get(jobs[-1]).is_final and app.get(jobs[0]).is_final, within=10)
    eventually(lambda: {app.get(job).status for job in jobs} == {"completed"})

    assert {app.get(job).attempt for job in jobs} == {1}


def test_a_crowd_of_them_does_not_hide_the_known(app: Yaoki) -> None:
    @app.job("old")
    def old() -> None: ...

    app.enqueue_many("new", [{}] * 3_000)
    known = old.enqueue()
    work_off(app)

    assert app.get(known).status == "completed"
