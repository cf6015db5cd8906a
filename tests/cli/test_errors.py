from pathlib import Path

import pytest

from tests.cli.golden import Golden
from tests.cli.program import Program

WRONG = {
    "no-database": ("jobs",),
    "no-such-command": ("frobnicate",),
    "no-such-option": ("jobs", "--colour"),
    "missing-argument": ("job",),
    "bad-id": ("job", "seven"),
    "bad-json": ("enqueue", "mail", '{"to": }'),
    "json-is-no-object": ("enqueue", "mail", "[1, 2]"),
    "json-has-nan": ("enqueue", "mail", '{"n": NaN}'),
    "json-has-a-key-twice": ("enqueue", "mail", '{"to": "a", "to": "b"}'),
    "naive-time": ("enqueue", "mail", "--run-at", "2026-12-24T18:00"),
    "bad-duration": ("enqueue", "mail", "--delay", "soon"),
    "bad-priority": ("enqueue", "mail", "--priority", "urgent"),
    "delay-and-run-at": ("enqueue", "mail", "--delay", "1", "--run-at", "2030-01-01T00:00Z"),
    "bad-name": ("enqueue", "mail\x1b[31m"),
    "no-app": ("worker",),
    "no-such-module": ("--app", "nowhere.app:app", "worker"),
    "a-file": ("--app", "./shop.py:app", "worker"),
    "no-such-attribute": ("--app", "shop:application", "worker"),
    "not-a-yaoki": ("--app", "shop:mail", "worker"),
    "no-attribute": ("--app", "shop", "worker"),
    "arguments-do-not-fit": ("--app", "shop:app", "enqueue", "mail", '{"card": "4111"}'),
    "unknown-database": ("--url", "mysql://shop", "jobs"),
    "no-server": ("--url", "postgresql://shop:geheim@127.0.0.1:1/shop", "jobs"),
    "no-postgresql-url": ("--url", "postgresql://shop:ge@heim@127.0.0.1:1/shop", "jobs"),
    "private-database": ("--url", "sqlite:///:memory:", "jobs"),
    "no-such-folder": ("--url", "sqlite:///nowhere/jobs.db", "migrate"),
    "neither-ids-nor-all": ("retry",),
    "both-ids-and-all": ("retry", "1", "--all-failed"),
    "type-without-all": ("retry", "1", "--type", "mail"),
    "max-wait-alone": ("--app", "shop:app", "worker", "--max-wait", "5m"),
    "queue-twice": ("--app", "shop:app", "worker", "--queue", "a", "--queue", "a=2"),
    "bad-queue-limit": ("--app", "shop:app", "worker", "--queue", "mail=many"),
    "type-and-policy": ("timetable", "mail", "--first", "10"),
    "unknown-type": ("--app", "shop:app", "timetable", "nothing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_is_one_clear_line_as_written_down(
    yaoki: Program, golden: Golden, name: str
) -> None:
    ran = yaoki(*WRONG[name])

    assert ran.code in (1, 2)
    assert ran.out == ""
    assert [line[:7] for line in _without_shop(ran.err)] == ["yaoki: "]
    assert "heim" not in ran.err
    golden(f"error-{name}", ran.told())


@pytest.mark.parametrize("command", ["job", "watch", "retry", "cancel", "discard"])
def test_a_job_that_is_not_there_is_a_failure(yaoki: Program, golden: Golden, command: str) -> None:
    yaoki("migrate")

    ran = yaoki(command, "99")

    assert ran.err == "yaoki: there is no job 99: it was discarded or pruned, or never existed\n"
    golden("error-no-such-job", ran.told().replace(f"yaoki {command}", "yaoki COMMAND"))


def test_reading_makes_no_database(yaoki: Program) -> None:
    reading = ("jobs", "queues", "workers")

    codes = [yaoki(command).code for command in reading]
    codes += [yaoki(command, "1").code for command in ("job", "watch", "retry", "cancel")]
    codes += [yaoki("pause", "mail").code, yaoki("timetable", "mail").code]

    assert codes == [1] * 9
    assert [path.name for path in yaoki.folder.iterdir()] == ["shop.py"]


def test_reading_makes_no_tables_in_a_database_of_others(yaoki: Program, tmp_path: Path) -> None:
    (tmp_path / "other.db").touch()

    ran = yaoki("--url", "sqlite:///other.db", "jobs")

    assert ran.code == 1
    assert "yaoki --url sqlite:///other.db migrate" in ran.err
    assert (tmp_path / "other.db").stat().st_size == 0


def test_a_file_that_is_no_database_is_said_to_be_none(yaoki: Program, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("this is no database, however long one looks at it")

    ran = yaoki("--url", "sqlite:///notes.txt", "jobs")

    assert ran.code == 1
    assert "something else than a SQLite database" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_module_that_fails_to_import_is_one_line_that_says_where(
    yaoki: Program, tmp_path: Path
) -> None:
    (tmp_path / "faulty.py").write_text("x = 1\nraise RuntimeError('no\\nsettings')\n")

    ran = yaoki("--app", "faulty:app", "jobs")

    assert ran.code == 2
    assert ran.err == (
        "yaoki: --app: importing faulty failed (FOLDER/faulty.py, line 2): "
        "RuntimeError: no\\nsettings\n"
    )


@pytest.mark.parametrize("text", ["def broken(:\n", "import nothing_like_this\n", "exit(3)\n"])
def test_whatever_goes_wrong_in_an_import_is_wrong_usage(
    yaoki: Program, tmp_path: Path, text: str
) -> None:
    (tmp_path / "faulty.py").write_text(text)

    ran = yaoki("--app", "faulty:app", "jobs")

    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert ran.err.startswith("yaoki: --app: importing faulty failed")


def test_an_app_on_another_database_than_the_url_is_refused(yaoki: Program, tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text("import yaoki\napp = yaoki.Yaoki('sqlite:///tied.db')\n")

    ran = yaoki("--app", "tied:app", "--url", "sqlite:///other.db", "enqueue", "mail")

    assert ran.code == 2
    assert "sqlite:///tied.db" in ran.err
    assert "sqlite:///other.db" in ran.err


def test_app_and_url_may_stand_behind_the_command_and_in_the_environment(yaoki: Program) -> None:
    behind = yaoki(
        "enqueue", "--url", "sqlite:///one.db", "--app", "shop:app", "steps", '{"count":1}'
    )
    now = {"YAOKI_NOW": "2030-01-01T00:00:00Z"}
    before = yaoki("--url", "sqlite:///one.db", "jobs", env=now)
    around = yaoki("jobs", env=now | {"YAOKI_URL": "sqlite:///one.db", "YAOKI_APP": "shop:app"})

    assert behind.out == "1\n"
    assert before.out == around.out
    assert "steps" in before.out


def test_a_full_disk_under_the_output_is_one_line(yaoki: Program) -> None:
    if not Path("/dev/full").exists():
        return
    yaoki("migrate")

    ran = yaoki.shell("yaoki jobs > /dev/full")

    assert ran.code == 1
    assert ran.err == "yaoki: No space left on device\n"


def test_nobody_reading_the_output_is_no_error_message(yaoki: Program) -> None:
    yaoki("enqueue", "mail")

    ran = yaoki.shell("yaoki jobs | true; yaoki job 1 --json | head -1; yaoki --help | true")

    assert ran.err == ""
    assert ran.out == "{\n"


def _without_shop(err: str) -> list[str]:
    """The lines but that which the shop prints when it is imported."""
    return [line for line in err.splitlines() if line != "the shop is imported"]
