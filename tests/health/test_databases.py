"""What is found of the database itself, and that nothing in it is changed by looking."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests.support.clocks import Clock
from tests.support.databases import ask, locked, postgres_connection
from tests.support.postgres import for_libpq
from yaoki import Check, Health, Yaoki
from yaoki.store.migrations import migrations
from yaoki.store.sqlite import examine as file
from yaoki.store.sqlite import place as places

NEWEST = migrations("sqlite")[-1].number


def check(health: Health, code: str) -> Check:
    [found] = [one for one in health.checks if one.code == code]
    return found


def problems(app: Yaoki) -> list[str]:
    return [one.code for one in app.health().problems]


@pytest.fixture
def app(any_url: str) -> Iterator[Yaoki]:
    made = Yaoki(any_url)
    yield made
    made.close()


@pytest.fixture
def on_sqlite(url: str) -> Iterator[Yaoki]:
    made = Yaoki(url)
    made.migrate()
    yield made
    made.close()


@pytest.fixture
def on_postgres(postgres_url: str) -> Iterator[Yaoki]:
    made = Yaoki(postgres_url)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("number", "advice"), [(1, "yaoki migrate"), (NEWEST + 97, "upgrade yaoki")]
)
def test_tables_of_another_schema_are_a_problem_and_left_as_they_are(
    app: Yaoki, number: int, advice: str
) -> None:
    app.migrate()
    app.close()
    ask(app.store, "DELETE FROM yaoki.migrations WHERE number > 1")
    ask(app.store, "UPDATE yaoki.migrations SET number = :number", {"number": number})

    health = app.health()

    assert [one.code for one in health.problems] == ["tables"]
    assert advice in check(health, "tables").advice
    assert ask(app.store, "SELECT number FROM yaoki.migrations") == [(number,)]


def test_a_database_without_our_tables_stays_so(on_postgres: Yaoki, tmp_path: Path) -> None:
    elsewhere = Yaoki(f"{on_postgres.url}?schema=other")
    empty = tmp_path / "empty.db"
    sqlite3.connect(empty).close()
    empty.touch()

    assert problems(elsewhere) == problems(elsewhere) == ["tables"]
    assert problems(Yaoki(f"sqlite:///{empty}")) == ["tables"]
    assert empty.stat().st_size == 0


def test_what_cannot_be_reached_is_a_problem_and_no_exception(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("something else " * 100)
    urls = [
        f"sqlite:///{tmp_path}/none.db",
        f"sqlite:///{tmp_path}/no/folder.db",
        f"sqlite:///{tmp_path}",
        f"sqlite:///{tmp_path}/text.db",
        "postgresql://me:secret@127.0.0.1:1/shop",
    ]

    found = [Yaoki(url).health() for url in urls]

    assert [[one.code for one in health.problems] for health in found] == [["database"]] * 5
    assert not [health for health in found if "secret" in str(health.to_dict())]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["text.db"]


def test_a_file_that_somebody_keeps_locked_is_a_problem(
    on_sqlite: Yaoki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "LOCK_PATIENCE", 0.2)
    with locked(on_sqlite.store):
        held = on_sqlite.health()

    assert [one.code for one in held.problems] == ["write-lock"]
    assert on_sqlite.health().ok


def test_a_private_database_is_a_warning() -> None:
    app = Yaoki("sqlite:///:memory:")

    assert check(app.health(), "database").level == "warning"
    app.close()


def test_a_log_that_grows_and_a_disk_that_is_full_are_told(
    on_sqlite: Yaoki, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_sqlite.enqueue("mail")
    monkeypatch.setattr(file, "BIG_LOG", 100)
    monkeypatch.setattr(file, "LITTLE_SPACE", 2**80)
    little = on_sqlite.health()
    monkeypatch.setattr(file, "NO_SPACE", 2**80)

    assert check(little, "wal").level == "warning"
    assert check(little, "disk").level == "warning"
    assert problems(on_sqlite) == ["disk"]


def test_a_file_in_another_mode_is_told_and_left_in_it(on_sqlite: Yaoki, url: str) -> None:
    on_sqlite.close()
    path = url.removeprefix("sqlite:///")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        found = file.examine(places.parse(url), Path(path))
        [mode] = connection.execute("PRAGMA journal_mode").fetchone()

    assert [one.code for one in found.checks if one.level == "warning" and one.code == "wal"]
    assert mode == "delete"


def test_a_file_on_a_network_file_system_is_a_problem(
    on_sqlite: Yaoki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "_mounts", lambda: "server:/ / nfs4 rw 0 0\n")

    assert problems(on_sqlite) == ["database"]


def test_a_server_that_only_reads_is_a_problem(on_postgres: Yaoki) -> None:
    url = f"{on_postgres.url}?options=-cdefault_transaction_read_only=on"

    assert problems(Yaoki(url)) == ["database"]


def test_a_role_that_lacks_a_right_is_told_which(on_postgres: Yaoki) -> None:
    on_postgres.migrate()
    for statement in (
        "CREATE ROLE reader LOGIN",
        "GRANT USAGE ON SCHEMA yaoki TO reader",
        "GRANT SELECT ON ALL TABLES IN SCHEMA yaoki TO reader",
        "GRANT INSERT, UPDATE, DELETE ON yaoki.jobs TO reader",
    ):
        ask(on_postgres.store, statement)
    try:
        health = Yaoki(f"{on_postgres.url}?options=-crole=reader").health()
        assert [one.code for one in health.problems] == ["rights"]
        assert "INSERT on attempts" in check(health, "rights").message
        assert "jobs" not in check(health, "rights").message
    finally:
        ask(on_postgres.store, "DROP OWNED BY reader")
        ask(on_postgres.store, "DROP ROLE reader")


def test_a_transaction_that_is_open_for_long_is_named(
    on_postgres: Yaoki, monkeypatch: pytest.MonkeyPatch
) -> None:
    from yaoki.store.postgres import examine as server

    monkeypatch.setattr(server, "LONG_TRANSACTION", 0.0)
    with psycopg.connect(for_libpq(on_postgres.url), application_name="report") as connection:
        connection.execute("SELECT 1")
        health = on_postgres.health()

    assert check(health, "transactions").level == "warning"
    assert "(report, idle in transaction)" in check(health, "transactions").message


def test_notifications_are_heard_or_it_is_said_that_they_are_not(on_postgres: Yaoki) -> None:
    with postgres_connection(on_postgres.store) as connection:
        [other] = connection.execute("SELECT current_database()").fetchone() or [""]
    direct, poll = on_postgres.health(), Yaoki(f"{on_postgres.url}?wake=poll").health()
    elsewhere = for_libpq(on_postgres.url).replace(f"/{other}", "/postgres")
    deaf = Yaoki(f"{on_postgres.url}?listen={elsewhere}").health()

    assert check(direct, "wake-ups").message.startswith("notifications arrive")
    assert check(poll, "wake-ups").level == "ok"
    assert check(deaf, "wake-ups").level == "warning"


def test_a_table_that_nobody_vacuums_is_told(on_postgres: Yaoki) -> None:
    on_postgres.migrate()
    ask(on_postgres.store, "ALTER TABLE yaoki.jobs SET (autovacuum_enabled = false)")

    assert check(on_postgres.health(), "vacuum").level == "warning"


def test_a_clock_that_is_off_is_told(
    on_postgres: Yaoki, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    from yaoki.store.postgres import examine as server

    class Slow:
        """This machine's clock, ten minutes slow."""

        time = staticmethod(lambda: __import__("time").time() - 600)
        time_ns = monotonic_ns = staticmethod(lambda: 0)

    monkeypatch.setattr(server, "time", Slow)

    found = check(on_postgres.health(), "clock")

    assert found.level == "warning"
    assert "10 min ahead of this machine's" in found.message
