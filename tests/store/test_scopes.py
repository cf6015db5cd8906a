"""Blocks within blocks: each app's calls run in the innermost block of its own."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from yaoki import Yaoki


@pytest.fixture
def apps(tmp_path: Path) -> Iterator[tuple[Yaoki, Yaoki]]:
    """Two apps on one queue."""
    both = Yaoki(f"sqlite:///{tmp_path / 'jobs.db'}"), Yaoki(f"sqlite:///{tmp_path / 'jobs.db'}")
    for app in both:
        app.migrate()
    yield both
    for app in both:
        app.close()


def test_another_apps_block_does_not_end_the_one_around_it(
    apps: tuple[Yaoki, Yaoki], tmp_path: Path
) -> None:
    first, second = apps
    mine = sqlite3.connect(tmp_path / "jobs.db")

    with first.on(mine), second.on(mine):
        first.enqueue("a")
        second.enqueue("b")
    inside = [job.type for job in first.jobs()]
    mine.rollback()
    mine.close()

    assert inside == []
    assert first.jobs() == []
