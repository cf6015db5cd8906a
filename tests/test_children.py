"""Child processes: started afresh, talked to, killed with all that they started."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.processes import ROOT, is_alive
from yaoki import children
from yaoki.children import Child, Gone

Start = Callable[..., Child]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a function of tests/support/child.py; what still runs at the end is killed."""
    started: list[Child] = []

    def begin(name: str, args: object = None) -> Child:
        started.append(children.start(f"tests.support.child:{name}", args))
        return started[-1]

    yield begin
    for child in started:
        child.kill()
        child.wait(10)
        child.close()


def said(child: Child) -> Any:
    return child.receive(object, 20)  # type: ignore[arg-type]


def test_it_is_a_process_of_its_own_session_that_answers(start: Start) -> None:
    child = start("echo", {"a": [1, None]})

    assert said(child) == ["hello", {"a": [1, None]}, child.pid, child.pid, sys.argv]
    assert child.send(["ü", 2**60, b"\0"])
    assert said(child) == ["echo", ["ü", 2**60, b"\0"]]
    assert child.receive(list, 0.01) is None
    assert not child.ended


@pytest.mark.parametrize(
    ("order", "how", "code"),
    [
        ("exit", "exited with code 3", 3),
        ("kill yourself", "killed by signal 9 (SIGKILL)", -9),
    ],
)
def test_how_it_ended_is_told_after_what_it_had_said(
    start: Start, order: str, how: str, code: int
) -> None:
    child = start("echo")
    for message in ("one", "two", order):
        child.send(message)

    assert [said(child)[0], said(child), said(child)] == ["hello", ["echo", "one"], ["echo", "two"]]
    with pytest.raises(Gone):
        said(child)
    assert (child.how_it_ended, child.exit_code) == (how, code)
    assert not child.send("more")


def test_an_end_is_seen_although_the_dead_left_a_process_that_holds_the_line(
    start: Start,
) -> None:
    child = start("echo")
    said(child)
    child.send("fork")
    heir = said(child)
    child.send("kill yourself")

    with pytest.raises(Gone):
        said(child)

    assert child.ended
    # What was killed with it, or died of itself, leaves nothing behind that works on.
    eventually(lambda: not is_alive(heir))


def test_to_kill_it_kills_what_it_started(start: Start) -> None:
    child = start("echo")
    said(child)
    child.send("start")
    below = said(child)

    child.kill()

    assert child.wait(10)
    eventually(lambda: not is_alive(below))
    child.kill()
    assert child.how_it_ended == "killed by signal 9 (SIGKILL)"


def test_a_signal_that_comes_before_it_listens_waits_for_it(start: Start) -> None:
    child = start("deaf_for_a_while")
    os.kill(child.pid, signal.SIGTERM)

    assert said(child) == "begun"
    os.kill(child.pid, signal.SIGINT)

    assert {said(child), said(child)} == {signal.SIGTERM, signal.SIGINT}


def test_it_hears_that_its_parent_is_gone(start: Start) -> None:
    child = start("without_a_word")

    child.line.close()

    assert child.wait(20)
    assert child.how_it_ended == "exited with code 1"


def test_the_parents_main_module_can_be_had_too(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "from yaoki import children\n"
        "WHO = 'it is me'\n"
        "if __name__ == '__main__':\n"
        "    child = children.start('tests.support.child:main_of_the_parent', with_main=True)\n"
        "    print(child.receive(str, 20))\n"
        "    child.wait(20)\n"
    )

    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert done.stdout == "it is me\n", done.stderr


def test_a_program_that_its_child_imports_starts_no_second_worker(tmp_path: Path) -> None:
    """Here a child of multiprocessing's, of the program's own; ours are told apart likewise."""
    (tmp_path / "program.py").write_text(
        "import multiprocessing\n"
        "from yaoki import Yaoki\n"
        f"app = Yaoki('sqlite:///{tmp_path / 'jobs.db'}')\n"
        "@app.job('square')\n"
        "def square(n):\n"
        "    child = multiprocessing.get_context('spawn').Process(target=print, args=(n * n,))\n"
        "    child.start()\n"
        "    child.join()\n"
        "    return child.exitcode\n"
        "if __name__ == '__main__':\n"
        "    job = square.enqueue(n=7)\n"
        "app.run_worker(until_empty=True)\n"
        "print(app.get(job).result)\n"
    )

    done = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], capture_output=True, text=True, timeout=30
    )

    assert done.stdout == "1\n", done.stderr
    assert 'if __name__ == "__main__":' in done.stderr


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (-11, "killed by signal 11 (SIGSEGV)"),
        (-200, "killed by signal 200"),
    ],
)
def test_the_words_for_exit_codes(code: int, words: str) -> None:
    assert children.in_words(code) == words
