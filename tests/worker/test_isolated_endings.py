"""Isolated handlers that are told to stop, and what becomes of them when their worker ends."""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.processes import Processes
from tests.worker.support_isolated import (
    MakeApp,
    is_alive,
    make_app,
    module_of,
    those_that_began,
)
from tests.worker.support_workers import Working, let_lease_end
from yaoki import Yaoki, children
from yaoki.children import Child
from yaoki.worker import limits
from yaoki.worker.isolated.messages import Setup, Unready, Work, read_from_child

__all__ = ["make_app"]


@pytest.fixture
def app(make_app: MakeApp, url: str) -> Yaoki:
    return make_app(url)


@pytest.fixture
def working(app: Yaoki) -> Iterator[Working]:
    working = Working(app, concurrency=3, lease_for=20, grace=0.5)
    yield working
    if not working.ended:
        working.drain()


def test_a_cancelled_one_is_told_and_killed_when_it_does_not_listen(
    app: Yaoki,
    working: Working,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(limits, "CANCEL_PATIENCE", 2.0)  # of the 5 s that it is
    jobs = [app.enqueue(kind) for kind in ("listens", "async listens", "deaf")]
    eventually(lambda: len(those_that_began(app)) == 3, within=30)
    pids = those_that_began(app)
    began = time.monotonic()
    for job in jobs:
        app.cancel(job)
    for job in jobs[:2]:
        app.wait(job, timeout=30)
    assert app.get(jobs[2]).status == "running"
    ended = [app.wait(job, timeout=30) for job in jobs]

    assert time.monotonic() - began >= 2
    assert [(one.status, one.attempt) for one in ended] == [("cancelled", 1)] * 3
    assert "failed" not in caplog.text
    # Two of the three go on to the next job.
    eventually(lambda: sum(map(is_alive, pids)) == 2, within=10)


def test_one_that_has_lost_its_lease_is_told_and_killed_when_it_does_not_listen(
    app: Yaoki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CANCEL_PATIENCE", 1.0)
    working = Working(app, concurrency=2, lease_for=2)
    jobs = [app.enqueue(kind, max_attempts=1) for kind in ("listens", "deaf")]
    eventually(lambda: len(those_that_began(app)) == 2, within=30)
    pids = those_that_began(app)
    for job in jobs:
        let_lease_end(app, job.id)
    rescued = {one.id for one in app.rescue()}
    ended = [app.get(job) for job in jobs]

    assert rescued == {job.id for job in jobs}
    eventually(lambda: working.worker.slots.leaked == 0, within=30)
    eventually(lambda: sum(map(is_alive, pids)) == 1, within=30)
    working.drain()
    assert [app.get(job) for job in jobs] == ended
    assert not any(map(is_alive, pids))


def test_after_the_grace_those_that_go_on_are_killed_and_handed_back(
    app: Yaoki, working: Working
) -> None:
    jobs = [app.enqueue(kind) for kind in ("deaf", "async listens")]
    eventually(lambda: len(those_that_began(app)) == 2, within=30)
    ending = working.drain()
    ended = [app.get(job) for job in jobs]

    assert (ending.handed_back, ending.unrecorded, ending.exit_code) == (2, 0, 1)
    assert [(one.status, one.attempt, one.releases) for one in ended] == [("pending", 0, 1)] * 2
    assert not any(map(is_alive, those_that_began(app)))


def test_one_that_listens_ends_within_the_grace(app: Yaoki, working: Working) -> None:
    job = app.enqueue("listens")
    eventually(lambda: those_that_began(app), within=30)
    ending = working.drain()

    assert ending.exit_code == 0
    assert (app.get(job).status, app.get(job).result) == ("completed", "shutdown")
    assert not any(map(is_alive, those_that_began(app)))


def test_one_that_needs_longer_than_its_limit_to_be_had_is_not_timed_out_for_that(
    make_app: MakeApp, url: str, tmp_path: Path
) -> None:
    """The limit is the handler's: while a process is started for it, it has not begun."""
    app = make_app(url, more="time.sleep(1)\n")
    working = Working(app, concurrency=2)
    folder = tmp_path / "met"
    folder.mkdir()
    first = app.enqueue("meet", {"people": 2, "folder": str(folder)}, timeout=60)
    eventually(lambda: os.listdir(folder), within=30)
    second = app.enqueue("meet", {"people": 2, "folder": str(folder)}, timeout=0.9)
    ended = [app.wait(job, timeout=30) for job in (first, second)]
    working.drain()

    assert [(one.status, one.attempt) for one in ended] == [("completed", 1)] * 2


def test_none_outlives_a_worker_that_is_killed_and_another_worker_takes_its_job(
    make_app: MakeApp, any_url: str, processes: Processes, tmp_path: Path
) -> None:
    """Also one that holds the interpreter, so that nothing in its process can hear of it."""
    app = make_app(any_url)
    job = app.enqueue("deaf once")
    worker = processes.python(
        "-c",
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"from {module_of(app)} import app\n"
        "app.run_worker(lease_for=1)",
    )
    said = eventually(lambda: app.get(job).progress, within=30)
    pid = int(str(said.message))
    assert is_alive(pid)
    worker.kill()
    eventually(lambda: not is_alive(pid), within=10)
    working = Working(app, lease_for=1)
    ended = app.wait(job, timeout=30)
    working.drain()

    assert (ended.result, ended.attempt) == ("in the end", 2)
    assert "lease lost" in str(ended.errors[0].error)


def test_a_process_whose_line_is_closed_ends_with_all_that_it_has_started(
    app: Yaoki, tmp_path: Path
) -> None:
    """Where the system does not end it with its worker, it hears that nobody is there any more."""
    file = tmp_path / "pid"
    child = a_child(app)
    app.enqueue("start and wait", {"file": str(file)})
    [claimed] = app.claim("by hand", lease_for=60)
    child.send(Work(1, list(claimed._row)))
    started = eventually(lambda: file.exists() and file.read_text(), within=30)
    child.line.close()

    assert child.wait(10)
    eventually(lambda: not is_alive(int(started)), within=10)
    child.close()


def test_a_process_says_why_it_cannot_run_the_handlers(app: Yaoki) -> None:
    child = a_child(app, types=["unheard of"])
    said = child.take(30)
    assert said is not None
    unready = read_from_child(said)

    assert isinstance(unready, Unready)
    assert "has no job type 'unheard of'" in unready.why
    assert child.wait(10)
    assert child.exit_code == 1
    child.close()


def a_child(app: Yaoki, types: Sequence[str] = ()) -> Child:
    """A process as the worker starts it; its worker is this process."""
    setup = Setup(
        app=f"{module_of(app)}:app",
        modules=[module_of(app)],
        types=list(types),
        url=app.url,
        folder=os.getcwd(),
        lease_for=20,
        parent=os.getpid(),
        levels={},
    )
    return children.start("yaoki.worker.isolated.child:serve", setup)
