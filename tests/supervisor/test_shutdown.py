"""Signals: to the supervisor, to all at once, to a process alone; and a supervisor that is gone."""

import os
import signal

import pytest

from tests.supervisor.yard import PATIENCE, Yard, end
from tests.support.eventually import eventually
from tests.support.processes import is_alive


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_drains_as_one_to_the_supervisor_does(
    yard: Yard, number: signal.Signals
) -> None:
    """Ctrl-C, systemd and containers signal everybody (40)."""
    job = yard.app.enqueue("sleep", {"seconds": 0.7})
    supervisor = yard.start("--processes", "2", leader=True)
    worker = yard.begun("sleep")
    for pid in {worker, *(one.pid for one in yard.workers(2))}:
        os.kill(pid, number)

    os.killpg(supervisor.pid, number)

    code, said = end(supervisor)
    assert code == 0
    assert (yard.app.get(job).status, yard.runs()["sleep"]) == ("completed", 1)
    assert "Traceback" not in said
    assert yard.app.workers() == []


def test_signals_to_one_process_drain_it_and_never_hurry_it(yard: Yard) -> None:
    job = yard.app.enqueue("sleep", {"seconds": 1})
    supervisor = yard.start()
    worker = yard.begun("sleep")

    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        os.kill(worker, number)

    assert yard.ended(job).result == worker
    other = yard.ended(yard.app.enqueue("quick", {})).result
    assert other != worker
    supervisor.send_signal(signal.SIGTERM)
    assert end(supervisor)[0] == 0


def test_when_a_supervisor_is_killed_its_processes_finish_and_end(yard: Yard) -> None:
    job = yard.app.enqueue("sleep", {"seconds": 1})
    supervisor = yard.start("--processes", "2")
    yard.begun("sleep")
    pids = [one.pid for one in yard.workers(2)]

    supervisor.kill()

    assert yard.ended(job).attempt == 1
    assert eventually(lambda: not any(map(is_alive, pids)), within=PATIENCE)
    assert yard.app.workers() == []


def test_a_process_that_outlives_the_grace_is_killed_and_its_job_is_handed_back(
    yard: Yard,
) -> None:
    """It holds the interpreter, so it cannot even hear that it should stop."""
    job = yard.app.enqueue("hold", {"seconds": 60})
    supervisor = yard.start("--grace", "300ms", hasty=True)
    worker = yard.begun("hold")

    supervisor.send_signal(signal.SIGTERM)

    code, _ = end(supervisor)
    assert code == 1
    assert not is_alive(worker)
    back = yard.app.get(job)
    assert (back.status, back.attempt, back.releases) == ("pending", 0, 1)
    assert back.attempts[-1].error == "stopped when its worker shut down"


def test_a_second_signal_kills_a_process_that_does_not_listen(yard: Yard) -> None:
    job = yard.app.enqueue("hold", {"seconds": 60})
    supervisor = yard.start()
    worker = yard.begun("hold")

    supervisor.send_signal(signal.SIGTERM)
    yard.line(supervisor, "draining")
    supervisor.send_signal(signal.SIGINT)

    code, _ = end(supervisor)
    assert code == 130
    assert not is_alive(worker)
    assert (yard.app.get(job).status, yard.app.get(job).attempt) == ("pending", 0)


def test_a_signal_while_the_app_is_imported_ends_it_at_once(yard: Yard) -> None:
    (yard.program.folder / "slow.py").write_text(
        "from deeds import app, note\nimport time\nnote('import')\ntime.sleep(60)\n"
    )
    supervisor = yard.start(app="slow:app")
    worker = yard.begun("import")

    supervisor.send_signal(signal.SIGINT)

    code, said = end(supervisor)
    assert code == 0
    assert not is_alive(worker)
    assert "Traceback" not in said


def test_a_process_that_is_slow_to_begin_is_told_of_once(yard: Yard) -> None:
    (yard.program.folder / "slow.py").write_text(
        "from deeds import app, note\nimport time\nnote('import')\ntime.sleep(60)\n"
    )
    supervisor = yard.start(app="slow:app", hasty=True)
    yard.begun("import")
    said = yard.line(supervisor, "has not begun")

    supervisor.send_signal(signal.SIGINT)

    code, more = end(supervisor)
    assert code == 0
    assert "the import of the app" in said
    assert "has not begun" not in more
