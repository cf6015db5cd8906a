"""A store that is used before a fork, and after it by parent and child alike."""

import multiprocessing
import os
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.databases import ask, assert_intact
from yaoki import StoreUnavailable, Yaoki

fork = multiprocessing.get_context("fork")


def in_child(act: Callable[[], object], within: float = 20) -> str:
    """What `act` answers, or raises, in a forked child."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = str(act())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return told


def use(app: Yaoki, name: str, times: int = 20) -> None:
    """Read and write, as any program does."""
    for number in range(times):
        job = app.enqueue(name, {"n": number})
        assert app.get(job) == job
        assert app.jobs(limit=5)
        for claimed in app.claim(name, types=[name]):
            app.complete(claimed)


def test_parent_and_children_use_the_same_app_after_a_fork(app: Yaoki, path: Path) -> None:
    """A connection carried over would drop the locks of both, and damage the file."""
    use(app, "before")

    children = [fork.Process(target=use, args=(app, f"child-{n}", 60)) for n in range(4)]
    for child in children:
        child.start()
        use(app, "between", 5)
    use(app, "after", 60)
    for child in children:
        child.join(60)

    assert [child.exitcode for child in children] == [0] * 4
    assert_intact(path)
    counts = dict(ask(path, "SELECT type, count(*) FROM yaoki_jobs GROUP BY type"))
    assert counts == {"before": 20, "between": 20, "after": 60} | {
        f"child-{n}": 60 for n in range(4)
    }


def test_a_child_reads_what_its_parent_wrote(app: Yaoki) -> None:
    job = app.enqueue("mail", {"to": "mai"})

    assert in_child(lambda: app.get(job).payload) == "{'to': 'mai'}"


def test_a_parent_reads_what_its_child_wrote(app: Yaoki) -> None:
    app.enqueue("mail")

    made = in_child(lambda: app.enqueue("mail", {"from": "child"}).id)

    assert app.get(int(made)).payload == {"from": "child"}


def test_a_grandchild_works_too(app: Yaoki) -> None:
    app.enqueue("mail")

    made = in_child(lambda: in_child(lambda: app.enqueue("mail").id))

    assert app.get(int(made)).id == 2


def test_an_app_that_was_never_used_is_opened_by_each_process_itself(
    app: Yaoki, tmp_path: Path
) -> None:
    fresh = Yaoki(f"sqlite:///{tmp_path / 'fresh.db'}")

    made = in_child(lambda: fresh.enqueue("mail").id)

    assert fresh.get(int(made)).type == "mail"
    fresh.close()


def test_forks_in_the_middle_of_writing_and_reading_harm_nothing(app: Yaoki, path: Path) -> None:
    over = threading.Event()
    written = [0] * 4

    def busy(place: int) -> None:
        while not over.is_set():
            app.enqueue("busy")
            written[place] += 1
            app.jobs(limit=3)

    threads = [threading.Thread(target=busy, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    made = [in_child(lambda: len(use_briefly(app))) for _ in range(10)]
    over.set()
    for thread in threads:
        thread.join()

    assert made == ["3"] * 10
    assert_intact(path)
    counts = dict(ask(path, "SELECT type, count(*) FROM yaoki_jobs GROUP BY type"))
    assert counts == {"busy": sum(written), "child": 30}


def use_briefly(app: Yaoki) -> list[int]:
    return [app.enqueue("child").id for _ in range(3)]


def test_a_private_database_belongs_to_the_process_that_made_it() -> None:
    """A child that ends must not take the parent's temporary file with it."""
    app = Yaoki("sqlite:///:memory:")
    job = app.enqueue("mail")

    seen = in_child(lambda: (app.get(job).id, app.close()))

    assert seen == "(1, None)"
    assert app.get(job) == job
    app.close()


def test_a_child_that_was_forked_inside_a_transaction_is_told_so(
    app: Yaoki, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent's locks cannot be let go of, so the child does not touch the file."""
    monkeypatch.setattr("yaoki.store.sqlite.opened.FORK_PATIENCE", 0.1)
    app.enqueue("mail")
    shared = app.store.transaction()

    told = in_child(lambda: app.enqueue("mail"))

    assert told.startswith(StoreUnavailable.__name__)
    assert "make a new Yaoki" in told
    shared.rollback()
    assert app.enqueue("mail").id == 2


def test_a_bell_rings_in_the_parent_after_a_fork(app: Yaoki) -> None:
    bell = app.store.bell()
    assert bell.wait(0.5)
    assert not bell.wait(0.05)

    in_child(lambda: app.enqueue("mail").id)

    assert bell.wait(5)
    bell.close()


def test_an_open_reader_of_the_parents_own_keeps_working(app: Yaoki, path: Path) -> None:
    app.enqueue("mail")
    mine = sqlite3.connect(path)

    in_child(lambda: app.enqueue("mail").id)

    assert mine.execute("SELECT count(*) FROM yaoki_jobs").fetchone() == (2,)
    mine.close()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_way_of_starting_processes_works(app: Yaoki, method: str) -> None:
    """An app is not sent to the others: each makes its own from the URL."""
    app.enqueue("before")
    context = multiprocessing.get_context(method)

    child = context.Process(target=enqueue_at, args=(app.url,))
    child.start()
    child.join(30)

    assert child.exitcode == 0
    assert app.jobs()[0].type == "from a child"


def enqueue_at(url: str) -> None:
    app = Yaoki(url)
    app.enqueue("from a child")
    app.close()


def test_a_fork_waits_for_a_write_that_is_under_way(app: Yaoki, path: Path) -> None:
    app.enqueue("mail")
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    waiting = threading.Thread(target=app.enqueue, args=("waiting",))
    waiting.start()
    release = threading.Timer(0.3, holder.execute, ("COMMIT",))
    release.start()
    began = time.monotonic()

    made = in_child(lambda: app.enqueue("child").id)

    waiting.join(10)
    assert time.monotonic() - began >= 0.2
    assert app.get(int(made)).type == "child"
    assert {job.type for job in app.jobs()} == {"mail", "waiting", "child"}
    holder.close()
