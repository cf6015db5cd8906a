"""Queues: how deep they are, and holding them, or a job type, back."""

import click

from yaoki.cli.show.as_json import show_json
from yaoki.cli.show.table import COLOURS, Column, show_table
from yaoki.cli.show.text import one_line
from yaoki.cli.show.times import moment, now, since
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.store.ops.queues import Queue

_COLUMNS = (
    Column("QUEUE", gives=True),
    Column("DUE", right=True),
    Column("DELAYED", right=True),
    Column("RUNNING", right=True),
    Column("FAILED", right=True),
    Column("LONGEST WAIT", right=True),
    Column("", colours=COLOURS),
)

_queue = click.argument("queue", metavar="[QUEUE]", required=False)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, with the types that are paused.")
@target_options
@pass_target
def queues(target: Target, as_json: bool) -> None:
    """List queues: how much waits, runs, failed.

    Those are listed that have open or failed jobs, or are paused. DELAYED counts jobs whose time
    has not come, and those that wait for a retry.
    """
    client = target.existing()
    found = client.queues()
    types = [one for one in client.paused() if one.kind == "type"]
    if as_json:
        show_json(
            {
                "queues": [queue.to_dict() for queue in found],
                "paused_types": [one.to_dict() for one in types],
            }
        )
        return
    if found:
        show_table(_COLUMNS, [_row(queue) for queue in found])
    else:
        click.echo("there are no open jobs in any queue, and none is paused")
    for one in types:
        paused_at = moment(one.paused_at, now())
        click.echo(f"jobs of type {one_line(one.name)} are paused since {paused_at}")


@click.command()
@_queue
@click.option("--type", help="Instead of a queue: the jobs of this type, in every queue.")
@target_options
@pass_target
def pause(target: Target, queue: str | None, type: str | None) -> None:
    """Let nobody claim jobs of QUEUE; those that run go on."""
    what, command = _named(queue, type)
    target.existing().pause(queue, type=type)
    click.echo(f"{what} is paused; yaoki resume {command} lets it go on")


@click.command()
@_queue
@click.option("--type", help="Instead of a queue: the jobs of this type, in every queue.")
@target_options
@pass_target
def resume(target: Target, queue: str | None, type: str | None) -> None:
    """Let jobs of QUEUE be claimed again."""
    what, _ = _named(queue, type)
    target.existing().resume(queue, type=type)
    click.echo(f"{what} is not paused any more")


def _named(queue: str | None, type: str | None) -> tuple[str, str]:
    """What was named, in words and as it is typed."""
    if (queue is None) == (type is None):
        raise click.UsageError("name a queue, or --type, and not both")
    if queue is not None:
        return f"queue {one_line(queue)}", one_line(queue)
    return f"job type {one_line(str(type))}", f"--type {one_line(str(type))}"


def _row(queue: Queue) -> list[str]:
    waits = "" if queue.oldest_due_at is None else since(queue.oldest_due_at, now())
    counts = (queue.due, queue.delayed, queue.running, queue.failed)
    return [queue.name, *map(str, counts), waits, "paused" if queue.paused else ""]
