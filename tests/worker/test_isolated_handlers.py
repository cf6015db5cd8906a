"""Handlers in processes of their own: what they are given and give back, and how they end."""

import json
import logging
import os
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.worker.isolated_handlers import Order
from tests.worker.support_isolated import is_alive, shared_app
from tests.worker.support_workers import Working
from yaoki import Job, Yaoki

__all__ = ["shared_app"]


@pytest.fixture(scope="module")
def worker(shared_app: Yaoki) -> Iterator[Working]:
    """One worker for all of these tests: whatever a handler does, it goes on."""
    working = Working(shared_app, concurrency=2, lease_for=20)
    yield working
    ending = working.drain()
    assert (ending.handed_back, ending.unrecorded, ending.broken) == (0, 0, None)
    assert not shared_app.jobs(status="running")


@pytest.fixture
def app(shared_app: Yaoki, worker: Working) -> Yaoki:
    return shared_app


def outcome(app: Yaoki, type: str, /, **payload: object) -> Job:
    return app.wait(app.enqueue(type, payload), timeout=30)


@pytest.mark.parametrize("kind", ["pid", "async pid"])
def test_it_runs_in_another_process_which_is_kept(app: Yaoki, kind: str) -> None:
    pids = {outcome(app, kind).result for _ in range(5)}

    assert os.getpid() not in pids
    assert len(pids) == 1


def test_arguments_come_in_the_types_of_the_signature(app: Yaoki) -> None:
    job = outcome(app, "order", order=Order(7, datetime(2026, 11, 30, tzinfo=UTC)))

    assert job.result == ["Order", 7, 2026, "none", 1, job.id]


def test_payloads_and_results_of_a_megabyte_go_both_ways(app: Yaoki) -> None:
    text = "y" * ((1 << 20) - 100)

    assert outcome(app, "echo", text=text).result == text


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("segmentation fault", "its process was killed by signal 11 (SIGSEGV)"),
        ("abort", "its process was killed by signal 6 (SIGABRT)"),
        ("os._exit(3)", "its process exited with code 3"),
        ("os._exit(0)", "its process exited with code 0"),
        ("SIGKILL", "its process was killed by signal 9 (SIGKILL)"),
        ("close everything", "it closed the line of its process to the worker"),
        ("take the place of everything", "it closed the line of its process to the worker"),
        ("write nonsense", "its process closed the line to its worker, and was killed"),
        ("shut the line", "its process was killed by signal 9 (SIGKILL)"),
    ],
)
def test_a_crash_ends_its_job_alone_and_says_how(app: Yaoki, how: str, says: str) -> None:
    bad, beside = app.enqueue("crash", {"how": how}), app.enqueue("echo", {"text": "beside"})
    ended = app.wait(bad, timeout=30)

    assert (ended.status, ended.attempt) == ("failed", 1)
    assert ended.error == f"ProcessDied: {says}"
    assert app.wait(beside, timeout=30).result == "beside"
    assert outcome(app, "echo", text="next").result == "next"


def test_a_crash_says_where_it_was(app: Yaoki) -> None:
    ended = outcome(app, "crash", how="segmentation fault")

    trace = str(ended.errors[0].traceback)
    assert "Segmentation fault" in trace
    assert "in string_at" in trace
    assert "yaoki/worker" not in trace


def test_a_crash_is_retried_with_what_the_handler_had_said(app: Yaoki) -> None:
    job = app.enqueue("crash once")
    ended = app.wait(job, timeout=30)

    assert (ended.status, ended.attempt, ended.result) == ("completed", 2, "survived")
    [crash] = ended.errors
    assert crash.error == "ProcessDied: its process was killed by signal 9 (SIGKILL)"
    assert ended.progress is not None
    assert (ended.progress.done, ended.progress.message) == (3, "on the way")
    assert [line.text for line in app.logs(job)] == ["about to crash"]


def test_a_fork_that_comes_back_into_our_code_ends_there(app: Yaoki) -> None:
    assert outcome(app, "fork").result == "the original"
    assert outcome(app, "echo", text="next").result == "next"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_handler_may_have_processes_of_its_own(app: Yaoki, method: str) -> None:
    ended = outcome(app, "multiprocessing", method=method)

    assert ended.result == [0, 1, 4, 9]
    assert [line.text for line in app.logs(ended)] == ["begins"]


@pytest.mark.parametrize("kind", ["raise", "async raise"])
@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("sys.exit", "SystemExit: 5"),
        ("interrupt", "KeyboardInterrupt"),
        ("generator exit", "GeneratorExit: no"),
        ("wicked", "Wicked: <Wicked that cannot be shown>"),
        ("unborn", "Unborn: no"),
        ("local", "Local: of no module"),
        ("huge", "ValueError: xxx"),
        ("surrogate", r"ValueError: half \ud800"),
    ],
)
def test_exceptions_of_every_kind_end_the_job_and_not_the_process(
    app: Yaoki, kind: str, what: str, says: str
) -> None:
    before = outcome(app, "pid").result
    ended = outcome(app, kind, what=what)

    assert ended.status == "failed"
    assert str(ended.error).startswith(says)
    assert outcome(app, "pid").result == before


@pytest.mark.parametrize("what", ["object", "function", "array", "nan", "too big", "wicked"])
def test_results_that_are_no_json_end_the_job_and_not_the_process(app: Yaoki, what: str) -> None:
    before = outcome(app, "pid").result
    ended = outcome(app, "return", what=what)

    assert ended.status == "completed"
    assert isinstance(ended.result, dict)
    assert ended.result["unstorable"]
    assert outcome(app, "pid").result == before


def test_the_biggest_result_there_may_be(app: Yaoki) -> None:
    ended = outcome(app, "return", what="big")

    assert len(json.dumps(ended.result)) == 1 << 20


def test_secrets_stay_hidden(app: Yaoki) -> None:
    ended = outcome(app, "secret", token="hunter22")

    assert ended.error == "ValueError: it was ***"
    assert "hunter22" not in str(ended.errors)


def test_nothing_is_carried_from_one_job_to_the_next(app: Yaoki) -> None:
    [*first, pid], [*second, same] = (outcome(app, "leave").result for _ in range(2))

    assert first == second == ["nobody", "nobody"]
    assert pid == same


def test_log_records_come_out_in_the_worker(app: Yaoki, caplog: pytest.LogCaptureFixture) -> None:
    # The levels of the parent are those of when the child began: it is to be a new one.
    with caplog.at_level(logging.INFO):
        outcome(app, "crash", how="os._exit(3)")
        job = outcome(app, "logs", text="seven")
    records = [record for record in caplog.records if record.name == "tests.isolated"]
    said = [(record.levelname, record.getMessage()) for record in records]

    assert job.status == "completed"
    assert ("ERROR", "exception seven") in said
    assert "KeyError: 'inside'" in str(records[-1].exc_text)
    assert records[-1].process != os.getpid()


def test_a_handler_enqueues_into_the_same_queue(app: Yaoki) -> None:
    made = outcome(app, "enqueue", text="further").result

    assert isinstance(made, int)
    assert app.wait(made, timeout=30).result == "further"


@pytest.mark.parametrize("how", ["segmentation fault", "os._exit(3)"])
def test_what_a_handler_had_started_dies_with_its_process(
    app: Yaoki, tmp_path: Path, how: str
) -> None:
    file = tmp_path / "pid"
    ended = outcome(app, "children", file=str(file), how=how)
    child = int(file.read_text())

    assert ended.status == "failed"
    eventually(lambda: not is_alive(child))


def test_a_process_killed_while_it_is_idle_is_replaced_before_the_next_job(app: Yaoki) -> None:
    for _ in range(3):
        idle = outcome(app, "pid").result
        assert isinstance(idle, int)
        os.kill(idle, signal.SIGKILL)
        after = outcome(app, "pid")

        assert (after.status, after.attempt, after.errors) == ("completed", 1, ())
        assert after.result != idle


@pytest.mark.parametrize("kind", ["memory", "async memory"])
def test_memory_beyond_the_limit_cannot_be_had(app: Yaoki, kind: str) -> None:
    before = outcome(app, "modest")
    ended = outcome(app, kind)

    assert before.status == "completed"
    assert ended.status == "failed"
    assert ended.error == "MemoryError: it needed more than its memory limit of 200 MB"


def test_memory_that_the_system_does_not_count_is_seen_and_the_process_killed(app: Yaoki) -> None:
    ended = outcome(app, "shared memory")

    assert ended.error == (
        "ProcessDied: it used more memory than its limit of 200 MB, so its process was killed"
    )


def test_a_limit_that_is_too_small_for_anything_ends_the_job(app: Yaoki) -> None:
    ended = outcome(app, "next to nothing")

    assert ended.error == "MemoryError: it needed more than its memory limit of 1 MB"
    assert outcome(app, "echo", text="next").result == "next"


def test_memory_that_an_earlier_job_has_left_taken_is_not_held_against_the_next(
    app: Yaoki,
) -> None:
    hoarder = outcome(app, "hoard").result
    [pid, size] = outcome(app, "modest").result

    assert size == 20_000_000
    assert pid != hoarder


def test_a_process_that_ran_out_of_memory_is_not_used_again(app: Yaoki) -> None:
    before = outcome(app, "pid").result
    outcome(app, "memory")

    assert outcome(app, "pid").result != before


def test_a_c_extension_that_never_returns_is_killed_at_its_limit(
    app: Yaoki, worker: Working
) -> None:
    job = app.enqueue("sleep in C", {"seconds": 600})
    ended = app.wait(job, timeout=30)

    assert ended.error == "TimeLimitExceeded: ran longer than its time limit of 500 ms"
    assert "in hold_the_lock" in str(ended.errors[0].traceback)
    eventually(lambda: worker.worker.slots.leaked == 0)
    took = ended.attempts[0].ended_at - ended.attempts[0].claimed_at
    assert took.total_seconds() < 15


def test_an_async_handler_that_swallows_its_cancellation_is_killed_at_its_limit(
    app: Yaoki,
) -> None:
    ended = outcome(app, "await for long")

    assert ended.error == "TimeLimitExceeded: ran longer than its time limit of 500 ms"


def test_a_limit_of_next_to_no_time_is_that_of_the_handler(
    app: Yaoki, worker: Working, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs from when a process has the job, and that can be killed from then on."""
    jobs = [app.enqueue("sleep in C", {"seconds": 600}, timeout=0.001) for _ in range(3)]
    ended = [app.wait(job, timeout=30) for job in jobs]

    assert {job.error for job in ended} == {
        "TimeLimitExceeded: ran longer than its time limit of 1 ms"
    }
    assert caplog.text.count("for good: TimeLimitExceeded") == 3
    assert "cannot be stopped" not in caplog.text
