"""A file that cannot be used: each use says so in one line, with what to do, and nothing hangs."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.databases import assert_intact
from tests.support.processes import Process, Processes
from yaoki import Yaoki


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose permissions may be taken away."""
    made = tmp_path / "data"
    made.mkdir()
    yield made
    made.chmod(0o700)


@pytest.fixture
def path(folder: Path) -> Path:
    """A file with a job in it, that nobody has open."""
    app = Yaoki(f"sqlite:///{folder / 'jobs.db'}")
    app.enqueue("mail")
    app.close()
    return folder / "jobs.db"


def read_only_file(path: Path) -> None:
    path.chmod(0o444)


def read_only_folder(path: Path) -> None:
    path.parent.chmod(0o555)


def nobodys_file(path: Path) -> None:
    path.chmod(0)


def closed_folder(path: Path) -> None:
    path.parent.chmod(0)


def something_else(path: Path) -> None:
    path.write_text("this is no database, however long one looks at it" * 1_000)


def broken_header(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(os.urandom(100))


def broken_pages(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4_096)
        file.write(b"\xff" * 20_000)


def cut_short(path: Path) -> None:
    os.truncate(path, 9_000)


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


READ_ONLY = "attempt to write a readonly database; check who may write the file and folder"
CLOSED = "; check that the folder exists, and that it and the file may be read and written"
SOMETHING_ELSE = "that file is something else than a SQLite database, or its beginning is damaged"
DAMAGED = "the file is damaged; restore a backup"

SITUATIONS: dict[Callable[[Path], None], str] = {
    read_only_file: READ_ONLY,
    read_only_folder: READ_ONLY,
    nobodys_file: CLOSED,
    closed_folder: CLOSED,
    something_else: SOMETHING_ELSE,
    broken_header: SOMETHING_ELSE,
    broken_pages: DAMAGED,
    cut_short: DAMAGED,
    a_folder: "is a folder; name a file in it",
}

READABLE = {read_only_file}


def told(program: Process) -> dict[str, str]:
    """What each use said."""
    assert program.wait(30) == 0, program.output
    lines = [line.split(" ", 2) for line in program.lines]
    assert all(len(line) == 3 for line in lines), program.output
    return {use: f"{kind} {text}" for use, kind, text in lines}


@pytest.mark.parametrize("happens", SITUATIONS, ids=lambda happens: happens.__name__)
def test_each_use_says_in_one_line_what_is_wrong_and_what_to_do(
    path: Path, processes: Processes, happens: Callable[[Path], None]
) -> None:
    happens(path)

    said = told(
        processes.python(
            "-m",
            "tests.support.unprivileged",
            "tests.store.sqlite.try_everything",
            f"sqlite:///{path}",
        )
    )

    reading = {"read", "migrate"} if happens in READABLE else set()
    for use in said.keys() - reading:
        assert said[use].startswith("StoreUnavailable "), said
        assert SITUATIONS[happens] in said[use]
        assert str(path) in said[use]
        assert "\\n" not in said[use]
    assert {said[use] for use in reading} <= {"went well"}, said


def test_the_worker_command_ends_with_that_line(path: Path, processes: Processes) -> None:
    path.with_name("shop.py").write_text(
        "from yaoki import Yaoki\napp = Yaoki('sqlite:///jobs.db')\n\n\n"
        "@app.job('mail')\ndef mail(): ...\n"
    )
    read_only_file(path)

    program = processes.python(
        "-m",
        "tests.support.unprivileged",
        *("yaoki", "--app", "shop:app", "worker"),
        cwd=path.parent,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )

    assert program.wait(30) == 1
    assert [line for line in program.lines if READ_ONLY in line] == [
        f"yaoki: {path}: {READ_ONLY}"
    ], program.output
    assert len(program.lines) <= 4, program.output


def test_it_goes_on_when_it_may_write_again(path: Path, processes: Processes) -> None:
    """An app that was refused does not have to be made anew."""
    kept = shutil.copy(path, path.with_name("kept"))
    something_else(path)
    app = Yaoki(f"sqlite:///{path}")
    with pytest.raises(Exception, match="restore a backup"):
        app.enqueue("mail")

    shutil.copy(kept, path)

    assert app.enqueue("mail").id == 2
    app.close()
    assert_intact(path)
