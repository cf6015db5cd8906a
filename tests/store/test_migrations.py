"""The schema: made once, the same for everybody, and what the code believes about it."""

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from enum import StrEnum
from pathlib import Path

import pytest

from tests.support.databases import ask, opened
from tests.support.processes import ROOT
from yaoki import Job, SchemaTooNew, Status, StoreError, Yaoki, YaokiError
from yaoki.core import outcomes
from yaoki.core.job import COLUMNS
from yaoki.core.states import FINAL, MOVES
from yaoki.store import SQLiteStore
from yaoki.store.migrations import migrations
from yaoki.store.ops.claims import Look
from yaoki.store.sqlite.migrate import statements

GOLDEN = Path(__file__).parent / "golden" / "schema.sqlite.sql"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


def migrated(path: Path) -> list[str]:
    store = SQLiteStore(f"sqlite:///{path}")
    applied = store.migrate()
    store.close()
    return applied


def schema_of(path: Path) -> str:
    rows = ask(path, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name")
    return "".join(f"{statement};\n\n" for (statement,) in rows)


def test_an_empty_file_becomes_the_latest_schema(path: Path) -> None:
    """UPDATE_GOLDEN=1 writes the file anew; what it shows is changed by new migrations only."""
    applied = migrated(path)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(schema_of(path), "utf-8")

    assert applied == [f"{step.number:04} {step.name}" for step in migrations("sqlite")]
    assert schema_of(path) == GOLDEN.read_text("utf-8")


def test_a_second_time_there_is_nothing_to_do(path: Path) -> None:
    migrated(path)

    assert migrated(path) == []


def test_the_verb_tells_what_it_applied_once(path: Path) -> None:
    app = Yaoki(f"sqlite:///{path}")

    assert app.migrate() != []
    assert app.migrate() == []
    app.close()


def test_the_first_use_migrates_by_itself(path: Path) -> None:
    app = Yaoki(f"sqlite:///{path}")

    assert app.jobs() == []
    app.close()
    assert migrated(path) == []


def test_jobs_survive_another_migration(path: Path) -> None:
    app = Yaoki(f"sqlite:///{path}")
    job = app.enqueue("mail")
    app.close()

    migrated(path)

    assert app.get(job) == job
    app.close()


def test_tables_of_others_in_the_file_are_left_alone(path: Path) -> None:
    with opened(path) as mine:
        mine.execute("CREATE TABLE jobs (mine TEXT)")
        mine.execute("INSERT INTO jobs VALUES ('kept')")

    migrated(path)

    assert ask(path, "SELECT mine FROM jobs") == [("kept",)]


MIGRATE = """
import sys
from yaoki.store import SQLiteStore
print("ready", flush=True)
sys.stdin.readline()
print(SQLiteStore(sys.argv[1]).migrate(), flush=True)
"""


def test_of_many_migrators_at_once_one_does_it_and_the_others_wait(path: Path) -> None:
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", MIGRATE, f"sqlite:///{path}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(4)
    ]
    try:
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        for program in programs:
            assert program.stdin is not None
            program.stdin.write("go\n")
            program.stdin.flush()
        outputs = [program.communicate(timeout=30)[0] for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.wait()

    everything = [f"{step.number:04} {step.name}" for step in migrations("sqlite")]
    assert sorted(outputs, key=len) == ["[]\n"] * 3 + [f"{everything}\n"]
    assert schema_of(path) == GOLDEN.read_text("utf-8")


def test_a_migration_that_fails_half_way_leaves_nothing(path: Path) -> None:
    """A table in the way stands for anything that goes wrong."""
    with opened(path) as mine:
        mine.execute("CREATE TABLE yaoki_workers (in_the_way)")
    before = schema_of(path)

    with pytest.raises(StoreError) as failed:
        migrated(path)

    assert "\n" not in str(failed.value)
    assert schema_of(path) == before
    with opened(path) as mine:
        mine.execute("DROP TABLE yaoki_workers")
    assert migrated(path) != []


def test_a_schema_newer_than_the_program_is_refused_in_one_clear_line(path: Path) -> None:
    """Not a crash loop, and not a guess (fault 136)."""
    migrated(path)
    newest = migrations("sqlite")[-1].number
    with opened(path) as mine:
        mine.execute("INSERT INTO yaoki_migrations (number, name) VALUES (?, 'x')", [newest + 1])
    store = SQLiteStore(f"sqlite:///{path}")

    for _ in range(2):
        with pytest.raises(SchemaTooNew, match="upgrade") as refused:
            store.run(Look())

    assert isinstance(refused.value, YaokiError)
    assert "\n" not in str(refused.value)
    assert str(newest + 1) in str(refused.value)
    store.close()


def test_a_table_of_migrations_that_is_not_ours_is_refused_in_one_line(path: Path) -> None:
    with opened(path) as mine:
        mine.execute("CREATE TABLE yaoki_migrations (another TEXT)")

    with pytest.raises(YaokiError) as refused:
        migrated(path)

    assert "\n" not in str(refused.value)


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [step.number for step in migrations("sqlite")]

    assert numbers == list(range(1, len(numbers) + 1))


def test_a_script_is_cut_where_sqlite_says_that_a_statement_ends() -> None:
    script = (
        "CREATE TABLE a (x TEXT DEFAULT ';'); -- one; two\nCREATE TRIGGER t AFTER INSERT ON a\n"
    )
    script += "BEGIN\n  DELETE FROM a;\n  DELETE FROM a;\nEND;\n"

    found = statements(script)

    with closing(sqlite3.connect(":memory:")) as connection:
        for statement in found:
            connection.execute(statement)
    assert len(found) == 2


# What the code believes


def table(path: Path) -> str:
    migrated(path)
    [(text,)] = ask(path, "SELECT sql FROM sqlite_master WHERE name = 'yaoki_jobs'")
    return str(text)


def checked_words(text: str, column: str) -> set[str]:
    found = re.search(rf"CHECK \({column} IN \(([^)]*)\)\)", text)
    assert found is not None
    return set(re.findall(r"'(\w+)'", found[1]))


def test_rows_arrive_in_the_order_that_the_code_expects(path: Path) -> None:
    migrated(path)

    assert tuple(name for _, name, *_ in ask(path, "PRAGMA table_info(yaoki_jobs)")) == COLUMNS


def test_the_states_are_those_that_the_table_allows(path: Path) -> None:
    assert checked_words(table(path), "status") == {status.value for status in Status}
    assert issubclass(Status, StrEnum)


def test_the_outcomes_are_those_that_the_history_allows(path: Path) -> None:
    migrated(path)
    [(text,)] = ask(path, "SELECT sql FROM sqlite_master WHERE name = 'yaoki_attempts'")

    classes = ("Completed", "Retried", "Failed", "Snoozed", "Released", "Cancelled")
    assert all(hasattr(outcomes, name) for name in classes)
    assert checked_words(str(text), "outcome") == {name.lower() for name in classes}


def test_the_table_itself_refuses_a_token_of_the_wrong_parity(path: Path) -> None:
    migrated(path)
    wrong = [
        ("pending", 1, None),
        ("running", 2, 9),
        ("running", 1, None),
        ("completed", 3, None),
        ("pending", 0, 9),
        ("dead", 0, None),
    ]
    insert = """
        INSERT INTO yaoki_jobs (type, queue, priority, status, payload, run_at, max_attempts, lease,
            lease_expires_at, created_at, updated_at)
        VALUES ('a', 'q', 0, ?, '{}', 1, 4, ?, ?, 1, 1)
    """
    with opened(path) as mine:
        for row in wrong:
            with pytest.raises(sqlite3.IntegrityError):
                mine.execute(insert, row)
        mine.execute(insert, ("running", 1, 9))


# The moves that operations make, and that the table of moves allows


def watched(path: Path) -> None:
    """From now on the file itself writes down every move of a status."""
    with opened(path) as mine:
        mine.execute("CREATE TABLE moves (was TEXT, became TEXT)")
        mine.execute("""
            CREATE TRIGGER move AFTER UPDATE OF status ON yaoki_jobs WHEN old.status <> new.status
            BEGIN INSERT INTO moves VALUES (old.status, new.status); END
        """)


def test_operations_make_exactly_the_moves_of_the_table(path: Path) -> None:
    app = Yaoki(f"sqlite:///{path}")
    app.migrate()
    watched(path)

    def running() -> Job:
        app.enqueue("mail")
        [job] = app.claim("w1")
        return job

    app.complete(running())
    app.retry(app.fail(running(), "x", retry=False))
    app.fail(running(), "x", retry_in=3_600)
    app.release(running())
    being_cancelled = running()
    app.cancel(being_cancelled)
    app.retry(app.release(being_cancelled))
    app.cancel(app.enqueue("mail"))
    app.close()

    made: dict[str, set[str]] = {status: set() for status in Status}
    for was, became in ask(path, "SELECT DISTINCT was, became FROM moves"):
        made[was].add(became)
    assert made == MOVES


def test_what_is_final_is_left_by_an_operator_only() -> None:
    assert {status for status, moves in MOVES.items() if moves <= {Status.PENDING}} == FINAL
