"""Listing jobs, and looking at one."""

from typing import Any

import click

from yaoki.cli.exits import say
from yaoki.cli.show.as_json import show_json
from yaoki.cli.show.hidden import hidden
from yaoki.cli.show.sheet import show_sheet
from yaoki.cli.show.situation import Surroundings, situation
from yaoki.cli.show.table import COLOURS, Column, show_table
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.core.job import Job
from yaoki.core.priority import LABELS
from yaoki.core.states import Status
from yaoki.store.ops.listing import Page

_COLUMNS = (
    Column("ID", right=True),
    Column("TYPE", gives=True),
    Column("QUEUE", gives=True),
    Column("PRIORITY"),
    Column("STATUS", colours=COLOURS),
    Column("", gives=True),
)


@click.command()
@click.option(
    "--status",
    type=click.Choice([status.value for status in Status]),
    help="Only jobs of this status.",
)
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--type", help="Only jobs of this type.")
@click.option("--worker", "worker_id", metavar="ID", help="Only jobs of this worker.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=50,
    show_default=True,
    help="How many, at most.",
)
@click.option("--cursor", help="The page behind this one; the list before says which.")
@click.option("--json", "as_json", is_flag=True, help="As JSON, with the cursor.")
@target_options
@pass_target
def jobs(target: Target, /, as_json: bool, **filters: Any) -> None:
    """List jobs, newest first.

    STATUS tells pending ones apart: ready (may run now), delayed (its time has not come) and
    retrying (failed, waits for its next attempt).
    """
    client = target.existing()
    page = client.jobs(**filters)
    if as_json:
        show_json({"jobs": [job.to_dict() for job in page], "cursor": page.cursor})
        return
    if not page:
        click.echo("there are no such jobs" if _is_filtered(filters) else "there are no jobs")
        return
    show_jobs(page, Surroundings.of(client))
    if page.cursor is not None:
        say(f"there are more; the next page: --cursor {page.cursor}")


@click.command()
@click.argument("job_id", metavar="ID", type=int)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@target_options
@pass_target
def job(target: Target, job_id: int, as_json: bool) -> None:
    """Show everything about a job.

    Its payload and result, every attempt with its worker, error and traceback, and what its
    handler wrote with ctx.log. Values that the job type calls secret are shown as ***.
    """
    client = target.existing()
    found = hidden(client, client.get(job_id))
    log = client.logs(job_id)
    if as_json:
        show_json(full_dict(found) | {"log": [line.to_dict() for line in log]})
    else:
        show_sheet(found, Surroundings.of(client), log)


def show_jobs(page: Page | list[Job], around: Surroundings) -> None:
    """Print a table of jobs."""
    show_table(_COLUMNS, [_row(job, around) for job in page])


def full_dict(job: Job) -> dict[str, object]:
    """The job as JSON shows it, with the attempts in which nothing went wrong too."""
    return job.to_dict() | {"attempts": [attempt.to_dict() for attempt in job.attempts]}


def _row(job: Job, around: Surroundings) -> list[str]:
    what = situation(job, around)
    return [str(job.id), job.type, job.queue, _priority(job), what.word, what.detail]


def _priority(job: Job) -> str:
    """The label, and the number where the label does not say it."""
    label = job.priority_label
    return label if LABELS[label] == job.priority else f"{label} ({job.priority})"


def _is_filtered(filters: dict[str, Any]) -> bool:
    return any(value is not None for name, value in filters.items() if name != "limit")
