"""URLs of PostgreSQL stores: what libpq is given, what is ours, and that no password is shown."""

import os
import traceback
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from servers.postgres import Server
from yaoki import InvalidOption, StoreUnavailable, Yaoki
from yaoki.store import open_store, without_password
from yaoki.store.postgres.connection import options
from yaoki.store.postgres.place import Place, parse

SECRET = "s3cr3t"


def libpq(url: str) -> dict[str, object]:
    """What libpq understands of the URL of a store."""
    return {name: value for name, value in conninfo_to_dict(parse(url).conninfo).items() if value}


# What is libpq's


@pytest.mark.parametrize(
    ("url", "understood"),
    {
        "postgresql://h/jobs": {"host": "h", "dbname": "jobs"},
        "postgres://h/jobs": {"host": "h", "dbname": "jobs"},
        "postgresql://u:p%40s%2Fs%3A%25%23@h:5433/jobs": {
            "user": "u",
            "password": "p@s/s:%#",
            "host": "h",
            "port": "5433",
            "dbname": "jobs",
        },
        "postgresql://ü:pä[s]s=w rd+;,|'\"\\$!*()@h/jobs": {
            "user": "ü",
            "password": "pä[s]s=w rd+;,|'\"\\$!*()",
            "host": "h",
            "dbname": "jobs",
        },
        "postgresql://u:a:b:c@h/jobs": {
            "user": "u",
            "password": "a:b:c",
            "host": "h",
            "dbname": "jobs",
        },
        "postgresql://u:@h/jobs": {"user": "u", "host": "h", "dbname": "jobs"},
        "postgresql:///jobs": {"dbname": "jobs"},
        "postgresql:///jobs?host=/var/run/postgresql": {
            "dbname": "jobs",
            "host": "/var/run/postgresql",
        },
        "postgresql://%2Fvar%2Frun%2Fpostgresql/jobs": {
            "dbname": "jobs",
            "host": "/var/run/postgresql",
        },
        "postgresql://": {},
        "postgresql://h": {"host": "h"},
        "postgresql://h/": {"host": "h"},
        "postgresql://[::1]:5433/jobs": {"host": "::1", "port": "5433", "dbname": "jobs"},
        "postgresql://u@[fe80::1%25eth0]/jobs": {
            "user": "u",
            "host": "fe80::1%eth0",
            "dbname": "jobs",
        },
        "postgresql://a:1,b,[::1]:3/jobs": {"host": "a,b,::1", "port": "1,,3", "dbname": "jobs"},
        "postgresql://h/the%20jobs": {"host": "h", "dbname": "the jobs"},
        "postgresql://h/仕事": {"host": "h", "dbname": "仕事"},
        "postgresql://h/jobs?sslmode=verify-full&sslrootcert=/etc/ca.pem": {
            "host": "h",
            "dbname": "jobs",
            "sslmode": "verify-full",
            "sslrootcert": "/etc/ca.pem",
        },
        "postgresql://h/jobs?options=-c%20geqo%3Doff": {
            "host": "h",
            "dbname": "jobs",
            "options": "-c geqo=off",
        },
        "postgresql://h/jobs?options=-c geqo=off": {
            "host": "h",
            "dbname": "jobs",
            "options": "-c geqo=off",
        },
        "postgresql://h/jobs?password=a+b%2Bc&user=me": {
            "host": "h",
            "dbname": "jobs",
            "password": "a+b+c",
            "user": "me",
        },
        "postgresql://?service=jobs": {"service": "jobs"},
        " postgresql://h/jobs\n": {"host": "h", "dbname": "jobs"},
    }.items(),
)
def test_what_is_not_ours_reaches_libpq_as_it_was_meant(
    url: str, understood: dict[str, str]
) -> None:
    assert libpq(url) == understood


def test_what_is_ours_does_not_reach_libpq() -> None:
    url = (
        "postgresql://h/jobs?schema=s&sslmode=require&wake=poll&pool=3&prepared=off"
        "&durability=normal&listen=postgresql://direct/jobs&application_name=shop"
    )

    assert libpq(url) == {
        "host": "h",
        "dbname": "jobs",
        "sslmode": "require",
        "application_name": "shop",
    }
    place = parse(url)
    assert (place.schema, place.wake, place.pool) == ("s", "poll", 3)
    assert (place.prepared, place.durability) == ("off", "normal")


def test_what_is_not_said_has_a_default() -> None:
    place = parse("postgresql://h/jobs")

    assert (place.schema, place.wake, place.listen, place.pool) == ("yaoki", "notify", None, 10)
    assert (place.prepared, place.durability) == ("auto", "full")


def test_silence_of_the_network_is_noticed_unless_the_url_says_how() -> None:
    assert options("postgresql://h/jobs")["connect_timeout"] == 10
    assert options("postgresql://h/jobs")["keepalives_idle"] == 15
    assert "connect_timeout" not in options("postgresql://h/jobs?connect_timeout=3")


def test_of_several_hosts_the_one_that_writes_is_wanted() -> None:
    assert options("postgresql://a,b/jobs")["target_session_attrs"] == "read-write"
    assert "target_session_attrs" not in options("postgresql://a/jobs")
    assert "target_session_attrs" not in options("postgresql://a,b/jobs?target_session_attrs=any")


def test_texts_travel_as_utf_8_whatever_the_url_says() -> None:
    assert options("postgresql://h/jobs?client_encoding=LATIN1")["client_encoding"] == "UTF8"


def test_settings_for_plans_are_added_to_those_of_the_url_and_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGOPTIONS", "-c geqo=on")

    added = options("postgresql://h/jobs", plans=True)["options"]
    assert added.startswith("-c geqo=on -c ")
    added = options("postgresql://h/jobs?options=-c%20work_mem%3D8MB", plans=True)["options"]
    assert added.startswith("-c work_mem=8MB -c ")


# The URL in listen=


@pytest.mark.parametrize(
    ("value", "understood"),
    {
        "postgresql%3A%2F%2Fu%3Ap%2540s@direct%3A5432%2Fjobs%3Fsslmode%3Drequire": {
            "user": "u",
            "password": "p@s",
            "host": "direct",
            "port": "5432",
            "dbname": "jobs",
            "sslmode": "require",
        },
        "postgresql://u:p%40s@direct:5432/jobs": {
            "user": "u",
            "password": "p@s",
            "host": "direct",
            "port": "5432",
            "dbname": "jobs",
        },
        "postgresql://direct/jobs?sslmode=require": {
            "host": "direct",
            "dbname": "jobs",
            "sslmode": "require",
        },
        "postgresql:///jobs?host=/tmp": {"dbname": "jobs", "host": "/tmp"},
    }.items(),
)
def test_the_url_for_listening_may_be_percent_encoded_or_not(
    value: str, understood: dict[str, str]
) -> None:
    place = parse(f"postgresql://pooler/jobs?listen={value}&pool=4")

    assert place.listen is not None
    assert conninfo_to_dict(place.listen) == understood
    assert place.pool == 4


@pytest.mark.parametrize(
    "value",
    ["direct", "", "http://direct/jobs", "postgresql://direct/jobs?schema=s", "sqlite:///a"],
)
def test_a_url_for_listening_that_cannot_be_is_refused(value: str) -> None:
    refused(f"postgresql://pooler/jobs?listen={value}")


# What cannot be


def refused(url: str) -> str:
    """What is said about a URL that is refused before anything is opened."""
    with pytest.raises(InvalidOption) as error:
        open_store(url)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:jobs",
        "postgresql:/jobs",
        "postgres:",
        "postgresql+psycopg://h/jobs",
        "POSTGRESQL://h/jobs",
        "postgresql://h:port/jobs",
        "postgresql://h:-1/jobs",
        "postgresql://[::1/jobs",
        "postgresql://::1/jobs",
        "postgresql://h/jobs%00",
        "postgresql://h/jobs\0",
        "postgresql://h/jo\nbs",
        "postgresql://h/jobs?schema",
        "postgresql://h/jobs?=x",
        "postgresql://h/jobs#part",
        "postgresql://h/jobs?schema=%ff",
        "postgresql://h/j\udcffobs",
    ],
)
def test_what_is_no_url_is_refused_in_one_line(url: str) -> None:
    refused(url)


@pytest.mark.parametrize("name", ["foo", "Schema", "poolsize", "busy_timeout"])
def test_a_parameter_that_nobody_knows_is_named(name: str) -> None:
    said = refused(f"postgresql://h/jobs?{name}=1")

    assert f"'{name}'" in said
    assert "durability" in said


@pytest.mark.parametrize(
    ("option", "says"),
    {
        "wake=never": "wake=notify and wake=poll",
        "wake=": "wake=notify and wake=poll",
        "prepared=yes": "prepared=auto and prepared=on and prepared=off",
        "durability=none": "durability=full and durability=normal",
        "pool=1": "from 2 to 9999",
        "pool=0": "from 2 to 9999",
        "pool=-3": "from 2 to 9999",
        "pool=1.5": "from 2 to 9999",
        "pool=10000": "from 2 to 9999",
        "pool=٣": "from 2 to 9999",
        "pool=": "from 2 to 9999",
        "schema=": "letters, digits",
        "schema=1a": "letters, digits",
        "schema=a.b": "letters, digits",
        "schema=a%20b": "letters, digits",
        'schema=b"x': "letters, digits",
        "schema=a%3Bdrop": "letters, digits",
        "schema=a%00": "%00",
        f"schema={'a' * 64}": "63 bytes",
        f"schema={'ä' * 32}": "63 bytes",
        "schema=pg_jobs": "PostgreSQL's own",
        "schema=information_schema": "PostgreSQL's own",
    }.items(),
)
def test_a_wrong_value_of_ours_is_refused_with_those_that_can_be(option: str, says: str) -> None:
    assert says in refused(f"postgresql://h/jobs?{option}")


@pytest.mark.parametrize("schema", ["a", "_a", "Jobs", "job-s", "a$1", "public", "仕事", "a" * 63])
def test_a_schema_may_have_any_name_that_needs_no_care(schema: str) -> None:
    assert parse(f"postgresql://h/jobs?schema={schema}").schema == schema


@pytest.mark.parametrize("schema", ["Jobs", "job-s", "a$1", "仕事", "a" * 63, "select", "public"])
def test_jobs_live_in_a_schema_of_any_such_name(postgres_url: str, schema: str) -> None:
    app = Yaoki(f"{postgres_url}?schema={schema}")
    app.migrate()
    job = app.enqueue("mail", {"to": "mai"})

    [claimed] = app.claim("w1")
    app.complete(claimed)
    assert app.get(job).status == "completed"
    app.close()


def test_two_schemas_of_one_database_know_nothing_of_each_other(postgres_url: str) -> None:
    one, other = Yaoki(f"{postgres_url}?schema=one"), Yaoki(f"{postgres_url}?schema=other")
    one.enqueue("mail", idempotency_key="k")

    assert other.claim("w1") == []
    assert other.enqueue("image", idempotency_key="k").created
    assert [job.type for job in one.jobs()] == ["mail"]
    one.close()
    other.close()


# Passwords are never shown


URLS_WITH_SECRETS = [
    f"postgresql://u:{SECRET}@127.0.0.1:1/jobs",
    f"postgresql://u:{SECRET}@nowhere.invalid/jobs",
    f"postgresql://u:{SECRET}@127.0.0.1:1,127.0.0.1:2/jobs",
    f"postgresql://u@127.0.0.1:1/jobs?password={SECRET}",
    f"postgresql://127.0.0.1:1/jobs?user=u&password={SECRET}&sslpassword={SECRET}",
    f"postgresql://u:{SECRET}@127.0.0.1:1/jobs?sslmode=nonsense",
    f"postgresql://u:{SECRET}@127.0.0.1:99999/jobs",
    f"postgresql://u:{SECRET}@127.0.0.1:1/jobs?connect_timeout=soon",
    f"postgresql://u:{SECRET}@127.0.0.1:1/jobs?service=none",
    f"postgresql://u@127.0.0.1:1/jobs?listen=postgresql://u:{SECRET}@127.0.0.1:1/jobs",
    f"postgresql://u:{SECRET}@/jobs?host=/nowhere",
]

MISWRITTEN = [
    f"postgresql://u:p@{SECRET}@h/jobs",
    f"postgresql://u:p/{SECRET}@h/jobs",
    f"postgresql://u:12/{SECRET}@h/jobs",
    f"postgresql://u:p?{SECRET}@h/jobs",
    f"postgresql://u:12?{SECRET}@h/jobs",
    f"postgresql://u:p#{SECRET}@h/jobs",
    f"postgresql://u:{SECRET}%zz@h/jobs",
    f"postgresql://u:{SECRET}%@h/jobs",
    f"postgresql://u:{SECRET}%00@h/jobs",
    f"postgresql://u:{SECRET}",
    f"postgresql://u:{SECRET}/jobs",
    f"postgresql://u:{SECRET}@[h/jobs",
    f"postgresql://u:{SECRET}@h:port/jobs",
    f"postgresql://u:{SECRET}@h/jobs?foo=bar",
    f"postgresql://u@h/jobs?password={SECRET}%zz",
    f"postgresql://u@h/jobs?password={SECRET}&pool=1",
    f"postgresql://u@h/jobs?listen=postgresql://u:p@{SECRET}@h/jobs",
    f"postgresql://u:{SECRET}\udcff@h/jobs",
    f"postgresql://u:{SECRET}\n@h/jobs",
]


def all_that_is_told(error: BaseException) -> str:
    """The message, those of its causes, and what a traceback shows."""
    return "".join(traceback.format_exception(error)) + repr(error)


@pytest.mark.parametrize("url", URLS_WITH_SECRETS)
def test_no_password_is_told_when_the_server_cannot_be_reached(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    app = Yaoki(url)

    with pytest.raises(StoreUnavailable) as error:
        app.enqueue("mail")

    assert "\n" not in str(error.value)
    assert SECRET not in all_that_is_told(error.value)
    assert SECRET not in caplog.text
    assert SECRET not in f"{app!r} {app.store!r} {parse(url)!r}"


@pytest.mark.parametrize("url", MISWRITTEN)
def test_no_part_of_a_password_is_told_when_the_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidOption) as error:
        Yaoki(url)

    assert SECRET not in all_that_is_told(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("url", MISWRITTEN + URLS_WITH_SECRETS)
def test_a_url_is_shown_without_its_passwords(url: str) -> None:
    assert SECRET not in without_password(url)


def test_a_url_is_shown_with_everything_else() -> None:
    url = f"postgresql://u:{SECRET}@a:1,b/jobs?schema=s&password={SECRET}&sslmode=require"

    assert without_password(url) == (
        "postgresql://u:***@a:1,b/jobs?schema=s&password=***&sslmode=require"
    )
    assert without_password("sqlite:///jobs.db") == "sqlite:///jobs.db"


def test_a_place_is_shown_without_its_passwords() -> None:
    url = f"postgresql://u:{SECRET}@h/jobs?listen=postgresql://u:{SECRET}@direct/jobs"

    place = parse(url)

    assert isinstance(place, Place)
    assert SECRET not in repr(place)
    assert place.shown == "postgresql://u:***@h/jobs"


# Ways to the server that only show when it is there


@pytest.fixture(scope="module")
def server() -> Server:
    made = Server(fsync="off")
    with psycopg.connect(made.url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE mai LOGIN SUPERUSER PASSWORD '{SECRET}@/:%#?'")
    yield made
    made.delete()


def test_a_unix_socket_is_a_host(server: Server) -> None:
    for url in (
        f"postgresql://postgres@/postgres?host={server.folder}&port={server.port}&schema=a",
        f"postgresql://postgres@{str(server.folder).replace('/', '%2F')}:{server.port}/postgres",
    ):
        app = Yaoki(url)
        assert app.enqueue("mail").id == 1
        app.close()


def test_of_several_hosts_one_that_answers_is_used(server: Server) -> None:
    app = Yaoki(f"postgresql://postgres@127.0.0.1:1,127.0.0.1:{server.port}/postgres?schema=b")

    assert app.enqueue("mail").id == 1
    app.close()


def test_a_service_says_where(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    services = tmp_path / "services"
    services.write_text(
        f"[jobs]\nhost=127.0.0.1\nport={server.port}\nuser=postgres\ndbname=postgres\n"
    )
    monkeypatch.setenv("PGSERVICEFILE", str(services))
    app = Yaoki("postgresql:///?service=jobs&schema=c")

    assert app.enqueue("mail").id == 1
    app.close()


def test_what_the_url_leaves_out_is_taken_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"HOST": "127.0.0.1", "USER": "postgres", "DATABASE": "postgres"}.items():
        monkeypatch.setenv(f"PG{name}", value)
    monkeypatch.setenv("PGPORT", str(server.port))
    app = Yaoki("postgresql://?schema=d")

    assert app.enqueue("mail").id == 1
    app.close()


@pytest.fixture
def with_passwords(server: Server) -> None:
    """From now on the role mai needs its password."""
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"host all mai 127.0.0.1/32 scram-sha-256\n{before}")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("SELECT pg_reload_conf()")
        yield
        rules.write_text(before)
        connection.execute("SELECT pg_reload_conf()")


def test_a_password_of_nothing_but_trouble_is_understood(
    server: Server, with_passwords: None
) -> None:
    app = Yaoki(
        f"postgresql://mai:{SECRET}%40%2F%3A%25%23%3F@127.0.0.1:{server.port}/postgres?schema=e"
    )

    assert app.enqueue("mail").id == 1
    app.close()


def test_a_wrong_password_is_told_without_being_told(
    server: Server, with_passwords: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    app = Yaoki(f"postgresql://mai:{SECRET}@127.0.0.1:{server.port}/postgres?schema=e")

    with pytest.raises(
        StoreUnavailable, match=r"password authentication failed.*check user"
    ) as told:
        app.enqueue("mail")

    assert "\n" not in str(told.value)
    assert SECRET not in all_that_is_told(told.value)
    assert SECRET not in caplog.text


def test_a_missing_password_is_told(server: Server, with_passwords: None) -> None:
    assert "PGPASSWORD" not in os.environ
    app = Yaoki(f"postgresql://mai@127.0.0.1:{server.port}/postgres?schema=e")

    with pytest.raises(StoreUnavailable, match=r"no password supplied.*check user"):
        app.enqueue("mail")
