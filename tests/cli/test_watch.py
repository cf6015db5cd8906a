import json
import signal

from tests.cli.program import Program, line_with, on_both
from yaoki import Yaoki

pytestmark = on_both


def test_a_job_is_followed_to_its_end_with_its_progress(yaoki: Program, app: Yaoki) -> None:
    app.enqueue("steps", {"count": 4})
    watching = yaoki.start("watch", "1")
    line_with(watching.stdout, "ready")

    yaoki("--app", "shop:app", "worker", "--until-empty")

    out, err = watching.communicate(timeout=10)
    assert (watching.returncode, err) == (0, "")
    assert "running: by " in out
    assert "4 of 4 (100%) step 4" in out
    assert "completed: at " in out.splitlines()[-1]


def test_watching_a_job_that_fails_ends_with_1_and_says_why(yaoki: Program, app: Yaoki) -> None:
    app.enqueue("broken", {"why": "no paper"})
    watching = yaoki.start("watch", "1")

    yaoki("--app", "shop:app", "worker", "--until-empty")

    out, _ = watching.communicate(timeout=10)
    assert watching.returncode == 1
    assert "failed: after 2 attempts: ValueError: no paper" in out.splitlines()[-1]


def test_watching_a_job_that_was_cancelled_ends_with_1(yaoki: Program, app: Yaoki) -> None:
    app.cancel(app.enqueue("mail", {}))

    ran = yaoki("watch", "1")

    assert ran.code == 1
    assert "cancelled" in ran.out


def test_each_change_is_a_line_of_json_when_asked_for(yaoki: Program, app: Yaoki) -> None:
    app.enqueue("steps", {"count": 1})
    watching = yaoki.start("watch", "1", "--json")
    first = json.loads(line_with(watching.stdout, "pending"))

    yaoki("--app", "shop:app", "worker", "--until-empty")

    out, _ = watching.communicate(timeout=10)
    changes = [first, *map(json.loads, out.splitlines())]
    assert [one["revision"] for one in changes] == sorted({one["revision"] for one in changes})
    assert changes[-1]["status"] == "completed"
    assert changes[-1]["result"] == {"steps": 1}


def test_a_watcher_that_is_interrupted_leaves_the_job_alone(yaoki: Program, app: Yaoki) -> None:
    app.enqueue("mail", {})
    watching = yaoki.start("watch", "1")
    line_with(watching.stdout, "ready")

    watching.send_signal(signal.SIGINT)

    _, err = watching.communicate(timeout=10)
    assert watching.returncode == 130
    assert err.strip() == ""
    assert app.get(1).status == "pending"


def test_a_job_that_is_deleted_while_it_is_watched_is_a_failure(yaoki: Program, app: Yaoki) -> None:
    job = app.enqueue("mail", {})
    watching = yaoki.start("watch", "1")
    line_with(watching.stdout, "ready")

    app.cancel(job)
    app.discard(job)

    _, err = watching.communicate(timeout=10)
    assert watching.returncode == 1
    assert "Traceback" not in err
