"""A handler may do to its process what it likes: its leases are kept as long as it works."""

import os
import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.supervisor.yard import PATIENCE, Yard, end
from tests.support.databases import ask, assert_intact
from tests.support.eventually import eventually
from tests.support.processes import is_alive
from yaoki.store.ops.supervise import Watch

LEASES = 10


@pytest.mark.slow
def test_who_holds_the_interpreter_or_blocks_the_loop_for_ten_leases_keeps_his_job(
    tmp_path: Path, postgres_url: str
) -> None:
    """On both stores at once, for it takes long. Each process would rescue the other's job (26)."""
    with ExitStack() as stack:
        yards = []
        for name, url in {"sqlite": None, "postgres": postgres_url}.items():
            (tmp_path / name).mkdir()
            shutil.copy(Path(__file__).parent / "deeds.py", tmp_path / name / "deeds.py")
            yards.append(stack.enter_context(Yard(tmp_path / name, url)))
        for yard in yards:
            yard.start("--processes", "2", "--concurrency", "1", "--lease-for", "1s")
        for yard in yards:
            yard.workers(2)

        jobs = [
            (yard, yard.app.enqueue(what, {"seconds": LEASES}))
            for yard in yards
            for what in ("hold", "block")
        ]

        for yard, job in jobs:
            ended = yard.app.wait(job, timeout=PATIENCE)
            assert (ended.status, ended.attempt, ended.rescues) == ("completed", 1, 0)
        for yard in yards:
            assert yard.runs() == {"hold": 1, "block": 1}
            assert_intact(yard.app.store)


def test_so_does_one_that_was_claimed_ahead_and_lets_nobody_say_that_it_has_begun(
    yard: Yard,
) -> None:
    """The database does not know that it has."""
    yard.app.pause("default")
    yard.start("--processes", "2", "--concurrency", "1", "--lease-for", "1s", hasty=True)
    yard.workers(2)

    for times in range(1, 6):
        quick = [yard.app.enqueue("quick", {}) for _ in range(60)]
        job = yard.app.enqueue("hold", {"seconds": 5})
        behind = [yard.app.enqueue("quick", {}) for _ in range(5)]
        yard.app.resume("default")

        holder = yard.begun("hold", times)
        [worker] = [one for one in yard.workers() if one.pid == holder]
        held = {one.id: one.ran_for for one in yard.app.store.run(Watch(worker.worker_id))}
        assert {yard.ended(one).status for one in (*quick, *behind)} == {"completed"}
        assert (yard.ended(job).result, yard.ended(job).attempt) == (holder, 1)
        assert yard.runs() == {"hold": times, "quick": 65 * times}
        yard.app.pause("default")
        if held[job.id] is None:
            return  # On a slow machine it may be claimed for a free slot: that shows nothing.
    pytest.fail("it was never claimed ahead")


def test_what_a_stopped_process_held_is_finished_by_another(yard: Yard) -> None:
    job = yard.app.enqueue("sleep", {"seconds": 1.5})
    yard.start("--processes", "2", "--concurrency", "1", "--lease-for", "1s")
    stopped = yard.begun("sleep")
    yard.workers(2)

    os.kill(stopped, signal.SIGSTOP)

    other = yard.begun("sleep", times=2)
    ended = yard.ended(job)
    os.kill(stopped, signal.SIGCONT)
    assert stopped != other == ended.result
    assert ended.attempt == 2
    assert "lease lost" in (ended.errors[0].error or "")


@pytest.mark.parametrize("kind", ["postgres"], indirect=True)
def test_a_process_that_hangs_past_a_time_limit_is_killed_and_only_that_job_is_to_blame(
    yard: Yard,
) -> None:
    neighbour = yard.app.enqueue("sleep", {"seconds": 0.2})
    yard.app.pause("default")
    supervisor = yard.start("--concurrency", "2", hasty=True)
    [worker] = yard.workers(1)
    guilty = yard.app.enqueue("hold-limited", {"seconds": 60})
    began = time.monotonic()
    yard.app.resume("default")

    failed = yard.ended(guilty)

    assert time.monotonic() - began < PATIENCE / 2
    assert failed.status == "failed"
    assert (failed.error or "").startswith("TimeLimitExceeded: ran longer than its time limit")
    assert yard.ended(neighbour).attempt == 1
    assert [one.pid != worker.pid for one in yard.workers(1)] == [True]
    supervisor.send_signal(signal.SIGTERM)
    assert end(supervisor)[0] == 0


def test_a_database_that_is_private_to_its_process_is_left_to_it(yard: Yard) -> None:
    (yard.program.folder / "private.py").write_text(
        "from deeds import app, sleep\nsleep.enqueue(seconds=1.2)\n"
    )
    yard.program.always["YAOKI_URL"] = "sqlite:///:memory:"

    ran = yard.run("--until-empty", "--lease-for", "1s", app="private:app")

    assert ran.code == 0
    assert yard.runs() == {"sleep": 1}
    assert "error" not in ran.err


def test_a_process_that_hangs_with_nothing_left_that_is_its_own_is_killed(yard: Yard) -> None:
    """What it does is another's by now, or gone: nobody else would ever end it."""
    yard.start("--concurrency", "1", "--lease-for", "1s", hasty=True)
    yard.app.enqueue("hold", {"seconds": 60})
    hung = yard.begun("hold")

    ask(yard.app.store, GIVEN_TO_ANOTHER)

    eventually(lambda: not is_alive(hung), within=PATIENCE)
    assert yard.ended(yard.app.enqueue("quick", {})).status == "completed"
    assert yard.app.get(1).worker_id == "another"


GIVEN_TO_ANOTHER = """
UPDATE yaoki.jobs SET worker_id = 'another', lease = lease + 2, lease_for = 3600000000,
    lease_expires_at = lease_expires_at + 3600000000
"""
