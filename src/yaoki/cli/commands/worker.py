"""Running jobs."""

from collections.abc import Sequence
from datetime import timedelta

import click

from yaoki.cli import exits
from yaoki.cli.logs import Form, log_to_stderr
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.cli.typed import DURATION, QUEUE_LIMIT
from yaoki.cli.worker_child import WorkerOrder
from yaoki.cli.worker_child import main as in_each_process
from yaoki.supervisor import Supervisor, SupervisorSettings

LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.option(
    "--queue",
    "queues",
    callback=QUEUE_LIMIT,
    metavar="NAME[=N]",
    multiple=True,
    help="Serve this queue (all of them unless said), at most N of its jobs at once in each "
    "process; may be repeated.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 1_000),
    metavar="N",
    default=1,
    show_default=True,
    help="Processes that run jobs.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=10,
    show_default=True,
    help="Jobs at once in each process.",
)
@click.option(
    "--lease-for",
    callback=DURATION,
    metavar="TIME",
    default="60s",
    show_default=True,
    help="How long a job stays this worker's without a sign of life.",
)
@click.option(
    "--grace",
    callback=DURATION,
    metavar="TIME",
    default="30s",
    show_default=True,
    help="What running jobs get to finish in after SIGTERM or Ctrl-C.",
)
@click.option(
    "--until-empty",
    is_flag=True,
    help="Stop when nothing is running, due, or waiting for a retry.",
)
@click.option(
    "--max-wait",
    callback=DURATION,
    metavar="TIME",
    help="With --until-empty: do not wait longer than this for a retry.",
)
@click.option(
    "--recycle-after",
    type=click.IntRange(1),
    metavar="N",
    help="Replace a process after so many jobs.",
)
@click.option(
    "--recycle-above",
    type=click.IntRange(1),
    metavar="MB",
    help="Replace a process that uses more memory than so many megabytes.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="For development: replace the processes when a source file changes.",
)
@click.option(
    "--log",
    "log_form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="How to log: as text, or a JSON object for each event.",
)
@click.option(
    "--log-level", type=click.Choice(LEVELS), default="info", show_default=True,
    help="What to log to stderr, a line for each event.",
)  # fmt: skip
@target_options
@pass_target
def worker(
    target: Target,
    queues: Sequence[tuple[str, int | None]],
    processes: int,
    concurrency: int,
    lease_for: timedelta,
    grace: timedelta,
    until_empty: bool,
    max_wait: timedelta | None,
    recycle_after: int | None,
    recycle_above: int | None,
    reload: bool,
    log_form: Form,
    log_level: str,
) -> int:
    """Run the jobs of --app until SIGTERM or Ctrl-C.

    In processes that are minded: one that dies is replaced, and its jobs are not lost.
    After the first signal nothing more is claimed, and what runs gets --grace to finish; a second
    signal stops at once. Jobs that do not finish are handed back without losing an attempt. TIME
    is seconds, or 30s, 5m, 2h, 1d.

    \b
    Exit codes:
      0    everything that had begun was finished
      1    something was handed back after the grace period; or nothing could begin
      2    wrong usage
      130  stopped at once by a second Ctrl-C (128 + the signal: 143 for SIGTERM)
    """
    if max_wait is not None and not until_empty:
        raise click.UsageError("--max-wait goes with --until-empty")
    order = WorkerOrder(
        app=target.needed_app_name(),
        url=target.url,
        url_was_typed=target.url_was_typed,
        limits=_limits(queues),
        concurrency=concurrency,
        lease_for=lease_for.total_seconds(),
        grace=grace.total_seconds(),
        until_empty=until_empty,
        max_wait=None if max_wait is None else max_wait.total_seconds(),
        log_level=log_level,
        log_form=log_form,
    )
    settings = SupervisorSettings(
        processes=processes,
        grace=order.grace,
        until_empty=until_empty,
        recycle_after=recycle_after,
        recycle_above=None if recycle_above is None else recycle_above * 2**20,
        reload=reload,
    )
    log_to_stderr(log_level, log_form)
    entry = f"{in_each_process.__module__}:{in_each_process.__name__}"
    return Supervisor(settings, entry, order, exits.say).run()


def _limits(queues: Sequence[tuple[str, int | None]]) -> dict[str, int | None]:
    limits: dict[str, int | None] = {}
    for name, limit in queues:
        if name in limits:
            raise click.UsageError(f"--queue {name} is there twice")
        limits[name] = limit
    return limits
