"""What tests of PostgreSQL alone start from: an app on a database, a bell that hangs there."""

from collections.abc import Iterator

import pytest

from servers.postgres import Server
from tests.store.postgres.support_bells import Ground
from tests.store.postgres.support_callers import KINDS, Kind
from tests.store.postgres.support_trouble import Proxy, Trouble, proxied, start_server
from tests.support.django_settings import configure
from tests.support.postgres import Databases
from yaoki import Yaoki
from yaoki.store.postgres.bell import NotifyBell


@pytest.fixture(scope="session", autouse=True)
def django_is_configured(tmp_path_factory: pytest.TempPathFactory) -> None:
    configure(tmp_path_factory.mktemp("django"))


@pytest.fixture
def app(postgres_url: str) -> Iterator[Yaoki]:
    app = Yaoki(postgres_url)
    app.migrate()
    yield app
    app.close()


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of connection that a caller may have."""
    found: Kind = request.param
    return found


@pytest.fixture
def ground(postgres_url: str) -> Iterator[Ground]:
    """A database for those who sleep on it and those who wake them."""
    made = Ground(postgres_url)
    yield made
    made.other.close()


@pytest.fixture
def bell(ground: Ground) -> Iterator[NotifyBell]:
    """One that has announced itself, and whose owner has looked."""
    made = ground.bell()
    assert made.wait(10)
    yield made
    made.close()


@pytest.fixture(scope="session")
def own_server() -> Iterator[Server]:
    """A server of these tests' own, whatever the others use."""
    made = start_server()
    yield made
    made.delete()


@pytest.fixture(scope="session")
def own_databases(own_server: Server) -> Iterator[Databases]:
    made = Databases(own_server.url)
    yield made
    made.close()


@pytest.fixture
def trouble(own_server: Server, own_databases: Databases) -> Iterator[Trouble]:
    """A database with our tables, on that server, in which anything may happen."""
    url = own_databases.fresh()
    made = Trouble(own_server, url)
    yield made
    made.end()
    own_databases.leave(url)


@pytest.fixture
def proxy(trouble: Trouble) -> Iterator[Proxy]:
    """On the way to that database."""
    with proxied(trouble.url) as made:
        yield made
