"""Making a job by hand."""

import sys
from typing import Any

import click

from yaoki.cli.exits import say
from yaoki.cli.show.situation import Surroundings, situation
from yaoki.cli.show.times import now
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.cli.typed import DURATION, INSTANT, PRIORITY
from yaoki.core.payloads import parse_object


@click.command()
@click.argument("type_name", metavar="TYPE")
@click.argument("payload", metavar="[JSON]", default="{}")
@click.option("--key", "idempotency_key", help="One job for all that is enqueued with this key.")
@click.option(
    "--priority",
    callback=PRIORITY,
    metavar="P",
    help="low, medium, high, critical, or -100 to 100.",
)
@click.option("--delay", callback=DURATION, metavar="TIME", help="Not before this has passed.")
@click.option(
    "--run-at",
    callback=INSTANT,
    metavar="INSTANT",
    help="Not before 2026-12-24T18:00+09:00, or …Z.",
)
@click.option("--queue", help="The line in which it waits.")
@click.option("--max-attempts", type=int, metavar="N", help="The first run included.")
@click.option("--timeout", callback=DURATION, metavar="TIME", help="What one attempt may take.")
@click.option("--tag", "tags", multiple=True, help="A word to keep with it; may be repeated.")
@target_options
@pass_target
def enqueue(target: Target, /, type_name: str, payload: str, **said: Any) -> None:
    """Have a job of TYPE done; print its id.

    JSON is the object of its arguments, {} unless given; - reads it from standard input, which
    keeps it out of the shell's history. TIME is seconds, or 30s, 5m, 2h, 1d. What is not said is
    as the job type's definition says.
    """
    text = sys.stdin.read() if payload == "-" else payload
    arguments = parse_object(text, "the payload")
    options = {name: value for name, value in said.items() if value not in (None, ())}
    job = target.client().enqueue(type_name, arguments, **options)
    click.echo(str(job.id))
    if not job.created:
        state = situation(job, Surroundings(now())).word
        say(f"job {job.id} has this key already ({state}), so no other was made")
