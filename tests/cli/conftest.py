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
def yaoki(tmp_path: Path) -> Iterator[Program]:
    """The program, in an empty folder but for the app `shop:app`."""
    shutil.copy(Path(__file__).parent / "shop.py", tmp_path / "shop.py")
    program = Program(tmp_path)
    yield program
    program.end()


@pytest.fixture
def app(yaoki: Program) -> Iterator[Yaoki]:
    """A client of the program's default database."""
    client = Yaoki(f"sqlite:///{yaoki.folder / 'yaoki.db'}")
    yield client
    client.close()


@pytest.fixture
def still(yaoki: Program) -> Program:
    """The program at an instant that stands still, with jobs in every situation."""
    fixed.fill(yaoki.folder / "yaoki.db", NOW)
    yaoki.always["YAOKI_NOW"] = NOW
    return yaoki
