"""What tests of SQLite alone start from: an app on a file, at full durability."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from yaoki import Yaoki


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file of `app`."""
    return tmp_path / "jobs.db"


@pytest.fixture
def app(path: Path) -> Iterator[Yaoki]:
    app = Yaoki(f"sqlite:///{path}?busy_timeout=5")
    app.migrate()
    yield app
    app.close()
