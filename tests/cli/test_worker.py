import re
import signal
import subprocess

import pytest

from tests.cli.program import Program, line_with, on_both
from tests.support.eventually import eventually
from tests.support.processes import parent_of
from yaoki import Yaoki

LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC (info   |warning|error  ) \S.*")


@pytest.fixture
def sleeping(yaoki: Program, app: Yaoki) -> subprocess.Popen[str]:
    """A worker in the middle of a job that takes half a minute, with a grace of 0.3 s."""
    app.enqueue("sleep", {"seconds": 30})
    return _begun(yaoki, "--grace", "300ms")


@on_both
def test_a_worker_ends_with_0_when_everything_is_done(yaoki: Program, app: Yaoki) -> None:
    app.enqueue_many("mail", [{"to": str(number)} for number in range(20)], queue="mail")
    app.enqueue("broken", {"why": "no paper"})

    ran = yaoki(
        "--app", "shop:app", "worker", "--until-empty", "--queue", "default=2", "--queue", "mail"
    )

    assert ran.code == 0
    assert {job.status for job in app.jobs(type="mail")} == {"completed"}
    assert [job.status for job in app.jobs(type="broken")] == ["failed"]


@on_both
def test_every_event_is_one_readable_line_on_stderr(yaoki: Program, app: Yaoki) -> None:
    app.enqueue("broken", {"why": "no paper"})

    ran = yaoki("--app", "shop:app", "worker", "--until-empty")

    lines = [line for line in ran.err.splitlines() if line != "the shop is imported"]
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    where = yaoki.always.get("YAOKI_URL", "sqlite:///yaoki.db")
    assert any("runs broken, mail" in line and where in line for line in lines)
    assert any("for good: ValueError: no paper" in line for line in lines)
    assert "\x1b" not in ran.err
    assert ran.out == ""


def test_only_what_is_asked_for_is_logged(yaoki: Program, app: Yaoki) -> None:
    app.enqueue("broken", {"why": "no paper"})

    ran = yaoki("--app", "shop:app", "worker", "--until-empty", "--log-level", "error")

    assert [line.split()[3] for line in ran.err.splitlines()[1:]] == ["error"]


def test_a_worker_does_not_wait_longer_for_a_retry_than_it_was_told(
    yaoki: Program, app: Yaoki
) -> None:
    app.enqueue("own-waits", {})
    [job] = app.claim("w")
    app.fail(job, "later", retry_in=600)

    ran = yaoki("--app", "shop:app", "worker", "--until-empty", "--max-wait", "5m")

    assert ran.code == 0
    assert app.get(job).status == "pending"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_the_running_job_finish_and_ends_with_0(
    yaoki: Program, app: Yaoki, number: signal.Signals
) -> None:
    app.enqueue("sleep", {"seconds": 0.7})
    worker = _begun(yaoki)
    app.enqueue("sleep", {"seconds": 0})

    worker.send_signal(number)

    worker.communicate(timeout=10)
    assert worker.returncode == 0
    assert [job.status for job in app.jobs()][-1] == "completed"


@on_both
def test_what_outlives_the_grace_is_handed_back_and_the_exit_code_is_1(
    app: Yaoki, sleeping: subprocess.Popen[str]
) -> None:
    sleeping.send_signal(signal.SIGTERM)

    sleeping.communicate(timeout=10)
    job = app.get(1)
    assert sleeping.returncode == 1
    assert (job.status, job.attempt, job.releases) == ("pending", 0, 1)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_stops_at_once(
    yaoki: Program, app: Yaoki, number: signal.Signals, code: int
) -> None:
    app.enqueue("sleep", {"seconds": 30})
    worker = _begun(yaoki)

    worker.send_signal(number)
    line_with(worker.stderr, "drains")
    worker.send_signal(number)

    worker.communicate(timeout=10)
    assert worker.returncode == code
    assert app.get(1).status == "pending"


@on_both
def test_a_worker_that_runs_is_listed_with_what_it_holds(
    yaoki: Program, app: Yaoki, sleeping: subprocess.Popen[str]
) -> None:
    [worker] = eventually(app.workers)

    ran = yaoki("workers")

    assert parent_of(worker.pid) == sleeping.pid
    assert worker.worker_id in ran.out
    assert "working" in ran.out
    assert "1 of 10" in ran.out
    assert re.search(rf"{worker.worker_id} +1  sleep", ran.out)


def test_an_app_without_job_types_cannot_work(yaoki: Program) -> None:
    (yaoki.folder / "idle.py").write_text("import yaoki\napp = yaoki.Yaoki()\n")

    ran = yaoki("--app", "idle:app", "worker")

    assert ran.code == 2
    assert "no job types" in ran.err
    assert "Traceback" not in ran.err


def test_logging_that_the_app_sets_up_itself_stands(yaoki: Program) -> None:
    (yaoki.folder / "own.py").write_text(
        "import logging\n"
        "logging.basicConfig(format='mine: %(message)s', level='INFO')\n"
        "from shop import app\n"
    )

    ran = yaoki("--app", "own:app", "worker", "--until-empty")

    assert ran.code == 0
    assert any(line.startswith("mine: worker ") for line in ran.err.splitlines())


def _begun(yaoki: Program, *more: str) -> subprocess.Popen[str]:
    worker = yaoki.start("--app", "shop:app", "worker", *more)
    line_with(worker.stdout, "begun")
    return worker
