"""Is everything healthy, and what to do if not."""

import os
import sys
from datetime import timedelta

import click

from yaoki.cli import exits
from yaoki.cli.show.as_json import show_json
from yaoki.cli.show.text import one_line, padded
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.cli.typed import DURATION
from yaoki.core.health import Check
from yaoki.health import LONGEST_WAIT, Health

COLOURS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command()
@click.option(
    "--longest-wait",
    metavar="DURATION",
    callback=DURATION,
    help="Warn of jobs that have been ready for longer than that: 30s, 5m (unless given), 2h.",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@target_options
@pass_target
def doctor(target: Target, longest_wait: timedelta | None, as_json: bool) -> int:
    """Say whether all is well, and what to do if not.

    The database, the workers, and what waits are looked at. Exit code 0: there is no problem,
    though there may be warnings; 1: there is a problem. Nothing is changed.
    """
    health = target.client().health(
        longest_wait=LONGEST_WAIT if longest_wait is None else longest_wait
    )
    if as_json:
        show_json(health.to_dict())
    else:
        _show(health)
    return exits.DONE if health.ok else exits.FAILED


def _show(health: Health) -> None:
    code_room = max(len(check.code) for check in health.checks)
    for check in health.checks:
        for line in _lines(check, code_room):
            click.echo(line)
    click.echo(_verdict(health))


def _lines(check: Check, code_room: int) -> list[str]:
    level = click.style(padded(check.level, 7), fg=COLOURS[check.level]) if _is_fine() else ""
    level = level or padded(check.level, 7)
    told = [f"{level}  {padded(check.code, code_room)}  {one_line(check.message)}"]
    if check.level != "ok" and check.advice:
        told.append(f"{' ' * (11 + code_room)}-> {one_line(check.advice)}")
    return told


def _verdict(health: Health) -> str:
    counts = [
        f"{len(found)} {what}{'' if len(found) == 1 else 's'}"
        for what, found in (("problem", health.problems), ("warning", health.warnings))
        if found
    ]
    return ", ".join(counts) if counts else "all is well"


def _is_fine() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
