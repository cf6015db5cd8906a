"""What tests start from: a store in each of its runners, an app on it, a clock, processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import pgbouncer, postgres
from tests.support.clocks import Clock
from tests.support.processes import Processes
from tests.support.runners import RUNNERS
from yaoki import Yaoki
from yaoki.store import Store


def pytest_report_header() -> list[str]:
    return [postgres.description(), pgbouncer.description()]


def pytest_sessionfinish() -> None:
    pgbouncer.end()
    postgres.end()


@pytest.fixture
def clock() -> Clock:
    """The clock of `store` and `app`: it stands still until it is moved."""
    return Clock()


@pytest.fixture(params=RUNNERS, ids=lambda runner: runner.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    """An empty store, in each of the ways in which it can be run."""
    with request.param(tmp_path, clock) as opened:
        yield opened


@pytest.fixture
def app(store: Store) -> Iterator[Yaoki]:
    """An app whose verbs run in `store`."""
    app = Yaoki(store.url)
    app.store = store
    yield app
    app.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    """Of a SQLite file that is not there yet."""
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """Of a PostgreSQL database that has our tables."""
    with postgres.fresh_database() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def any_url(request: pytest.FixtureRequest) -> str:
    """Of a database of each kind, where the clock is the database's or the host's."""
    url: str = request.getfixturevalue("url" if request.param == "sqlite" else "postgres_url")
    return url


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Starts real processes; those that still run at the end are killed."""
    started = Processes()
    yield started
    started.end()
