"""Putting jobs back, stopping them, deleting them."""

from collections.abc import Callable, Sequence

import click

from yaoki.cli.exits import DONE, FAILED, say
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.core.errors import JobNotFound, WrongStatus

_ids = click.argument("job_ids", metavar="ID…", type=int, nargs=-1)


@click.command()
@_ids
@click.option("--all-failed", is_flag=True, help="Every failed job, instead of naming them.")
@click.option("--type", help="With --all-failed: only of this type.")
@click.option("--queue", help="With --all-failed: only of this queue.")
@target_options
@pass_target
def retry(
    target: Target,
    job_ids: Sequence[int],
    all_failed: bool,
    type: str | None,
    queue: str | None,
) -> int:
    """Put failed or cancelled jobs back.

    They start again with no attempts used, and keep their history. A job that waits, for its time
    or for a retry, runs now.
    """
    if bool(job_ids) == all_failed:
        raise click.UsageError("name the ids of jobs, or --all-failed, and not both")
    if (type or queue) and not all_failed:
        raise click.UsageError("--type and --queue narrow --all-failed; give it, or leave them out")
    client = target.existing()
    if all_failed:
        back = client.retry_failed(type=type, queue=queue)
        click.echo(f"{len(back)} {'job is' if len(back) == 1 else 'jobs are'} ready again")
        return DONE
    return _each(job_ids, lambda job_id: f"job {client.retry(job_id).id} is ready again")


@click.command()
@_ids
@target_options
@pass_target
def cancel(target: Target, job_ids: Sequence[int]) -> int:
    """End pending jobs at once; ask running ones to stop.

    A running job that was asked is shown as cancelling, and ends cancelled whatever its handler
    does.
    """
    _need(job_ids)
    client = target.existing()

    def cancelled(job_id: int) -> str:
        job = client.cancel(job_id)
        if job.being_cancelled:
            return f"job {job.id} is running on {job.worker_id}, and was asked to stop"
        return f"job {job.id} is cancelled"

    return _each(job_ids, cancelled)


@click.command()
@_ids
@target_options
@pass_target
def discard(target: Target, job_ids: Sequence[int]) -> int:
    """Delete jobs that have ended.

    Their history goes with them, and their idempotency keys are free again.
    """
    _need(job_ids)
    client = target.existing()

    def discarded(job_id: int) -> str:
        client.discard(job_id)
        return f"job {job_id} is deleted"

    return _each(job_ids, discarded)


def _need(job_ids: Sequence[int]) -> None:
    if not job_ids:
        raise click.UsageError("name the ids of one or more jobs")


def _each(job_ids: Sequence[int], act: Callable[[int], str]) -> int:
    """Do it to each of them, whatever happens to the others; FAILED when one was refused."""
    code = DONE
    for job_id in dict.fromkeys(job_ids):
        try:
            click.echo(act(job_id))
        except (JobNotFound, WrongStatus) as error:
            say(str(error))
            code = FAILED
    return code
