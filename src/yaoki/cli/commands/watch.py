"""Following a job until it ends."""

from collections.abc import Iterator

import click

from yaoki.app import Yaoki
from yaoki.cli.exits import DONE, FAILED
from yaoki.cli.show.as_json import show_json
from yaoki.cli.show.bar import Bar, bar
from yaoki.cli.show.hidden import hidden
from yaoki.cli.show.sheet import progress_in_words
from yaoki.cli.show.situation import Surroundings, situation
from yaoki.cli.show.times import moment
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.core.job import Job, Progress
from yaoki.core.states import Status

LOOK_EVERY = 0.2
"""Seconds, where other processes cannot be heard; progress is written four times a second."""


@click.command()
@click.argument("job_id", metavar="ID", type=int)
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for every change.")
@target_options
@pass_target
def watch(target: Target, job_id: int, as_json: bool) -> int:
    """Follow a job until it ends.

    Shows every change of its status, and its progress.

    \b
    Exit codes: 0 it completed; 1 it failed or was cancelled, or there is no such job.
    Stop watching with Ctrl-C; the job goes on.
    """
    client = target.existing()
    if as_json:
        return _followed_as_json(client, job_id)
    with bar() as shown:
        return _followed(client, job_id, shown)


def changes(client: Yaoki, job_id: int) -> Iterator[Job]:
    """The job as it is now and after each visible change, until it has ended."""
    bell = client.store.watch()
    try:
        seen = 0
        while True:
            job = client.get(job_id)
            if job.revision != seen:
                seen = job.revision
                yield job
            if job.is_final:
                return
            bell.wait(LOOK_EVERY)
    finally:
        bell.close()


def _followed(client: Yaoki, job_id: int, shown: Bar) -> int:
    status, progress = "", None
    code = FAILED
    for job in changes(client, job_id):
        around = Surroundings.of(client)
        moved = None if job.progress == progress else job.progress
        if moved is not None and job.is_final:
            _show_progress(shown, moved)
        if moved is None or job.status != status:
            news = str(situation(job, around))
            shown.say(f"{moment(job.updated_at, around.present)}  {news}")
        if moved is not None and not job.is_final:
            _show_progress(shown, moved)
        status, progress = job.status, job.progress
        code = _code(job)
    return code


def _followed_as_json(client: Yaoki, job_id: int) -> int:
    code = FAILED
    for job in changes(client, job_id):
        show_json(hidden(client, job).to_dict(), indent=None)
        code = _code(job)
    return code


def _show_progress(shown: Bar, progress: Progress) -> None:
    shown.show(progress.fraction, progress_in_words(progress))


def _code(job: Job) -> int:
    return DONE if job.status is Status.COMPLETED else FAILED
