"""The tables: made, and brought up to date."""

import click

from yaoki.cli.show.text import one_line
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.store.sqlite.once_table import make_once_table


@click.command()
@click.option(
    "--once",
    metavar="URL",
    help="Only make the table of yaoki.once() in another SQLite database, that of your effects.",
)
@target_options
@pass_target
def migrate(target: Target, once: str | None) -> None:
    """Make the tables in the database, or bring them up to date.

    Every command and worker does so by itself when it first writes; this does it beforehand, and
    says what it did. Running it again changes nothing.
    """
    if once is not None:
        made = make_once_table(once)
        click.echo(f"{one_line(once)}: {_made_once if made else _had_once}")
        return
    client = target.client()
    applied = client.migrate()
    for migration in applied:
        click.echo(f"applied {migration}")
    click.echo(f"{one_line(client.url)} is up to date")


_made_once = "the table yaoki_once was made"
_had_once = "the table yaoki_once is there already"
