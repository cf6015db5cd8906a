"""Processes that are replaced by fresh ones, while work goes on."""

import signal

from tests.supervisor.yard import PATIENCE, Yard, end
from tests.support.eventually import eventually
from tests.support.processes import is_alive


def test_a_process_is_replaced_after_so_many_jobs_and_none_is_lost_or_run_twice(
    yard: Yard,
) -> None:
    supervisor = yard.start("--recycle-after", "50", "--concurrency", "2")
    [first] = yard.workers(1)
    long = yard.app.enqueue("sleep", {"seconds": 2.5})
    yard.begun("sleep")
    jobs = yard.app.enqueue_many("quick", [{} for _ in range(400)])

    done = [yard.ended(job) for job in jobs]
    eventually(lambda: first.pid not in {one.pid for one in yard.workers()}, within=PATIENCE)
    [second] = yard.workers(1)

    assert {job.status for job in done} == {"completed"}
    assert yard.runs()["quick"] == 400
    # What ran when it was replaced was finished, without a deadline.
    assert (yard.ended(long).result, yard.ended(long).attempt) == (first.pid, 1)
    assert yard.ended(yard.app.enqueue("quick", {})).result == second.pid
    supervisor.send_signal(signal.SIGTERM)
    assert end(supervisor)[0] == 0


def test_a_process_is_replaced_when_it_uses_too_much_memory(yard: Yard) -> None:
    yard.start("--recycle-above", "250")
    grown = yard.ended(yard.app.enqueue("grow", {"megabytes": 300}))

    eventually(lambda: not is_alive(grown.result), within=PATIENCE)

    assert yard.ended(yard.app.enqueue("quick", {})).result != grown.result


def test_one_that_needs_more_than_that_from_the_start_is_not_replaced_for_ever(
    yard: Yard,
) -> None:
    supervisor = yard.start("--recycle-above", "1")

    assert "--recycle-above" in yard.line(supervisor, "before its first job")
    results = [yard.ended(yard.app.enqueue("sleep", {"seconds": 0.7})).result for _ in range(2)]

    assert len(set(results)) == 1


def test_a_process_whose_slots_are_used_up_by_leaked_handlers_is_replaced(yard: Yard) -> None:
    yard.start("--concurrency", "1")
    [worker] = yard.workers(1)
    overrun = yard.app.enqueue("overrun", {})

    assert yard.ended(overrun).status == "failed"

    eventually(lambda: not is_alive(worker.pid), within=PATIENCE)
    assert yard.ended(yard.app.enqueue("quick", {})).result != worker.pid


def test_reload_runs_what_the_file_says_now_and_waits_while_it_cannot_be_imported(
    yard: Yard,
) -> None:
    source = yard.program.folder / "edited.py"
    source.write_text("from deeds import app\n@app.job('answer')\ndef answer(): return 1\n")
    supervisor = yard.start("--reload", app="edited:app")
    assert yard.ended(yard.app.enqueue("answer", {})).result == 1

    source.write_text("from deeds import app\n@app.job('answer')\ndef answer( return 2\n")
    assert "SyntaxError" in yard.line(supervisor, "cannot begin")
    source.write_text("from deeds import app\n@app.job('answer')\ndef answer(): return 22\n")

    assert yard.ended(yard.app.enqueue("answer", {})).result == 22
    supervisor.send_signal(signal.SIGTERM)
    assert end(supervisor)[0] == 0
