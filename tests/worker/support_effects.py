"""What handlers do in these tests: they add notes to a table beside the queue, on either store."""

import pytest

from tests.support.databases import ask
from tests.support.dialects import mark
from yaoki import Yaoki


@pytest.fixture
def noted(app: Yaoki) -> None:
    """The table, with nothing in it."""
    app.migrate()
    ask(app.store, "CREATE TABLE notes (note TEXT NOT NULL)")


def add(app: Yaoki, *notes: str) -> tuple[str, list[str]]:
    """A statement that adds them, and its parameters, as the driver takes both."""
    rows = ", ".join([f"({mark(app.url)})"] * len(notes))
    return f"INSERT INTO notes VALUES {rows}", list(notes)


def notes(app: Yaoki) -> list[str]:
    """Those that others see, in order."""
    return [note for (note,) in ask(app.store, "SELECT note FROM notes ORDER BY note")]
