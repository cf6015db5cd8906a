from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from yaoki import Job, Worker, Yaoki
from yaoki.cli.show.situation import Surroundings, situation
from yaoki.core.outcomes import Snoozed, settle
from yaoki.store.ops.queues import PausedName
from yaoki.store.ops.settling import Held, Settlement, SettleOne


@pytest.fixture
def app(tmp_path: Path) -> Iterator[Yaoki]:
    made = Yaoki(f"sqlite:///{tmp_path / 'jobs.db'}?durability=normal")
    yield made
    made.close()


def test_a_due_job_is_ready(app: Yaoki) -> None:
    job = app.enqueue("mail", {})

    assert situation(job, _at(job, 3)) == ("ready", "waits 3 s")


def test_a_job_that_was_handed_back_says_so(app: Yaoki) -> None:
    app.enqueue("mail", {})
    [claimed] = app.claim("w")
    job = app.release(claimed)

    assert situation(job, _at(job, 0)) == ("ready", "waits 0 s, handed back 1 time")


def test_a_job_whose_time_has_not_come_is_delayed(app: Yaoki) -> None:
    job = app.enqueue("mail", {}, delay=300)

    word, detail = situation(job, _at(job, -300))

    assert word == "delayed"
    assert detail.startswith("in 5 min (")


def test_a_job_that_its_handler_put_off_says_so(app: Yaoki) -> None:
    app.enqueue("mail", {})
    [claimed] = app.claim("w")
    change = settle(Snoozed(60_000_000, "not yet"))
    job = app.store.run(SettleOne(Settlement(Held(claimed.id, claimed.lease or 0), change)))

    word, detail = situation(job, _at(job, -60))

    assert word == "delayed"
    assert detail.startswith("in 1 min (")
    assert detail.endswith("), put off by its handler")


@pytest.mark.parametrize(("seconds", "when"), [(-10, "in 10 s"), (2, "now")])
def test_a_job_that_failed_waits_for_its_retry(app: Yaoki, seconds: int, when: str) -> None:
    app.enqueue("mail", {}, max_attempts=3)
    [claimed] = app.claim("w")
    job = app.fail(claimed, "refused", retry_in=10)

    assert situation(job, _at(job, seconds)) == ("retrying", f"retry 1/2 {when}: refused")


def test_who_runs_a_job_and_how_far_it_is_can_be_seen(app: Yaoki) -> None:
    app.enqueue("mail", {})
    [job] = app.claim("web-1")

    word, detail = situation(job, _at(job, 0))

    assert word == "running"
    assert detail.startswith("by web-1 since ")


def test_a_running_job_that_was_cancelled_is_being_cancelled(app: Yaoki) -> None:
    app.enqueue("mail", {})
    [claimed] = app.claim("web-1")
    job = app.cancel(claimed)

    assert situation(job, _at(job, 0)).word == "cancelling"


def test_a_completed_job_tells_of_its_failures(app: Yaoki) -> None:
    app.enqueue("mail", {})
    [first] = app.claim("w")
    app.fail(first, "refused", retry_in=0)
    [second] = app.claim("w")
    job = app.complete(second)

    word, detail = situation(job, _at(job, 0))

    assert word == "completed"
    assert detail.startswith("after 1 failure, at ")


@pytest.mark.parametrize(
    ("types", "queues", "silent", "why"),
    [
        (("fax",), None, False, "no worker knows this type, "),
        (("mail",), ("slow",), False, "no worker that knows this type serves its queue, "),
        (("mail",), ("default",), False, ""),
        (("mail",), None, False, ""),
        (("fax",), None, True, ""),
    ],
)
def test_that_no_worker_will_take_a_job_is_said_when_there_are_workers(
    app: Yaoki, types: tuple[str, ...], queues: tuple[str, ...] | None, silent: bool, why: str
) -> None:
    job = app.enqueue("mail", {})
    seen = job.created_at
    worker = Worker("w", "h", 1, "0", queues, types, 10, "working", seen, seen, silent)

    around = Surroundings(job.run_at, [worker])

    assert situation(job, around) == ("ready", f"{why}waits 0 s")


@pytest.mark.parametrize(
    ("kind", "name", "why"),
    [("queue", "default", "its queue is paused, "), ("type", "mail", "its type is paused, ")],
)
def test_that_a_job_is_held_back_is_said(app: Yaoki, kind: str, name: str, why: str) -> None:
    job = app.enqueue("mail", {})
    paused = [PausedName(kind, name, job.created_at), PausedName("queue", "fax", job.created_at)]  # type: ignore[arg-type]

    around = Surroundings(job.run_at, (), paused)

    assert situation(job, around) == ("ready", f"{why}waits 0 s")


def _at(job: Job, seconds: float) -> Surroundings:
    """So many seconds after the job was due, with nobody there."""
    return Surroundings(job.run_at + timedelta(seconds=seconds))
