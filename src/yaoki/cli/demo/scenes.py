"""The scenes of the story. Each makes its jobs, tells what is seen, and checks that it is so."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from yaoki.cli.demo import shop
from yaoki.cli.demo.mail_server import moody_mail_server
from yaoki.cli.demo.stage import Stage
from yaoki.cli.show.bar import bar
from yaoki.cli.show.times import moment
from yaoki.core.job import Job
from yaoki.core.states import Status
from yaoki.core.times import in_words
from yaoki.store.ops.workers import Worker

MAILS = 100
LABELS = 3
ORDERS = 8


class Told(NamedTuple):
    """What the table at the end says of some jobs."""

    jobs: Sequence[Job]
    story: str


def bulk_sign_up(stage: Stage) -> list[Told]:
    """Many jobs with one call, and a bar that follows them."""
    began = time.monotonic()
    made = shop.welcome_mail.enqueue_many(
        [{"address": f"customer{number}@example.com"} for number in range(MAILS)]
    )
    stage.title("bulk", count=MAILS, took=in_words(time.monotonic() - began))
    with bar(step=0.25) as shown:

        def all_sent() -> bool | None:
            left = sum(one.due + one.delayed + one.running for one in stage.app.queues())
            done = MAILS - left
            shown.show(done / MAILS, stage.words("bulk bar", done=done, count=MAILS))
            return True if left == 0 else None

        stage.until(all_sent, "all welcome mails to be sent")
    jobs = [stage.app.get(job) for job in made]
    for job in jobs:
        _check_completed(stage, job, runs=1)
    stage.tell("bulk done", count=MAILS)
    return [Told(jobs, stage.words("story bulk"))]


def moody_server(stage: Stage) -> list[Told]:
    """Two time-outs, and the third attempt works."""
    stage.title("mail")
    with moody_mail_server(silent_calls=2) as port:
        job = _told_with_errors(stage, shop.order_mail.enqueue("yamada@example.com", port))
    _check_completed(stage, job, runs=3)
    errors = [attempt.error or "" for attempt in job.errors]
    stage.check(all(error.startswith("TimeoutError") for error in errors), "two time-outs")
    stage.check(job.error is None and len(errors) == 2, "its error to be cleared, not its errors")
    answer = job.result["server"] if isinstance(job.result, dict) else None
    stage.tell("mail done", answer=answer)
    return [Told([job], stage.words("story mail"))]


def no_image(stage: Stage) -> list[Told]:
    """A job that dies, is looked at, and is put back."""
    stage.title("image")
    file = stage.folder / "logo.png"
    file.write_bytes(b"<html>404 Not Found</html>")
    dead = _told_with_errors(stage, shop.resize_image.enqueue(str(file)))
    stage.check(dead.status is Status.FAILED and dead.attempt == 3, "the job to be failed")
    stage.tell("image dead", attempts=dead.attempt)
    stage.run_command("jobs", "--status", "failed")
    stage.tell("image fix")
    _repair(file)
    stage.run_command("retry", str(dead.id))
    job = stage.ended(dead)
    _check_completed(stage, job, runs=4)
    stage.tell("image done", errors=len(job.errors))
    return [Told([job], stage.words("story image"))]


def same_event_twice(stage: Stage) -> list[Told]:
    """One idempotency key, one job."""
    stage.title("twice")
    first = shop.add_points.enqueue(order=1001, points=100)
    second = shop.add_points.enqueue(order=1001, points=100)
    stage.check(first.id == second.id and not second.created, "one job for one event")
    job = stage.ended(first)
    _check_completed(stage, job, runs=1)
    stage.tell("twice same", id=job.id)
    return [Told([job], stage.words("story twice"))]


def reminder_and_priorities(stage: Stage) -> list[Told]:
    """While one job waits for its time, another overtakes those before it."""
    stage.title("remind")
    made = shop.remind.using(delay=timedelta(seconds=2)).enqueue("the table is booked for 19:00")
    stage.tell("remind later", id=made.id, due=moment(made.run_at, datetime.now(UTC)))
    overtaken = _priorities(stage)
    job = stage.ended(made)
    _check_completed(stage, job, runs=1)
    began = job.attempts[0].started_at or job.attempts[0].claimed_at
    stage.check(began >= job.run_at, "the reminder not to be early")
    late = max((began - job.run_at).total_seconds(), 0.001)
    stage.title("remind done", late=in_words(late))
    return [Told([job], stage.words("story remind")), *overtaken]


def killed_worker(stage: Stage, first: Worker) -> list[Told]:
    """SIGKILL for the process that runs a job; another finishes it."""
    stage.title("kill")
    workers = [first, stage.start_worker()]
    stage.tell("kill second", pid=workers[1].pid)
    made = shop.import_orders.enqueue(orders=ORDERS)
    with bar(step=0.25) as shown:
        for job in stage.followed(made):
            pid = next((one.pid for one in workers if one.worker_id == job.worker_id), None)
            if job.progress is not None and pid is not None:
                done = f"{job.progress.done:g}"
                text = stage.words("kill bar", done=done, total=ORDERS, pid=pid)
                shown.show(job.progress.fraction, text)
                if job.attempt == 1 and job.progress.done >= 3:
                    break
    victim = next(one for one in workers if one.worker_id == job.worker_id)
    stage.kill(victim)
    stage.tell("killed", pid=victim.pid)
    held = stage.app.get(made)
    left = (held.lease_expires_at or held.updated_at) - datetime.now(UTC)
    stage.check(held.status is Status.RUNNING, "the job to be running still, for the database")
    stage.tell("kill lease", id=held.id, left=in_words(round(left.total_seconds(), 1)))
    job = stage.ended(made)
    _check_completed(stage, job, runs=2)
    heir = next((one for one in workers if one.worker_id == job.worker_id), victim)
    stage.check(heir is not victim, "another worker to have finished the job")
    stage.check("lease lost" in (job.errors[0].error or ""), "the lost lease to be on record")
    stage.tell("kill done", pid=heir.pid, attempt=job.attempt)
    return [Told([job], stage.words("story kill"))]


def _priorities(stage: Stage) -> list[Told]:
    stage.title("priority", count=LABELS)
    # Held back, so that all of them wait when the first is taken.
    stage.app.pause("printer")
    parcels = [stage.words("parcel", number=number) for number in range(1, LABELS + 1)]
    low = [shop.print_label.enqueue(parcel) for parcel in parcels]
    urgent = shop.print_label.using(priority="critical")
    critical = urgent.enqueue(stage.words("express"))
    stage.app.resume("printer")
    ended = [stage.ended(job) for job in (*low, critical)]
    for job in ended:
        _check_completed(stage, job, runs=1)
    taken = sorted(ended, key=lambda job: (job.claimed_at or job.updated_at, job.id))
    stage.check(
        [job.id for job in taken] == [critical.id, *(job.id for job in low)],
        "the critical one first, the others in their order",
    )
    stage.tell("priority order", count=LABELS)
    for place, job in enumerate(taken, 1):
        parcel, label = job.payload["parcel"], job.priority_label
        stage.tell("priority line", place=place, parcel=parcel, label=label)
    return [
        Told(taken[1:], stage.words("story low")),
        Told(taken[:1], stage.words("story critical")),
    ]


def _told_with_errors(stage: Stage, made: Job) -> Job:
    """Follow a job to its end, and tell every failed attempt."""
    told = 0
    job = made
    for job in stage.followed(made):
        for attempt in job.errors[told:]:
            stage.tell("attempt failed", attempt=attempt.attempt, error=attempt.error)
        if len(job.errors) > told and job.status is Status.PENDING:
            wait = (job.run_at - job.errors[-1].ended_at).total_seconds()
            stage.tell("again", wait=in_words(wait))
        told = len(job.errors)
    return job


def _repair(file: Path) -> None:
    file.write_bytes(shop.PNG + b"...")


def _check_completed(stage: Stage, job: Job, runs: int) -> None:
    stage.check(job.status is Status.COMPLETED, f"job {job.id} to complete, not be {job.status}")
    ran = len(job.attempts)
    stage.check(ran == runs, f"job {job.id} ({job.type}) to run {runs} times, not {ran}")
