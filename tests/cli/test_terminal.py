"""On a terminal: fine tables where rich is there, plain ones without it, colours unless refused."""

import os
import pty
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.cli.program import PROGRAM, Program


def test_tables_are_fine_and_coloured_on_a_terminal(still: Program) -> None:
    shown = _on_a_terminal(still, "jobs", env={"NO_COLOR": "", "TERM": "xterm-256color"})

    assert "╭" in shown
    assert "\x1b[32mcompleted" in shown


def test_colours_are_off_when_they_are_refused(still: Program) -> None:
    shown = _on_a_terminal(still, "jobs", env={"NO_COLOR": "1", "TERM": "xterm-256color"})

    assert "╭" in shown
    assert "\x1b[3" not in shown


def test_tables_are_plain_without_rich(still: Program, tmp_path: Path) -> None:
    without_rich = _without_rich(tmp_path)

    shown = _on_a_terminal(still, "jobs", env={"NO_COLOR": "", **without_rich})

    assert "╭" not in shown
    assert "\x1b" not in shown
    assert shown.replace("\r\n", "\n") == still("jobs").out


def test_every_command_works_without_rich(still: Program, tmp_path: Path) -> None:
    without_rich = _without_rich(tmp_path)

    codes = [
        still(*arguments, env=without_rich).code
        for arguments in (["jobs"], ["job", "2"], ["watch", "2"], ["queues"], ["workers"])
    ]

    assert codes == [0] * 5


def test_a_bar_moves_on_a_terminal_with_rich(still: Program) -> None:
    shown = _on_a_terminal(still, "watch", "2", env={"TERM": "xterm-256color"})

    assert "completed: after 2 failures" in shown


def test_a_pipe_gets_whole_lines_where_no_width_is_said(still: Program) -> None:
    ran = still("jobs", env={"COLUMNS": ""})

    assert "no worker knows this type, waits 5 s" in ran.out
    assert "…" not in ran.out


def test_wide_characters_are_aligned(still: Program) -> None:
    lines = still("jobs").out.splitlines()

    wide = next(line for line in lines if "請求書を送る" in line)
    narrow = next(line for line in lines if " cancelled " in line)
    assert wide.index("default") + 6 == narrow.index("default")


def test_times_are_local_with_their_zone(still: Program) -> None:
    ran = still("jobs", "--type", "mail", env={"TZ": "Asia/Tokyo"})

    assert "in 5 min (12:09:05 JST)" in ran.out


def test_output_that_the_encoding_cannot_hold_is_escaped(still: Program) -> None:
    latin = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}

    table = still("jobs", env=latin)
    as_json = still("jobs", "--json", env=latin)

    assert (table.code, as_json.code) == (0, 0)
    assert r"\u8acb\u6c42\u66f8" in table.out
    assert r"\u8acb\u6c42\u66f8" in as_json.out


def _without_rich(folder: Path) -> dict[str, str]:
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import sys\nsys.modules['rich'] = None\n")
    return {"PYTHONPATH": str(site)}


def _on_a_terminal(program: Program, *arguments: str, env: Mapping[str, str]) -> str:
    """What the program writes to a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = program.environment(env)
    if not environment["NO_COLOR"]:
        del environment["NO_COLOR"]
    with subprocess.Popen(
        [*PROGRAM, *arguments], cwd=program.folder, env=environment, stdout=theirs, stdin=theirs
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                more = os.read(ours, 65_536)
            except OSError:  # the other end was closed
                break
            written += more
            if not more:
                break
    os.close(ours)
    assert process.returncode == 0
    return written.decode()
