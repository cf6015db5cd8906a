import sqlite3
from contextlib import closing

from tests.cli.golden import Golden
from tests.cli.program import Program


def test_the_tables_are_made_and_the_second_time_nothing_is_done(
    yaoki: Program, golden: Golden
) -> None:
    first, second = yaoki("migrate"), yaoki("migrate")

    assert (first.code, second.code) == (0, 0)
    golden("migrate", first.told() + second.told())


def test_the_table_of_once_is_made_alone_in_another_database(
    yaoki: Program, golden: Golden
) -> None:
    with closing(sqlite3.connect(yaoki.folder / "effects.db")) as effects:
        effects.execute("CREATE TABLE points (points INTEGER)")

    first = yaoki("migrate", "--once", "sqlite:///effects.db")
    second = yaoki("migrate", "--once", "sqlite:///effects.db")

    with closing(sqlite3.connect(yaoki.folder / "effects.db")) as effects:
        tables = {name for (name,) in effects.execute("SELECT tbl_name FROM sqlite_master")}
        [[mode]] = effects.execute("PRAGMA journal_mode")
    assert tables == {"points", "yaoki_once"}
    assert mode == "delete"
    golden("migrate-once", first.told() + second.told())


def test_the_table_of_once_is_made_in_no_database_that_is_not_there(yaoki: Program) -> None:
    ran = yaoki("migrate", "--once", "sqlite:///effects.db")

    assert ran.code == 1
    assert not (yaoki.folder / "effects.db").exists()


def test_a_database_with_only_the_once_table_can_become_a_queue(yaoki: Program) -> None:
    (yaoki.folder / "effects.db").touch()
    yaoki("migrate", "--once", "sqlite:///effects.db")

    ran = yaoki("--url", "sqlite:///effects.db", "migrate")

    assert (ran.code, ran.err) == (0, "")


def test_a_database_of_a_newer_yaoki_is_refused_in_one_line(yaoki: Program) -> None:
    yaoki("migrate")
    with closing(sqlite3.connect(yaoki.folder / "yaoki.db")) as database:
        database.execute("INSERT INTO yaoki_migrations (number, name) VALUES (9999, 'later')")
        database.commit()

    ran = yaoki("jobs")

    assert ran.code == 1
    assert len(ran.err.splitlines()) == 1
    assert "newer yaoki" in ran.err
