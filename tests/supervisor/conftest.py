"""Real supervisors, with the app `deeds:app`, in a folder of their own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.supervisor.yard import Yard


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """Of the database; `on_both` makes it either."""
    chosen: str = getattr(request, "param", "sqlite")
    return chosen


@pytest.fixture
def yard(tmp_path: Path, kind: str, request: pytest.FixtureRequest) -> Iterator[Yard]:
    url = None if kind == "sqlite" else request.getfixturevalue("postgres_url")
    shutil.copy(Path(__file__).parent / "deeds.py", tmp_path / "deeds.py")
    with Yard(tmp_path, url) as set_up:
        yield set_up
