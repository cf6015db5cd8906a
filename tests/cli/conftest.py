"""The program, its app, its database, and the files that hold what it should say."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli import fixed
from tests.cli.golden import Golden
from tests.cli.program import NOW, Program
from yaoki import Yaoki


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files of the command line"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    option = request.config.getoption("--update-golden", default=False)
    return Golden(bool(option or os.environ.get("UPDATE_GOLDEN")))


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Of the program's default database; `on_both` (program.py) makes it either."""
    chosen: str = getattr(request, "param", "sqlite")
    return chosen


@pytest.fixture
def yaoki(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> Iterator[Program]:
    """The program, in an empty folder but for the app `shop:app`."""
    shutil.copy(Path(__file__).parent / "shop.py", tmp_path / "shop.py")
    program = Program(tmp_path)
    if kind == "postgres":
        program.always["YAOKI_URL"] = request.getfixturevalue("postgres_url")
    yield program
    program.end()


@pytest.fixture
def app(yaoki: Program) -> Iterator[Yaoki]:
    """A client of the program's default database."""
    client = Yaoki(yaoki.url)
    yield client
    client.close()


@pytest.fixture
def still(yaoki: Program) -> Program:
    """The program at an instant that stands still, with jobs in every situation."""
    fixed.fill(yaoki.url, NOW)
    yaoki.always["YAOKI_NOW"] = NOW
    return yaoki
