"""Everything about one job, on a sheet."""

from collections.abc import Iterator, Sequence
from datetime import datetime

import click

from yaoki.cli.show.as_json import as_json
from yaoki.cli.show.situation import Surroundings, situation
from yaoki.cli.show.text import lines, one_line, padded
from yaoki.cli.show.times import ago, ahead, moment, took
from yaoki.core.job import Attempt, Job, Progress
from yaoki.core.log_lines import LogLine
from yaoki.core.times import in_words

INDENT = "  "


def show_sheet(job: Job, around: Surroundings, log: Sequence[LogLine] = ()) -> None:
    """Print the sheet of a job whose secret values are hidden already, with its log."""
    click.echo(f"job {job.id}: {one_line(job.type)}")
    for label, value in _facts(job, around):
        click.echo(f"{INDENT}{padded(label, 13)} {one_line(value)}")
    _show_json("payload", job.payload)
    if job.result is not None:
        _show_json("result", job.result)
    _show_attempts(job, around.present)
    _show_log(log, around.present)


def progress_in_words(progress: Progress) -> str:
    """How far a job says it is, as in "3 of 10 (30%) rendering"."""
    said = f"{progress.done:g}"
    if progress.total is not None:
        said += f" of {progress.total:g}"
    if progress.fraction is not None:
        said += f" ({progress.fraction:.0%})"
    return f"{said} {progress.message}" if progress.message else said


def _facts(job: Job, around: Surroundings) -> Iterator[tuple[str, str]]:
    present = around.present
    yield "status", str(situation(job, around))
    yield "queue", job.queue
    yield "priority", f"{job.priority} ({job.priority_label})"
    yield "attempts", f"{job.attempt} of {job.max_attempts} used"
    yield "timeout", "none" if job.timeout is None else f"{in_words(job.timeout)} an attempt"
    if job.idempotency_key is not None:
        yield "key", job.idempotency_key
    if job.tags:
        yield "tags", ", ".join(job.tags)
    yield "created", _when(job.created_at, present)
    yield "run at", _when(job.run_at, present)
    if job.worker_id is not None:
        yield "worker", job.worker_id
    if job.lease_expires_at is not None:
        yield "lease expires", _when(job.lease_expires_at, present)
    if job.cancel_requested_at is not None:
        yield "cancelling", f"asked for at {_when(job.cancel_requested_at, present)}"
    if job.finished_at is not None:
        yield "finished", _when(job.finished_at, present)
    if job.progress is not None:
        yield "progress", progress_in_words(job.progress)
    if job.error is not None:
        yield "error", job.error
    if turned := _turned(job):
        yield "also", turned


def _turned(job: Job) -> str:
    counts = (
        (job.releases, "handed back"),
        (job.snoozes, "put off by its handler"),
        (job.rescues, "taken back from a silent or dead worker"),
    )
    return ", ".join(f"{what} {count}x" for count, what in counts if count)


def _when(instant: datetime, present: datetime) -> str:
    distance = ahead(instant, present) if instant > present else ago(instant, present)
    return f"{moment(instant, present)} ({distance})"


def _show_json(title: str, value: object) -> None:
    click.echo(f"{INDENT}{title}")
    for line in as_json(value).split("\n"):
        click.echo(f"{INDENT * 2}{line}")


def _show_attempts(job: Job, present: datetime) -> None:
    if not job.attempts:
        return
    click.echo(f"{INDENT}attempts that ended")
    for attempt in job.attempts:
        click.echo(f"{INDENT * 2}{one_line(_attempt(attempt, present))}")
        if attempt.error:
            click.echo(f"{INDENT * 4}{one_line(attempt.error)}")
        for line in lines((attempt.traceback or "").rstrip("\n")) if attempt.traceback else ():
            click.echo(f"{INDENT * 4}| {line}")


def _show_log(log: Sequence[LogLine], present: datetime) -> None:
    if not log:
        return
    click.echo(f"{INDENT}log")
    before: LogLine | None = None
    for line in log:
        if before is None or before.token != line.token:
            click.echo(f"{INDENT * 2}attempt {line.attempt}")
            if line.number > 1:
                click.echo(f"{INDENT * 4}… {line.number - 1} older lines were not kept")
        first, *more = lines(line.text.rstrip("\n"))
        said = first if line.level == "info" else f"{line.level}: {first}"
        click.echo(f"{INDENT * 4}{moment(line.at, present)}  {said}")
        for one in more:
            click.echo(f"{INDENT * 4}| {one}")
        before = line


def _attempt(attempt: Attempt, present: datetime) -> str:
    begun = attempt.started_at or attempt.claimed_at
    ran = "did not begin" if attempt.started_at is None else f"took {took(begun, attempt.ended_at)}"
    by = f" by {attempt.worker_id}" if attempt.worker_id else ""
    return f"{attempt.attempt}. {attempt.outcome} at {moment(attempt.ended_at, present)}, {ran}{by}"
