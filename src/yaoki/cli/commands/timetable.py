"""When each attempt of a job would run."""

from datetime import timedelta
from typing import Any

import click

from yaoki.cli.exits import DONE, FAILED, CommandFailed
from yaoki.cli.show.as_json import show_json
from yaoki.cli.show.table import Column, show_table
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.cli.typed import DURATION
from yaoki.core.backoff import backoff_from, exponential
from yaoki.core.definition import Definition
from yaoki.core.retry import MAX_ATTEMPTS, MOST_WITHIN, RetryPolicy, Row, Timetable
from yaoki.core.times import in_words

MOST_SHOWN = 30

_COLUMNS = (
    Column("ATTEMPT", right=True),
    Column("AT THE EARLIEST", right=True),
    Column("AT THE LATEST", right=True),
)


@click.command()
@click.argument("type_name", metavar="[TYPE]", required=False)
@click.option(
    "--max-attempts", type=click.IntRange(1, MAX_ATTEMPTS), metavar="N", help="With the first."
)
@click.option(
    "--first", callback=DURATION, metavar="TIME", help="The first wait; 10 s unless said."
)
@click.option("--factor", type=float, help="What each wait is multiplied by; 2 unless said.")
@click.option(
    "--cap", callback=DURATION, metavar="TIME", help="No wait is longer; 10 min unless said."
)
@click.option(
    "--patience", callback=DURATION, metavar="TIME", help="Does the last attempt start within?"
)
@click.option("--json", "as_json", is_flag=True, help="As JSON; seconds after the first attempt.")
@target_options
@pass_target
def timetable(
    target: Target,
    /,
    type_name: str | None,
    patience: timedelta | None,
    as_json: bool,
    **said: Any,
) -> int:
    """Show when each attempt of a job would run.

    That is, if every one failed at once.

    The policy is that of the job type TYPE (of --app, or as its workers published it), or the
    one that the options spell out: --max-attempts 5 --first 10 --cap 600 --factor 2. TIME is
    seconds, or 30s, 5m, 2h, 1d.

    \b
    Exit codes: 0 shown; 1 it does not fit in --patience, or nobody knows the type.
    """
    options = {name: value for name, value in said.items() if value is not None}
    if type_name is not None and options:
        raise click.UsageError("name a job type, or spell a policy out, and not both")
    if type_name is None:
        policy, note = _spelt_out(options), None
    else:
        policy, note = _policy_of(type_name, target)
    table = policy.timetable()
    if as_json:
        show_json(_dict(type_name, table, patience))
    else:
        _show(table, note)
    return _answer(policy, table, patience, quiet=as_json)


def _spelt_out(options: dict[str, Any]) -> RetryPolicy:
    attempts = options.pop("max_attempts", None)
    return RetryPolicy(max_attempts=attempts, backoff=exponential(**options))


def _policy_of(type_name: str, target: Target) -> tuple[RetryPolicy, str | None]:
    client = target.client() if target.app_name else target.existing()
    kind = client.types.get(type_name)
    if kind is not None:
        return kind.retry, None
    published = _published(target)
    definition = published.get(type_name)
    if definition is None:
        known = ", ".join(sorted({*published, *(kind.name for kind in client.types)}))
        there = (
            f"there are {known}" if known else "no worker has published any, and --app names none"
        )
        raise CommandFailed(f"nobody knows a job type {type_name!r}; {there}")
    policy = RetryPolicy(definition.max_attempts, backoff_from(definition.backoff))
    if (definition.backoff or {}).get("own"):
        return policy, (
            "the waits are a function of the app's own, which is not published; these are the "
            "default's, and --app shows the real ones"
        )
    return policy, None


def _published(target: Target) -> dict[str, Definition]:
    try:
        return target.existing().definitions()
    except CommandFailed:  # an app may be asked before it has a database
        if target.app_name is None:
            raise
        return {}


def _show(table: Timetable, note: str | None) -> None:
    rows = [_cells(row) for row in table.rows[:MOST_SHOWN]]
    if len(table.rows) > MOST_SHOWN:
        rows += [["…", "…", "…"], _cells(table.rows[-1])]
    show_table(_COLUMNS, rows)
    click.echo()
    if len(table.rows) > 1:
        click.echo(f"The last one starts {_span(table)} after the first, plus what they take.")
    else:
        click.echo("There is one attempt, and no retry.")
    if note:
        click.echo(f"Note: {note}.")


def _span(table: Timetable) -> str:
    shortest, longest = in_words(table.total_earliest), in_words(table.total_latest)
    return longest if shortest == longest else f"{shortest} to {longest}"


def _answer(
    policy: RetryPolicy, table: Timetable, patience: timedelta | None, *, quiet: bool
) -> int:
    if patience is None:
        return DONE
    within = in_words(patience.total_seconds())
    fits = table.fits(patience)
    if not quiet:
        click.echo(f"It fits in {within}." if fits else _too_long(policy, patience, within))
    return DONE if fits else FAILED


def _too_long(policy: RetryPolicy, patience: timedelta, within: str) -> str:
    fitting = RetryPolicy.within(patience, policy.backoff).max_attempts
    most = "at least " if fitting == MOST_WITHIN else ""
    return f"It does not fit in {within}; with --max-attempts {most}{fitting} it does."


def _cells(row: Row) -> list[str]:
    return [str(row.attempt), _after(row.earliest), _after(row.latest)]


def _after(seconds: float) -> str:
    return f"after {in_words(seconds)}" if seconds else "at once"


def _dict(type_name: str | None, table: Timetable, patience: timedelta | None) -> dict[str, object]:
    return {
        "type": type_name,
        "max_attempts": len(table.rows),
        "attempts": [row._asdict() for row in table.rows],
        "total_earliest": table.total_earliest,
        "total_latest": table.total_latest,
        "patience": None if patience is None else patience.total_seconds(),
        "fits": None if patience is None else table.fits(patience),
    }
