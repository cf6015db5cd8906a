"""What goes wrong at a server is told in one line that says what to do, and is over afterwards."""

import asyncio
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest

from servers.postgres import Server
from tests.store.postgres.support_trouble import Asked, Trouble, start_server
from tests.support import postgres
from tests.support.acts import claim_one, end, make, read
from tests.support.eventually import eventually
from tests.support.postgres import Databases
from yaoki import StoreBusy, StoreError, StoreUnavailable, UnsupportedStore, Yaoki, YaokiError
from yaoki.core.outcomes import Completed
from yaoki.core.said import NewJob
from yaoki.store.ops.claims import Look
from yaoki.store.ops.jobs import EnqueueMany, Get
from yaoki.store.ops.queues import Queues
from yaoki.store.postgres.store import PostgresStore


@contextmanager
def opened(url: str) -> Iterator[PostgresStore]:
    store = PostgresStore(url)
    yield store
    store.close()


def told(kind: type[YaokiError], url: str) -> str:
    """What a program is told, twice the same, when it first uses the URL."""
    with opened(url) as store:
        lines = set()
        for _ in range(2):
            with pytest.raises(kind) as error:
                store.run(Look())
            assert type(error.value) is kind
            lines.add(str(error.value))
    [line] = lines
    assert "\n" not in line
    assert line.startswith("postgresql://")
    return line


# The way to the database


def test_a_server_that_is_not_there(own_server: Server) -> None:
    line = told(StoreUnavailable, "postgresql://postgres@127.0.0.1:1/jobs")

    assert "Connection refused" in line
    assert "check host and port" in line


def test_a_host_that_has_no_address() -> None:
    line = told(StoreUnavailable, "postgresql://postgres@nowhere.invalid/jobs")

    assert "nowhere.invalid" in line
    assert "check host and port" in line


def test_a_socket_that_is_not_there() -> None:
    assert "check host and port" in told(StoreUnavailable, "postgresql:///jobs?host=/nowhere")


def test_a_database_that_is_not_there(own_server: Server) -> None:
    line = told(StoreUnavailable, postgres.with_database(own_server.url, "none"))

    assert 'database "none" does not exist' in line
    assert "createdb" in line


def test_a_role_that_is_not_there(trouble: Trouble) -> None:
    line = told(StoreUnavailable, trouble.url.replace("//postgres@", "//nobody@"))

    assert 'role "nobody" does not exist' in line
    assert "check user and password" in line


def test_a_server_without_ssl_for_whoever_insists_on_it(trouble: Trouble) -> None:
    assert "SSL" in told(StoreUnavailable, f"{trouble.url}?sslmode=require")


def test_values_that_libpq_refuses_are_named(trouble: Trouble) -> None:
    assert "'soon'" in told(StoreUnavailable, f"{trouble.url}?connect_timeout=soon")
    assert '"so-so"' in told(StoreUnavailable, f"{trouble.url}?sslmode=so-so")


def test_a_server_that_is_too_old(trouble: Trouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is at hand; what is compared is the number that the server says."""
    monkeypatch.setattr("yaoki.store.postgres.opened.OLDEST", 990_000)

    assert "needs 13 or newer" in told(UnsupportedStore, trouble.url)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_a_database_that_cannot_hold_every_text(trouble: Trouble, encoding: str) -> None:
    name = f"{trouble.name}_{encoding.lower()}"
    trouble.admin.execute(
        f"CREATE DATABASE {name} ENCODING '{encoding}' TEMPLATE template0 LC_COLLATE 'C' "
        "LC_CTYPE 'C'".encode()
    )

    line = told(UnsupportedStore, postgres.with_database(trouble.url, name))

    assert encoding in line
    assert "UTF8" in line
    trouble.admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


# What a role may do


def test_a_role_that_may_not_make_the_tables(trouble: Trouble, own_databases: Databases) -> None:
    role, empty = trouble.role(), own_databases.empty()
    url = postgres.with_database(role.url, postgres.database_of(empty))

    with opened(url) as store, pytest.raises(StoreError, match="may not make the tables") as error:
        store.run(Look())

    assert 'CREATE SCHEMA "yaoki" AUTHORIZATION' in str(error.value)
    assert "\n" not in str(error.value)
    own_databases.leave(empty)


def test_a_role_that_was_given_a_schema_makes_its_tables_there(
    trouble: Trouble, own_databases: Databases
) -> None:
    role, empty = trouble.role(), own_databases.empty()
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA yaoki AUTHORIZATION {role.name}".encode())
    url = postgres.with_database(role.url, postgres.database_of(empty))

    with opened(url) as store:
        assert make(store).id == 1
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(f"DROP OWNED BY {role.name}".encode())
    own_databases.leave(empty)


def test_a_role_that_may_not_see_the_schema(trouble: Trouble) -> None:
    line = told(StoreError, trouble.role().url)

    assert "permission denied" in line
    assert "grant it, or use another role" in line


def test_a_role_that_may_not_write(trouble: Trouble) -> None:
    role = trouble.role().grant_all()
    trouble.run(f"REVOKE INSERT ON yaoki.jobs FROM {role.name}")

    with opened(role.url) as store:
        for _ in range(2):
            with pytest.raises(StoreError, match=r"permission denied for table jobs; .*grant it"):
                make(store)
        trouble.run(f"GRANT INSERT ON yaoki.jobs TO {role.name}")
        assert make(store).type == "mail"


def test_a_role_that_may_not_connect(trouble: Trouble) -> None:
    role = trouble.role().grant_all()
    trouble.admin.execute(f"REVOKE CONNECT ON DATABASE {trouble.name} FROM public".encode())

    line = told(StoreUnavailable, role.url)

    assert "permission denied for database" in line
    assert "grant CONNECT" in line


def test_a_role_needs_nothing_but_the_tables(trouble: Trouble) -> None:
    with opened(trouble.role().grant_all().url) as store:
        job = make(store)
        store.run(EnqueueMany([NewJob("mail", "{}")] * 3))
        end(store, claim_one(store), Completed())
        assert read(store, job).status == "completed"


def test_tables_that_somebody_dropped(trouble: Trouble) -> None:
    with opened(trouble.url) as store:
        make(store)
        trouble.run("DROP SCHEMA yaoki CASCADE")
        with pytest.raises(StoreError, match="yaoki migrate") as error:
            make(store)
    assert "\n" not in str(error.value)


# Servers, roles and databases that only read


def test_a_role_that_only_reads_is_told_so_and_may_write_as_soon_as_it_can(
    trouble: Trouble,
) -> None:
    role = trouble.role(default_transaction_read_only="on").grant_all()
    with opened(role.url) as store:
        assert store.run(Queues()) == []
        with pytest.raises(StoreUnavailable, match=r"read-only transaction; .* primary") as error:
            make(store)
        assert "\n" not in str(error.value)
        role.reset()
        assert make(store).type == "mail"


@pytest.fixture
def standby() -> Iterator[Server]:
    """A server in recovery: it only reads."""
    made = start_server()
    made.stop()
    (made.folder / "data" / "standby.signal").touch()
    made.start()
    yield made
    made.delete()


def test_a_standby_is_refused_with_another_way_and_is_used_once_it_is_promoted(
    standby: Server,
) -> None:
    line = told(StoreUnavailable, standby.url)
    assert "standby" in line
    assert "connect to the primary" in line

    with opened(standby.url) as store:
        with pytest.raises(StoreUnavailable):
            make(store)
        with psycopg.connect(standby.url, autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true, 60)")
        assert make(store).type == "mail"


def test_of_a_standby_and_a_primary_the_primary_is_used(standby: Server, trouble: Trouble) -> None:
    url = trouble.url.replace("@127.0.0.1:", f"@127.0.0.1:{standby.port},127.0.0.1:")

    with opened(url) as store:
        assert make(store).type == "mail"
    assert trouble.run("SELECT type FROM yaoki.jobs") == [("mail",)]


def test_a_host_that_says_nothing_is_waited_for_once(trouble: Trouble) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        hosts = f"@127.0.0.1:{nobody.getsockname()[1]},127.0.0.1:"
        url = trouble.url.replace("@127.0.0.1:", hosts)
        with opened(f"{url}?connect_timeout=2") as store, asyncio.Runner() as runner:
            make(store)
            began = time.monotonic()
            store.transaction().rollback()
            runner.run(store.arun(Get(1)))
            trouble.terminate_all()
            make(store)

            assert time.monotonic() - began < 1.9


def test_nothing_but_standbys_is_told(standby: Server) -> None:
    url = standby.url.replace("@127.0.0.1:", f"@127.0.0.1:{standby.port},127.0.0.1:")

    line = told(StoreUnavailable, url)

    assert "primary" in line


# Limits


def test_a_server_with_no_more_connections_is_told_and_served_when_there_are_some(
    trouble: Trouble,
) -> None:
    role = trouble.role().grant_all()
    trouble.admin.execute(f"ALTER ROLE {role.name} CONNECTION LIMIT 2".encode())
    with psycopg.connect(role.url), psycopg.connect(role.url), opened(role.url) as store:
        with pytest.raises(StoreUnavailable, match=r"too many connections .*lower pool=") as error:
            make(store)
        assert "\n" not in str(error.value)
    eventually(lambda: not trouble.sessions(role.name), within=20)
    with opened(role.url) as store:
        assert make(store).type == "mail"


def test_a_full_disk_is_told_and_nothing_is_done(trouble: Trouble) -> None:
    """Raised by a trigger; what the client gets is the same."""
    trouble.run(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;"
        "CREATE TRIGGER full_disk BEFORE INSERT ON yaoki.jobs EXECUTE FUNCTION full_disk()"
    )
    with opened(trouble.url) as store:
        for _ in range(20):
            with pytest.raises(StoreUnavailable, match=r"could not extend file; .*disk is full"):
                make(store)
        trouble.run("DROP TRIGGER full_disk ON yaoki.jobs")
        assert make(store).type == "mail"
        assert trouble.run("SELECT count(*) FROM yaoki.jobs") == [(1,)]


def test_a_statement_that_takes_longer_than_the_role_may(trouble: Trouble) -> None:
    role = trouble.role(statement_timeout="'100ms'").grant_all()
    with opened(role.url) as store, locked(trouble, "yaoki.jobs"):
        began = time.monotonic()
        with pytest.raises(StoreBusy, match=r"statement timeout; .*nothing was changed") as error:
            make(store)
        assert time.monotonic() - began < 5
        assert "\n" not in str(error.value)
    with opened(role.url) as store:
        assert make(store).type == "mail"


def test_limits_that_were_lifted_hold_no_longer_although_connections_are_kept(
    trouble: Trouble,
) -> None:
    role = trouble.role(statement_timeout="'100ms'").grant_all()
    with opened(role.url) as store:
        with locked(trouble, "yaoki.jobs"), pytest.raises(StoreBusy):
            make(store)
        role.reset()
        with locked(trouble, "yaoki.jobs", seconds=0.5):
            assert make(store).type == "mail"


def test_a_lock_that_is_not_got_in_time(trouble: Trouble) -> None:
    role = trouble.role(lock_timeout="'100ms'").grant_all()
    with opened(role.url) as store:
        with (
            locked(trouble, "yaoki.jobs"),
            pytest.raises(StoreBusy, match=r"lock timeout; .*has it locked; nothing was") as error,
        ):
            make(store)
        assert "\n" not in str(error.value)
        assert make(store).type == "mail"
        assert trouble.run("SELECT count(*) FROM yaoki.jobs") == [(1,)]


@contextmanager
def locked(trouble: Trouble, table: str, seconds: float = math.inf) -> Iterator[None]:
    """Nobody else can use a table, until the block or the time is over."""
    connection = psycopg.connect(trouble.url)
    connection.execute(f"LOCK TABLE {table}".encode())
    timer = threading.Timer(min(seconds, threading.TIMEOUT_MAX), connection.rollback)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        connection.close()


def test_a_transaction_that_was_idle_for_longer_than_the_role_may(trouble: Trouble) -> None:
    role = trouble.role(idle_in_transaction_session_timeout="'50ms'").grant_all()
    with opened(role.url) as store:
        job = make(store)
        for _ in range(3):
            with pytest.raises(
                StoreUnavailable, match=r"idle.*nothing was changed.*raise"
            ) as error:
                store.run(
                    Asked(
                        f"UPDATE yaoki.jobs SET priority = 7 WHERE id = {job.id}",
                        "SELECT 1::bigint",
                        then=lambda place: time.sleep(0.3),
                    )
                )
            assert "\n" not in str(error.value)
        assert read(store, job).priority == 0


def test_a_session_that_was_idle_for_longer_than_the_role_may_is_not_used_again(
    trouble: Trouble,
) -> None:
    role = trouble.role(idle_session_timeout="'250ms'").grant_all()
    with opened(role.url) as store:
        for _ in range(3):
            make(store)
            eventually(lambda: not trouble.sessions(role.name), within=20)


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_whatever_isolation_a_role_has_of_two_migrators_one_does_it(
    trouble: Trouble, isolation: str
) -> None:
    role = trouble.role(default_transaction_isolation=f"'{isolation}'")
    trouble.run(f"GRANT CREATE ON DATABASE {trouble.name} TO {role.name}")
    for number in range(4):
        url = f"{role.url}?schema=s{number}"
        barrier, applied = threading.Barrier(3), []

        def migrate(url: str, barrier: threading.Barrier, applied: list[str]) -> None:
            with opened(url) as store:
                barrier.wait(20)
                applied += store.migrate()

        threads = [threading.Thread(target=migrate, args=(url, barrier, applied)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert len(applied) == len(set(applied)) > 0


def test_no_job_is_too_big_to_be_told_of(trouble: Trouble) -> None:
    """A notification holds 7,999 bytes; ours holds nothing (fault 57)."""
    app = Yaoki(trouble.url)
    app.migrate()
    bell = app.store.bell()
    eventually(lambda: bell.wait(0.1))
    for size in (*range(7_960, 8_010, 7), 1_000_000):
        app.enqueue("mail", {"text": "x" * size}, queue="é" * 100)
        with psycopg.connect(trouble.url) as mine, app.on(mine):
            app.enqueue("mail", {"text": "x" * size}, queue="é" * 100)
        assert bell.wait(5)
    bell.close()
    app.close()


# The settings of a role that change what SQL means


@pytest.mark.parametrize(
    "settings",
    [
        {"search_path": "nowhere"},
        {"search_path": "''"},
        {"timezone": "'Asia/Tokyo'", "datestyle": "'SQL, DMY'", "intervalstyle": "'iso_8601'"},
        {"client_encoding": "'LATIN1'"},
        {"standard_conforming_strings": "off", "escape_string_warning": "off"},
        {"bytea_output": "'escape'", "extra_float_digits": "-15"},
        {"client_min_messages": "'debug1'"},
        {"default_transaction_deferrable": "on"},
        {"synchronous_commit": "off"},
        {"plan_cache_mode": "'force_generic_plan'"},
        {"plan_cache_mode": "'force_custom_plan'", "jit_above_cost": "0"},
        {"transform_null_equals": "on"},
    ],
    ids=lambda settings: ",".join(settings),
)
def test_a_role_with_settings_of_its_own_sees_no_difference(
    trouble: Trouble, settings: dict[str, str]
) -> None:
    app = Yaoki(trouble.role(**settings).grant_all().url)
    payload = {"to": "舞 😀 \\ ' \"", "at": 1.5, "n": 2**70}
    for _ in range(4):
        job = app.enqueue("mail", payload, delay=0, idempotency_key="\\'é")
        assert app.get(job).payload == payload
    [claimed] = app.claim("w1")
    app.fail(claimed, "no \\ answer 舞", retry_in=0)
    [again] = app.claim("w1")
    assert (again.id, again.attempt, again.payload) == (job.id, 2, payload)
    app.complete(again, {"sent": "舞"})
    assert [job.payload for job in app.enqueue_many("mail", [payload] * 3)] == [payload] * 3
    ended = app.get(job)
    assert (ended.result, ended.errors[-1].error) == ({"sent": "舞"}, "no \\ answer 舞")
    assert abs(time.time() - ended.finished_at.timestamp()) < 60
    app.close()
