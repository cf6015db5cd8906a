"""`yaoki job` shows what the handler wrote with ctx.log."""

import json

from tests.cli.program import Program, on_both
from yaoki import Yaoki
from yaoki.store.ops.logs import Line, Lines, WriteLines
from yaoki.store.ops.settling import Held

pytestmark = on_both


def write(app: Yaoki, *lines: Line) -> int:
    """One more attempt of the job, which says this and fails."""
    [job] = app.claim("w1")
    app.store.run(WriteLines([(Held(job.id, job.lease or 0), Lines(lines, False))]))
    app.fail(job, "no", retry_in=0)
    return job.id


def test_the_log_is_shown_by_attempt_and_harmless_to_a_terminal(yaoki: Program, app: Yaoki) -> None:
    app.enqueue("mail", {"to": "aiko"}, queue="mail", max_attempts=2)
    write(app, Line(1, 0, "info", "connecting"), Line(2, 0, "error", "refused\n\x1b[31mred"))
    job_id = write(app, Line(701, 0, "debug", "again"), Line(702, 0, "info", "\u202eturned"))

    shown = yaoki("job", str(job_id)).out
    log = shown[shown.index("\n  log\n") :].splitlines()[2:]

    assert [line.split("UTC  ")[-1].strip() for line in log] == [
        "attempt 1",
        "connecting",
        "error: refused",
        "| \\x1b[31mred",
        "attempt 2",
        "… 700 older lines were not kept",
        "debug: again",
        "\\u202eturned",
    ]


def test_the_log_is_part_of_the_json(yaoki: Program, app: Yaoki) -> None:
    app.enqueue("mail", {"to": "aiko"}, queue="mail")
    job_id = write(app, Line(1, 0, "warning", "slow"))

    [line] = json.loads(yaoki("job", str(job_id), "--json").out)["log"]

    assert line.pop("at") == app.logs(job_id)[0].at.isoformat()
    assert line == {"attempt": 1, "line": 1, "level": "warning", "text": "slow"}


def test_a_job_without_lines_shows_no_log(yaoki: Program, app: Yaoki) -> None:
    job = app.enqueue("mail")

    assert "\n  log\n" not in yaoki("job", str(job.id)).out
    assert json.loads(yaoki("job", str(job.id), "--json").out)["log"] == []
