"""Tables: plain and aligned for pipes and files, fine on a terminal where rich is installed."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

import click

from yaoki.cli.show.text import cut, one_line, padded, width

GAP = "  "

COLOURS: Mapping[str, str] = {
    "ready": "cyan",
    "running": "blue",
    "retrying": "yellow",
    "cancelling": "yellow",
    "completed": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "silent": "red",
    "degraded": "red",
    "paused": "yellow",
    "working": "green",
    "draining": "yellow",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. One that `gives` is cut when the line is longer than the terminal."""

    title: str
    right: bool = False
    gives: bool = False
    colours: Mapping[str, str] = field(default_factory=dict)


Rows = Sequence[Sequence[str]]


def show_table(columns: Sequence[Column], rows: Rows) -> None:
    """Print the table. Cells may hold anything: they are made harmless here."""
    safe = [[one_line(cell) for cell in row] for row in rows]
    if is_fine():
        _show_fine(columns, safe)
    else:
        for line in plain_lines(columns, safe, _columns()):
            click.echo(line)


def is_fine() -> bool:
    """Is this a terminal, and is rich there to make it look good?"""
    return sys.stdout.isatty() and find_spec("rich") is not None


def plain_lines(columns: Sequence[Column], rows: Rows, room: int | None) -> list[str]:
    """The lines of a plain table, at most `room` columns wide if that can be."""
    table = [[column.title for column in columns], *rows]
    widths = [max(width(row[index]) for row in table) for index in range(len(columns))]
    if room is not None:
        widths = _narrowed(columns, widths, room)
    return [_line(columns, row, widths) for row in table]


def _line(columns: Sequence[Column], row: Sequence[str], widths: Sequence[int]) -> str:
    cells = [
        padded(cut(cell, wide), wide, right=column.right)
        for column, cell, wide in zip(columns, row, widths, strict=True)
    ]
    return GAP.join(cells).rstrip()


def _narrowed(columns: Sequence[Column], widths: list[int], room: int) -> list[int]:
    """Take what is too much from the columns that give, from the widest first."""
    narrowed = list(widths)
    giving = [index for index, column in enumerate(columns) if column.gives]
    surplus = sum(widths) + len(GAP) * (len(widths) - 1) - room
    while surplus > 0 and giving:
        widest = max(giving, key=lambda index: narrowed[index])
        if narrowed[widest] <= max(width(columns[widest].title), 8):
            break
        narrowed[widest] -= 1
        surplus -= 1
    return narrowed


def _columns() -> int | None:
    """The width of the terminal; None for pipes and files, unless COLUMNS says so."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def _show_fine(columns: Sequence[Column], rows: Rows) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.ROUNDED, header_style="bold", border_style="bright_black")
    for column in columns:
        table.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            no_wrap=not column.gives,
            overflow="fold",
        )
    for row in rows:
        cells = zip(columns, row, strict=True)
        table.add_row(*(Text(cell, column.colours.get(cell, "")) for column, cell in cells))
    Console().print(table)
