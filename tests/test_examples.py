"""The programs in examples/ run to their end and say what they promise."""

import re
from pathlib import Path

import pytest

from tests.support.processes import ROOT, Process, Processes

EXAMPLES = ROOT / "examples"

SAYS = {
    "welcome_mails.py": [r"the second request made none: True", r"100%", r"^sent: 500$"],
    "images.py": [
        r"^cat: completed",
        r"^dog: failed, after attempt 1: NotAnImage",
        r"^dog: completed; its history has 1 error$",
    ],
    "report.py": [r"^receipt number 1; asked again: 1$", r"^ +\d+%  2027-01-\d\d$", r"46500"],
    "orders.py": [r"^200 clicks, 100 orders, 1000 points$"],
    "sync.py": [r"^60 orders from 6 pages are here, after 6 failed attempts$"],
}


def test_every_example_is_listed() -> None:
    programs = {program.name for program in EXAMPLES.glob("*.py")}

    assert programs == SAYS.keys()
    assert programs == set(re.findall(r"\((\w+\.py)\)", (EXAMPLES / "README.md").read_text()))


@pytest.mark.parametrize("program", SAYS)
def test_an_example_does_what_it_says(
    program: str, processes: Processes, postgres_url: str, tmp_path: Path
) -> None:
    database = {"DATABASE_URL": postgres_url}
    running = processes.python(str(EXAMPLES / program), cwd=tmp_path, env=database)

    assert_says(running, SAYS[program])


URL = re.compile(r"sqlite:///example-\w+\.db")


@pytest.mark.parametrize("program", ["welcome_mails.py", "images.py", "report.py"])
def test_it_does_the_same_on_postgresql_with_nothing_changed_but_the_url(
    program: str, processes: Processes, postgres_url: str, tmp_path: Path
) -> None:
    text, changed = URL.subn(postgres_url, (EXAMPLES / program).read_text())
    (tmp_path / program).write_text(text)
    running = processes.python(program, cwd=tmp_path)

    assert changed == 1
    assert_says(running, SAYS[program])
    assert list(tmp_path.glob("*.db")) == []


def assert_says(running: Process, lines: list[str]) -> None:
    code = running.wait(within=60)

    assert code == 0, running.output
    for said in lines:
        assert re.search(said, running.output, re.MULTILINE), running.output
    assert "Traceback" not in running.output


@pytest.mark.parametrize("program", SAYS)
def test_an_example_is_short(program: str) -> None:
    assert len((EXAMPLES / program).read_text().splitlines()) <= 60
