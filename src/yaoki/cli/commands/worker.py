"""Running jobs."""

import logging
from collections.abc import Sequence
from datetime import timedelta

import click

from yaoki.cli.logs import log_to_stderr
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.cli.typed import DURATION, QUEUE_LIMIT
from yaoki.store import without_password

log = logging.getLogger("yaoki.cli")

LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.option(
    "--queue",
    "queues",
    callback=QUEUE_LIMIT,
    metavar="NAME[=N]",
    multiple=True,
    help="Serve this queue (all of them unless said), at most N of its jobs at once; "
    "may be repeated.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    metavar="N",
    default=10,
    show_default=True,
    help="Jobs at once, in total.",
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
    "--log-level", type=click.Choice(LEVELS), default="info", show_default=True,
    help="What to log to stderr, a line for each event.",
)  # fmt: skip
@target_options
@pass_target
def worker(
    target: Target,
    queues: Sequence[tuple[str, int | None]],
    concurrency: int,
    lease_for: timedelta,
    grace: timedelta,
    until_empty: bool,
    max_wait: timedelta | None,
    log_level: str,
) -> int:
    """Run the jobs of --app until SIGTERM or Ctrl-C.

    After the first signal nothing more is claimed, and what runs gets --grace to finish; a second
    signal stops at once. Jobs that do not finish are handed back without losing an attempt. TIME
    is seconds, or 30s, 5m, 2h, 1d.

    \b
    Exit codes:
      0    everything that had begun was finished
      1    the grace period was over, and something was handed back
      2    wrong usage
      130  stopped at once by a second Ctrl-C (128 + the signal: 143 for SIGTERM)
    """
    if max_wait is not None and not until_empty:
        raise click.UsageError("--max-wait goes with --until-empty")
    limits = _limits(queues)
    target.app()
    app = target.client()
    # After the app was imported: where it sets logging up itself, that stands.
    log_to_stderr(log_level)
    served = app.worker(
        limits or None,
        concurrency=concurrency,
        lease_for=lease_for,
        grace=grace,
        until_empty=until_empty,
        max_wait=max_wait,
    )
    names = ", ".join(sorted(kind.name for kind in app.types))
    log.info("runs %s from %s", names, without_password(app.url))
    return served.run().exit_code


def _limits(queues: Sequence[tuple[str, int | None]]) -> dict[str, int | None]:
    limits: dict[str, int | None] = {}
    for name, limit in queues:
        if name in limits:
            raise click.UsageError(f"--queue {name} is there twice")
        limits[name] = limit
    return limits
