"""The whole story in half a minute."""

import click

from yaoki.cli.demo.words import LANGUAGES


@click.command()
@click.option(
    "--lang",
    "language",
    type=click.Choice(LANGUAGES),
    help="The language of the story; that of LC_ALL or LANG unless said.",
)
def demo(language: str | None) -> None:
    """Watch jobs succeed, fail, die and come back.

    Takes under 30 seconds, on a temporary SQLite file, with worker processes that are really
    killed; leaves nothing behind. Ends with 1 if anything that it tells did not happen.
    """
    from yaoki.cli.demo.story import tell

    tell(language)
