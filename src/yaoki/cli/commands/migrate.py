"""The tables: made, and brought up to date."""

import click

from yaoki.cli.show.text import one_line
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.store import SQLiteStore, open_store, without_password
from yaoki.store.sqlite import once_table as sqlite


@click.command()
@click.option(
    "--once",
    metavar="URL",
    help="Only make the table of yaoki.once() in another database, that of your effects.",
)
@target_options
@pass_target
def migrate(target: Target, once: str | None) -> None:
    """Make the tables in the database, or bring them up to date.

    Every command and worker does so by itself when it first writes; this does it beforehand, and
    says what it did. Running it again changes nothing.
    """
    if once is not None:
        click.echo(f"{one_line(without_password(once))}: {_make_once_table(once)}")
        return
    client = target.client()
    applied = client.migrate()
    for migration in applied:
        click.echo(f"applied {migration}")
    click.echo(f"{one_line(without_password(client.url))} is up to date")


def _make_once_table(url: str) -> str:
    """Make it, and say what was done."""
    if isinstance(open_store(url), SQLiteStore):
        table, made = "yaoki_once", sqlite.make_once_table(url)
    else:
        from yaoki.store.postgres import once_table as postgres

        table, made = "yaoki.once", postgres.make_once_table(url)
    return f"the table {table} {'was made' if made else 'is there already'}"
