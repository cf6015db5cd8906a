"""The file is deleted, or another one gets its name, while programs have it open."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.databases import ask, assert_intact
from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, release, start_worker
from yaoki import StoreUnavailable, Yaoki

__all__ = ["release", "start_worker"]


def files_of(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}*"))


def delete(path: Path) -> None:
    for file in files_of(path):
        file.unlink()


def error_of(app: Yaoki) -> str:
    """What an enqueue is told, as soon as it is noticed."""

    def told() -> str:
        try:
            app.enqueue("mail")
        except StoreUnavailable as error:
            return str(error)
        return ""

    return eventually(told)


def test_a_deleted_file_is_told_and_not_made_anew(app: Yaoki, path: Path) -> None:
    app.enqueue("mail")
    delete(path)

    told = [error_of(app) for _ in range(3)]

    assert set(told) == {
        f"{path} was deleted while it was in use; put a backup in its place, or restart this "
        "program to begin with an empty queue"
    }
    assert files_of(path) == []
    with pytest.raises(StoreUnavailable, match="was deleted"):
        app.jobs()


def test_closing_it_is_a_restart(app: Yaoki, path: Path) -> None:
    app.enqueue("mail")
    delete(path)
    error_of(app)

    app.close()

    assert app.enqueue("mail").id == 1


def copy_of(path: Path) -> Path:
    """A sound copy of the file, as a backup is one."""
    copy = path.with_name("backup")
    with closing(sqlite3.connect(path)) as one, closing(sqlite3.connect(copy)) as other:
        one.backup(other)
        other.execute("PRAGMA journal_mode = DELETE")
    return copy


def test_a_backup_in_its_place_is_told_once_and_then_used(app: Yaoki, path: Path) -> None:
    app.enqueue("before")
    copy = copy_of(path)
    app.enqueue("lost")
    delete(path)
    shutil.move(copy, path)

    told = error_of(app)
    app.enqueue("after")

    assert told.startswith(f"{path} was replaced by another file while it was in use; ")
    assert [job.type for job in app.jobs()] == ["after", "before"]
    assert_intact(path)


def test_a_worker_says_so_in_few_lines_and_goes_on_with_the_backup(
    app: Yaoki, path: Path, start_worker: StartWorker, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("mail")
    def mail() -> None: ...

    outside = Yaoki(app.url)
    start_worker(app)
    outside.wait(outside.enqueue("mail"), timeout=10)
    copy = copy_of(path)
    delete(path)

    def told() -> list[str]:
        return [line for line in caplog.messages if "was deleted while it was in use" in line]

    eventually(told)
    shutil.move(copy, path)
    outside.close()
    job = outside.enqueue("mail")
    ended = outside.wait(job, timeout=15)

    assert ended.status == "completed"
    assert len(told()) < 20
    assert ask(path, "SELECT count(*) FROM yaoki_jobs WHERE status = 'completed'") == [(2,)]
    outside.close()
