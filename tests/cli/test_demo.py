"""The demo: it tells the truth, in two languages, and leaves nothing behind."""

import os
import signal
import string
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cli.program import Program, line_with
from tests.support.eventually import eventually
from yaoki.cli.demo.words import TEXTS, language_of


@pytest.fixture
def stage(yaoki: Program, tmp_path: Path) -> Iterator[Program]:
    """The program with temporary files of its own, so that what is left of them can be seen."""
    (tmp_path / "tmp").mkdir()
    yaoki.always["TMPDIR"] = str(tmp_path / "tmp")
    yield yaoki
    yaoki.end()
    for process in _processes(yaoki):
        os.kill(process, signal.SIGKILL)


@pytest.mark.slow
def test_the_demo_tells_its_story_and_leaves_nothing_behind(stage: Program) -> None:
    began = time.monotonic()

    ran = stage("demo")

    took = time.monotonic() - began
    assert (ran.code, ran.err) == (0, "")
    for told in (
        "All 100 are sent",
        "Attempt 2 failed: TimeoutError",
        "Now it completes.",
        "one key, one job",
        "1. the express parcel (critical)",
        "SIGKILL to process",
        "its worker was killed, another finished",
        "109 jobs, all completed",
    ):
        assert told in ran.out
    assert took < 30
    assert _left_behind(stage) == []


@pytest.mark.slow
def test_an_interrupted_demo_leaves_nothing_behind(stage: Program) -> None:
    demo = stage.start("demo", env={"LC_ALL": "ja_JP.UTF-8"})
    line_with(demo.stdout, "ワーカープロセスを起動しました")
    assert _processes(stage) != []

    demo.send_signal(signal.SIGINT)

    _, err = demo.communicate(timeout=15)
    assert demo.returncode == 130
    assert err.strip() == ""
    assert _left_behind(stage) == []


@pytest.mark.slow
def test_a_demo_that_is_asked_to_end_leaves_nothing_behind(stage: Program) -> None:
    demo = stage.start("demo", "--lang", "en")
    line_with(demo.stdout, "A worker process runs")

    demo.send_signal(signal.SIGTERM)

    demo.communicate(timeout=15)
    assert demo.returncode == 143
    assert _left_behind(stage) == []


@pytest.mark.slow
def test_a_demo_that_nobody_reads_to_its_end_leaves_nothing_behind(stage: Program) -> None:
    ran = stage.shell("yaoki demo | head -2")

    assert (len(ran.out.splitlines()), ran.err) == (2, "")
    assert _left_behind(stage) == []


@pytest.mark.slow
def test_the_workers_of_a_killed_demo_end_by_themselves(stage: Program) -> None:
    demo = stage.start("demo")
    line_with(demo.stdout, "A worker process runs")

    demo.send_signal(signal.SIGKILL)

    demo.communicate(timeout=15)
    assert eventually(lambda: _processes(stage) == [], within=15)


@pytest.mark.slow
def test_a_demo_that_would_tell_a_lie_fails(stage: Program, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif 'worker' in sys.orig_argv: os._exit(3)\n"
    )

    ran = stage("demo", env={"PYTHONPATH": str(tmp_path)})

    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert ran.err.startswith("yaoki: the demo went wrong: expected worker 1 to be alive")
    assert _left_behind(stage) == []


def test_both_languages_tell_the_same_facts() -> None:
    facts = {
        language: {key: _fields(text) for key, text in texts.items()}
        for language, texts in TEXTS.items()
    }

    assert facts["en"] == facts["ja"]


@pytest.mark.parametrize(
    ("environment", "language"),
    [
        ({}, "en"),
        ({"LANG": "ja_JP.UTF-8"}, "ja"),
        ({"LANG": "ja_JP.UTF-8", "LC_ALL": "C.UTF-8"}, "en"),
        ({"LANG": "de_DE.UTF-8", "LC_ALL": "ja"}, "ja"),
        ({"LANG": "", "LC_MESSAGES": "ja_JP"}, "ja"),
    ],
)
def test_the_language_is_that_of_the_environment(
    environment: dict[str, str], language: str
) -> None:
    assert language_of(environment) == language


def _fields(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}


def _left_behind(program: Program) -> list[object]:
    """Processes and files of the demo that are still there."""
    return [*_processes(program), *(program.folder / "tmp").iterdir()]


def _processes(program: Program) -> list[int]:
    """The worker processes whose database is in this test's folder."""
    place = str(program.folder / "tmp")
    return [pid for pid, command in _commands() if place in command]


def _commands() -> Iterator[tuple[int, str]]:
    """Every process with its command line."""
    if not Path("/proc/self/cmdline").exists():
        listed = subprocess.run(["ps", "-axwwo", "pid=,args="], stdout=subprocess.PIPE, check=True)
        for line in listed.stdout.decode(errors="replace").splitlines():
            pid, _, command = line.strip().partition(" ")
            yield int(pid), command
        return
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
            yield int(entry.name), command.decode(errors="replace")
