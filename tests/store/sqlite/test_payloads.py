"""What is kept out of payloads because of SQLite and its driver."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.databases import ask
from yaoki import InvalidPayload, Yaoki


def test_nul_is_kept_out_because_sqlite_would_count_it_as_the_end(app: Yaoki, path: Path) -> None:
    """SQLite stores the text whole and says that it has one letter (fact F11)."""
    [(length,)] = ask(path, "SELECT length('a' || char(0) || 'b')")

    assert length == 1
    with pytest.raises(InvalidPayload):
        app.enqueue("mail", {"a": "a\0b"})


def test_what_the_driver_cannot_bind_never_reaches_it(app: Yaoki) -> None:
    """Its errors there are no sqlite3.Error, so every handler of those would miss them."""
    with closing(sqlite3.connect(":memory:")) as driver:
        with pytest.raises(UnicodeEncodeError):
            driver.execute("SELECT ?", ["a\ud83d"])
        with pytest.raises(OverflowError):
            driver.execute("SELECT ?", [2**63])

    assert app.enqueue("mail", {"n": 2**63}).payload == {"n": 2**63}
    with pytest.raises(InvalidPayload):
        app.enqueue("mail", {"n": "a\ud83d"})
