"""A worker process dies: its jobs are back at once, whoever killed it is found out, others live."""

import os
import signal
import time

import pytest

from tests.cli.program import on_both
from tests.supervisor.yard import PATIENCE, Yard, end
from tests.support.databases import assert_intact, locked
from tests.support.eventually import eventually
from tests.support.processes import is_alive

KILLED = "worker process killed by signal 9 (SIGKILL)"


@on_both
def test_the_jobs_of_a_killed_process_are_back_at_once_and_another_does_them(yard: Yard) -> None:
    """With a lease of ten minutes; and what the handler had started is gone as well."""
    job = yard.app.enqueue("sleep-once", {})
    supervisor = yard.start("--lease-for", "10m", "--processes", "2", "--concurrency", "1")
    victim = yard.begun("sleep-once")
    bystander = next(one for one in yard.workers(2) if one.pid != victim)

    os.kill(victim, signal.SIGKILL)

    ended = yard.ended(job)
    assert (ended.status, ended.attempt, ended.rescues) == ("completed", 2, 1)
    assert [one.error for one in ended.errors] == [KILLED]
    assert ended.result != victim
    eventually(
        lambda: len(yard.workers(2)) == 2 and victim not in {one.pid for one in yard.workers()},
        within=PATIENCE,
    )
    assert bystander.worker_id in {one.worker_id for one in yard.workers()}
    supervisor.send_signal(signal.SIGTERM)
    code, said = end(supervisor)
    assert code == 0
    assert f"(pid {victim}): killed by signal 9 (SIGKILL)" in said
    assert_intact(yard.app.store)


def test_a_job_that_kills_its_worker_dies_of_it_and_takes_no_innocent_with_it(yard: Yard) -> None:
    """Three deaths for three attempts (20); innocents here have two each (design 8.2)."""
    poison = yard.app.enqueue("die", {})
    innocents = yard.app.enqueue_many("innocent", [{} for _ in range(4)])

    ran = yard.run("--until-empty", "--lease-for", "10m", "--concurrency", "4")

    assert ran.code == 0
    dead = yard.app.get(poison)
    assert (dead.status, dead.attempt, dead.error) == ("failed", 3, KILLED)
    assert [one.error for one in dead.errors] == [KILLED] * 3
    assert yard.runs()["die"] == 3
    assert {yard.app.get(one).status for one in innocents} == {"completed"}
    assert "Traceback" not in ran.err
    assert_intact(yard.app.store)


def test_a_handler_that_ends_its_process_as_if_all_was_well_has_killed_it(yard: Yard) -> None:
    job = yard.app.enqueue("leave", {})

    ran = yard.run("--until-empty")

    assert ran.code == 0
    assert yard.app.get(job).error == "worker process exited with code 0"


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_process_that_dies_while_the_database_is_away_is_made_up_for_later(yard: Yard) -> None:
    yard.start("--lease-for", "10m")
    job = yard.app.enqueue("sleep-once", {})
    victim = yard.begun("sleep-once")

    with locked(yard.app.store):
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: not is_alive(victim), within=PATIENCE)
        time.sleep(1)  # as long as a try takes that fails

    assert yard.ended(job).attempt == 2


def test_a_supervisor_whose_processes_never_begin_gives_up(yard: Yard) -> None:
    (yard.program.folder / "broken.py").write_text("import os\nos._exit(7)\n")

    ran = yard.run(app="broken:app")

    assert ran.code == 1
    assert ran.err.count("exited with code 7") == 5
    assert "giving up" in ran.err


def test_what_keeps_every_process_from_beginning_is_said_once(yard: Yard) -> None:
    (yard.program.folder / "broken.py").write_text("raise RuntimeError('no paper')\n")

    ran = yard.run("--processes", "3", app="broken:app")

    assert ran.code == 2
    [line] = ran.err.splitlines()
    assert line.startswith("yaoki: --app: importing broken failed")


def test_a_database_that_cannot_be_reached_at_the_start_is_one_line(yard: Yard) -> None:
    yard.program.always["YAOKI_URL"] = "postgresql://127.0.0.1:1/nothing"

    ran = yard.run("--processes", "2")

    assert ran.code == 1
    [line] = ran.err.splitlines()
    assert line.startswith("yaoki: postgresql://127.0.0.1:1/nothing: connection")
