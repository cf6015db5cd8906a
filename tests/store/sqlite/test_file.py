"""The file: how connections are set up, what a private one leaves behind, closing and reopening."""

import gc
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.databases import assert_intact
from yaoki import UnsupportedStore, Yaoki
from yaoki.core.said import NewJob
from yaoki.store import SQLiteStore
from yaoki.store.op import Op, Statement, Steps
from yaoki.store.ops.jobs import Enqueue, Get


class Pragma(Op[object]):
    """What a connection of the store answers to a PRAGMA."""

    def __init__(self, name: str, writes: bool) -> None:
        self._name, self.writes = name, writes  # type: ignore[misc]

    def steps(self) -> Steps[object]:
        answer = yield Statement("pragma", {}, text=f"PRAGMA {self._name}")
        return answer.rows[0][0] if answer.rows else None


FULL, NORMAL, OFF = 2, 1, 0


@pytest.mark.parametrize(
    ("options", "synchronous"),
    [("", FULL), ("?durability=full", FULL), ("?durability=normal", NORMAL)],
)
def test_writes_are_as_durable_as_the_url_says(
    tmp_path: Path, options: str, synchronous: int
) -> None:
    """At FULL a commit has reached the disk when it returns; NORMAL has a price (promise 1)."""
    store = SQLiteStore(f"sqlite:///{tmp_path}/jobs.db{options}")

    for writes in (True, False):
        assert store.run(Pragma("synchronous", writes)) == synchronous
        assert store.run(Pragma("journal_mode", writes)) == "wal"
        assert store.run(Pragma("mmap_size", writes)) in (0, None)
        assert store.run(Pragma("wal_autocheckpoint", writes)) == 0
    assert store.run(Pragma("journal_size_limit", True)) == 64 * 1024 * 1024
    assert store.run(Pragma("query_only", False)) == 1
    assert store.run(Pragma("query_only", True)) == 0
    store.close()


def test_the_transaction_of_a_handler_is_as_durable(tmp_path: Path) -> None:
    store = SQLiteStore(f"sqlite:///{tmp_path}/jobs.db")

    shared = store.transaction()

    assert shared.run(Pragma("synchronous", True)) == FULL
    shared.rollback()
    store.close()


def test_reading_connections_cannot_write(tmp_path: Path) -> None:
    store = SQLiteStore(f"sqlite:///{tmp_path}/jobs.db")
    store.migrate()
    writing = Pragma("user_version = 7", False)

    with pytest.raises(Exception, match=r"readonly|query_only"):
        store.run(writing)

    store.close()


# In memory


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in which private files are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_private_database_is_removed_when_it_is_closed(temporary: Path) -> None:
    app = Yaoki("sqlite:///:memory:")
    app.enqueue("mail")
    assert len(list(temporary.iterdir())) == 1

    app.close()

    assert list(temporary.iterdir()) == []


def test_two_private_databases_share_nothing(temporary: Path) -> None:
    one, other = Yaoki("sqlite:///:memory:"), Yaoki("sqlite:///:memory:")
    one.enqueue("mail")

    assert other.jobs() == []
    one.close()
    other.close()


def test_a_private_database_is_for_its_owners_eyes(temporary: Path) -> None:
    app = Yaoki("sqlite:///:memory:")
    app.enqueue("mail")

    [folder] = temporary.iterdir()
    assert folder.stat().st_mode & 0o077 == 0
    app.close()


def test_a_private_database_is_seen_by_every_thread_of_the_process(temporary: Path) -> None:
    app = Yaoki("sqlite:///:memory:")
    app.enqueue("mail")
    seen: list[int] = []

    thread = threading.Thread(target=lambda: seen.append(len(app.jobs())))
    thread.start()
    thread.join()

    assert seen == [1]
    app.close()


def test_a_private_database_is_removed_when_the_program_ends(tmp_path: Path) -> None:
    program = "import yaoki; yaoki.Yaoki('sqlite:///:memory:').enqueue('mail'); print('done')"

    ended = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert (ended.stdout, ended.stderr) == ("done\n", "")
    assert list(tmp_path.iterdir()) == []


# Closing and reopening


def test_a_closed_app_opens_again_when_it_is_used(app: Yaoki) -> None:
    job = app.enqueue("mail")

    for _ in range(3):
        app.close()
        app.close()
        assert app.get(job) == job


def test_closing_an_app_that_was_never_used_makes_nothing(tmp_path: Path) -> None:
    app = Yaoki(f"sqlite:///{tmp_path / 'jobs.db'}")

    app.close()

    assert list(tmp_path.iterdir()) == []


def test_closing_puts_the_log_back_into_the_file(app: Yaoki, path: Path) -> None:
    """A copy of the one file is then the whole queue."""
    app.enqueue("mail")

    app.close()

    assert sorted(file.name for file in path.parent.iterdir()) == ["jobs.db"]


def test_a_program_that_forgets_to_close_leaves_nothing_half_done(tmp_path: Path) -> None:
    program = (
        "import yaoki, threading\n"
        f"app = yaoki.Yaoki('sqlite:///{tmp_path}/jobs.db')\n"
        "threads = [threading.Thread(target=app.enqueue, args=('mail',)) for _ in range(20)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]; app.jobs(); app.store.bell()\n"
    )

    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=30
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    app = Yaoki(f"sqlite:///{tmp_path}/jobs.db")
    assert len(app.jobs()) == 20
    app.close()


def test_many_threads_may_be_the_first_to_use_an_app(tmp_path: Path) -> None:
    app = Yaoki(f"sqlite:///{tmp_path / 'jobs.db'}")
    barrier = threading.Barrier(20)

    def first() -> None:
        barrier.wait(10)
        app.enqueue("mail")

    threads = [threading.Thread(target=first) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(app.jobs()) == 20
    app.close()


def test_reading_connections_are_kept_and_not_many(app: Yaoki, path: Path) -> None:
    app.enqueue("mail")
    threads = [threading.Thread(target=app.jobs) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(handles_on(path)) <= 3 * (8 + 2)


def handles_on(path: Path) -> list[str]:
    """What this process has open of the file, its log and its index."""
    found = []
    for handle in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(handle)
        except OSError:
            continue
        if target.startswith(str(path)):
            found.append(target)
    return found


def test_closing_closes_every_handle(app: Yaoki, path: Path) -> None:
    app.enqueue("mail")
    bell = app.store.bell()
    bell.wait(0.01)
    threads = [threading.Thread(target=app.jobs) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    bell.close()
    app.close()
    gc.collect()

    assert handles_on(path) == []


def test_a_deleted_row_of_another_program_is_simply_gone(app: Yaoki, path: Path) -> None:
    """Others may open the file beside us; what they commit is seen at once."""
    job = app.enqueue("mail")
    mine = sqlite3.connect(path)
    mine.execute("DELETE FROM yaoki_jobs")
    mine.commit()
    mine.close()

    with pytest.raises(LookupError):
        app.get(job)
    assert app.enqueue("mail").id == job.id + 1


def test_one_thread_may_use_what_another_opened(app: Yaoki) -> None:
    jobs = []

    def work() -> None:
        jobs.append(app.enqueue("mail"))
        assert app.get(jobs[-1]) == jobs[-1]

    for _ in range(5):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    assert [job.id for job in jobs] == [1, 2, 3, 4, 5]


def test_operations_can_be_driven_on_the_connection_of_a_transaction(tmp_path: Path) -> None:
    store = SQLiteStore(f"sqlite:///{tmp_path}/jobs.db")
    shared = store.transaction()
    made = shared.run(Enqueue(NewJob("mail", "{}")))

    shared.commit()

    assert store.run(Get(made.id)) == made
    store.close()


def test_an_older_sqlite_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 33, 0))
    app = Yaoki(f"sqlite:///{tmp_path / 'jobs.db'}")

    with pytest.raises(UnsupportedStore, match=r"needs 3\.34 or newer"):
        app.enqueue("mail")


def test_a_vacuum_by_another_program_changes_nothing(app: Yaoki, path: Path) -> None:
    jobs = [app.enqueue("mail", {"n": n}) for n in range(20)]
    for job in jobs[::2]:
        app.cancel(job)
        app.discard(job)
    [claimed] = app.claim("w1")

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("VACUUM")

    assert app.complete(claimed).status == "completed"
    assert [job.id for job in app.jobs()] == [job.id for job in jobs[1::2]][::-1]
    assert app.enqueue("mail").id == 21


def test_two_apps_on_one_file_in_one_process_do_not_disturb_each_other(
    app: Yaoki, path: Path
) -> None:
    """Also when one closes: the locks of a file belong to the process, not to the connection."""
    other = Yaoki(app.url)
    over = threading.Event()
    written: list[int] = []

    def write() -> None:
        while not over.is_set():
            written.append(app.enqueue("mail").id)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(30):
        other.enqueue("other")
        other.jobs()
        other.close()
    over.set()
    for thread in threads:
        thread.join()

    assert len(set(written)) == len(written)
    assert_intact(path)
    assert len(app.jobs(type="other", limit=1_000)) == 30


def test_any_name_of_a_file_is_taken_as_it_is(tmp_path: Path) -> None:
    """SQLite is given a URI, in which these characters mean something."""
    app = Yaoki(f"sqlite:///{tmp_path}/100%25 %23 %26 é.db")

    app.enqueue("mail")
    app.jobs()

    assert (tmp_path / "100% # & é.db").stat().st_size > 0
    app.close()
    assert len(list(tmp_path.iterdir())) == 1
