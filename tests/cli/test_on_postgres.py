"""The program and a PostgreSQL database: made ready, not there, refused, and never its password."""

import json
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.cli.golden import Golden
from tests.cli.program import Program, Ran
from tests.support.databases import ask
from tests.support.postgres import fresh_database, with_database
from yaoki import Yaoki

SCHEMAS = """
SELECT nspname FROM pg_namespace
WHERE nspname NOT LIKE 'pg\\_%' AND nspname NOT IN ('information_schema', 'public')
"""
TABLES = "SELECT relname FROM pg_class WHERE relnamespace = 'yaoki'::regnamespace AND relkind = 'r'"

READING = (
    ("jobs",),
    ("job", "1"),
    ("watch", "1"),
    ("retry", "1"),
    ("cancel", "1"),
    ("discard", "1"),
    ("queues",),
    ("pause", "mail"),
    ("resume", "mail"),
    ("workers",),
    ("timetable", "mail"),
)
WORKER = ("--app", "shop:app", "worker", "--until-empty")
MAKING = (("migrate",), ("enqueue", "mail", '{"to": "a"}'), WORKER)


@pytest.fixture
def empty(yaoki: Program) -> Iterator[str]:
    """The program's default database, in which nothing has been made."""
    with fresh_database(migrated=False) as url:
        yaoki.always["YAOKI_URL"] = url
        yield url


def told(yaoki: Program, *rans: Ran) -> str:
    """What was said, as golden files keep it."""
    return "".join(ran.told() for ran in rans).replace(yaoki.url, "postgresql://…")


def rows(url: str, statement: str) -> list[object]:
    app = Yaoki(url)
    try:
        return sorted(name for (name,) in ask(app.store, statement))
    finally:
        app.close()


def assert_one_line(ran: Ran, code: int = 1) -> None:
    said = [line for line in ran.err.splitlines() if line != "the shop is imported"]
    assert (ran.code, ran.out, len(said)) == (code, "", 1), ran.told()
    assert said[0].startswith("yaoki: ")
    assert "unexpected" not in said[0]


def test_the_tables_are_made_and_the_second_time_nothing_is_done(
    yaoki: Program, empty: str, golden: Golden
) -> None:
    first, second = yaoki("migrate"), yaoki("migrate")

    assert (first.code, second.code) == (0, 0)
    golden("migrate-postgres", told(yaoki, first, second))


def test_the_tables_are_made_in_the_schema_of_the_url(yaoki: Program, empty: str) -> None:
    ran = yaoki("--url", f"{empty}?schema=shop-jobs", "migrate")

    assert ran.code == 0
    assert rows(empty, SCHEMAS) == ["shop-jobs"]


def test_the_table_of_once_is_made_alone_in_another_database(
    yaoki: Program, empty: str, golden: Golden
) -> None:
    first, second = yaoki("migrate", "--once", empty), yaoki("migrate", "--once", empty)

    assert rows(empty, SCHEMAS) == ["yaoki"]
    assert rows(empty, TABLES) == ["once"]
    golden("migrate-once-postgres", told(yaoki, first, second))


def test_a_database_with_only_the_once_table_can_become_a_queue(yaoki: Program, empty: str) -> None:
    yaoki("migrate", "--once", empty)
    before = yaoki("jobs")

    made = yaoki("migrate")
    after = yaoki("jobs")

    assert (before.code, made.code, after.code) == (1, 0, 0)
    assert made.err == ""


def test_the_table_of_once_is_always_in_the_schema_where_once_looks(
    yaoki: Program, empty: str
) -> None:
    ran = yaoki("migrate", "--once", f"{empty}?schema=effects")

    assert_one_line(ran, code=2)
    assert rows(empty, SCHEMAS) == []


@pytest.mark.parametrize("command", READING, ids=lambda command: command[0])
def test_reading_makes_no_tables(yaoki: Program, empty: str, command: tuple[str, ...]) -> None:
    ran = yaoki(*command)

    assert_one_line(ran)
    assert f"yaoki --url {empty} migrate" in ran.err
    assert rows(empty, SCHEMAS) == []


@pytest.mark.parametrize("command", [*READING, *MAKING, ("migrate", "--once")], ids=" ".join)
def test_a_server_or_database_that_is_not_there_is_one_line(
    yaoki: Program, postgres_url: str, command: tuple[str, ...]
) -> None:
    nowhere = ["postgresql://shop:geheim@127.0.0.1:1/shop"]
    nowhere += [with_password(with_database(postgres_url, "no_such_database"))]
    for url in nowhere:
        yaoki.always["YAOKI_URL"] = url
        ran = yaoki(*command, *([url] if command[-1] == "--once" else []))

        assert_one_line(ran)
        assert "geheim" not in ran.err
        assert "***" in ran.err


def with_password(url: str) -> str:
    """The same place, for a server that trusts whatever password it is told."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.replace("@", ":geheim@", 1)).geturl()


def test_a_password_is_said_nowhere(yaoki: Program, postgres_url: str) -> None:
    yaoki.always["YAOKI_URL"] = url = with_password(postgres_url)
    made = [yaoki(*command) for command in (*MAKING, ("migrate", "--once", url))]
    made.append(yaoki(*WORKER, "--log-level", "debug"))
    made.append(yaoki("enqueue", "fax"))
    asked = [yaoki(*command) for command in (*READING, ("job", "2"), ("retry", "2"))]
    asked.append(yaoki("--url", f"{url}?application_name=other", "--app", "shop:app", "jobs"))

    assert [ran.code for ran in made] == [0] * 6
    assert [ran for ran in asked if "unexpected" in ran.err] == []
    assert [ran for ran in (*made, *asked) if "geheim" in ran.out + ran.err] == []


def test_an_app_on_another_database_than_the_url_is_refused_without_passwords(
    yaoki: Program,
) -> None:
    (yaoki.folder / "tied.py").write_text(
        "import yaoki\napp = yaoki.Yaoki('postgresql://a:geheim@127.0.0.1:1/one')\n"
    )

    ran = yaoki("--app", "tied:app", "--url", "postgresql://b:geheim@127.0.0.1:1/two", "jobs")

    assert_one_line(ran, code=2)
    assert "postgresql://a:***@127.0.0.1:1/one" in ran.err
    assert "postgresql://b:***@127.0.0.1:1/two" in ran.err
    assert "geheim" not in ran.err


def test_tables_of_a_newer_yaoki_are_refused_in_one_line(yaoki: Program, postgres_url: str) -> None:
    yaoki.always["YAOKI_URL"] = postgres_url
    rows_app = Yaoki(postgres_url)
    later = "INSERT INTO yaoki.migrations (number, name) VALUES (9999, 'later')"
    ask(rows_app.store, later)
    rows_app.close()

    for command in (("jobs",), ("migrate",), ("enqueue", "mail")):
        ran = yaoki(*command)
        assert_one_line(ran)
        assert "newer yaoki" in ran.err


def test_without_psycopg_it_is_said_what_to_install(yaoki: Program) -> None:
    hidden = yaoki.folder / "hidden"
    hidden.mkdir()
    (hidden / "psycopg.py").write_text("raise ImportError('there is no psycopg')\n")

    ran = yaoki("--url", "postgresql://a:geheim@127.0.0.1:1/one", "jobs", env=_path(hidden))
    file = yaoki("--url", "sqlite:///jobs.db", "enqueue", "mail", env=_path(hidden))

    assert_one_line(ran)
    assert "pip install" in ran.err
    assert "geheim" not in ran.err
    assert (file.code, file.out) == (0, "1\n")


def _path(folder: object) -> dict[str, str]:
    return {"PYTHONPATH": str(folder)}


def test_both_stores_list_the_same_in_json(yaoki: Program, postgres_url: str) -> None:
    payload = '{"n": 123456789012345678901234567890, "text": "e\\u0301 \\ud83d\\ude00 \\u05d0"}'
    listed = []
    for url in ("sqlite:///here.db", postgres_url):
        at = ("--run-at", "2031-12-24T18:00+09:00")
        yaoki("--url", url, "enqueue", "mail", payload, "--tag", "新規", *at)
        [job] = json.loads(yaoki("--url", url, "jobs", "--json").out)["jobs"]
        listed.append({name: job[name] for name in job.keys() - {"created_at", "updated_at"}})

    assert listed[0] == listed[1]
