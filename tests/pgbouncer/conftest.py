"""What tests through PgBouncer start from: a database, directly and through it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.support import pgbouncer
from tests.support.pgbouncer import PgBouncer
from yaoki import Yaoki


@pytest.fixture(autouse=True)
def it_is_installed() -> None:
    if pgbouncer.program() is None:
        pytest.skip(pgbouncer.NOT_FOUND)


@pytest.fixture
def pooled(postgres_url: str) -> Iterator[str]:
    """The URL of the database through PgBouncer, which has three sessions to it for everybody."""
    with pgbouncer.through(postgres_url) as url:
        yield url


@pytest.fixture
def app(pooled: str) -> Iterator[Yaoki]:
    made = Yaoki(pooled)
    yield made
    made.close()


Start = Callable[..., PgBouncer]


@pytest.fixture
def start(postgres_url: str) -> Iterator[Start]:
    """Starts one in front of the database, with settings of the test's own."""
    with ExitStack() as ends:

        def begin(**settings: object) -> PgBouncer:
            made = PgBouncer(postgres_url, **settings)  # type: ignore[arg-type]
            ends.callback(made.end)
            return made

        yield begin
