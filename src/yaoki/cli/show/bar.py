"""Progress bars: moving ones on a terminal where rich is installed, lines otherwise."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import click

from yaoki.cli.show.table import is_fine
from yaoki.cli.show.text import one_line

CELLS = 30


class Bar(Protocol):
    """Shows how far something is."""

    def show(self, fraction: float | None, text: str) -> None:
        """Move to `fraction` of the whole (None: not known), with a few words beside it."""

    def say(self, line: str) -> None:
        """Print a line above the bar."""


@contextmanager
def bar(step: float = 0.0) -> Iterator[Bar]:
    """A bar until the block ends; plain ones print a line when it has moved on by `step`."""
    if not is_fine():
        yield _Plain(step)
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

    words = TextColumn("{task.description}", markup=False)
    with Progress("  ", BarColumn(), TaskProgressColumn(), words) as progress:
        yield _Fine(progress)


class _Plain:
    def __init__(self, step: float) -> None:
        self._step = step
        self._shown: tuple[float | None, str] = (-1.0, "")

    def show(self, fraction: float | None, text: str) -> None:
        if self._is_news(fraction, text):
            self._shown = (fraction, text)
            click.echo(one_line(f"  {_drawn(fraction)}{text}"))

    def say(self, line: str) -> None:
        click.echo(one_line(line))

    def _is_news(self, fraction: float | None, text: str) -> bool:
        before, before_text = self._shown
        if fraction is None or before is None:
            return (fraction, text) != (before, before_text)
        if fraction == before:
            return text != before_text and not self._step
        return fraction == 1.0 or abs(fraction - before) >= self._step


class _Fine:
    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)

    def show(self, fraction: float | None, text: str) -> None:
        total = None if fraction is None else 1.0
        self._progress.update(
            self._task, total=total, completed=fraction or 0.0, description=one_line(text)
        )

    def say(self, line: str) -> None:
        self._progress.console.print(one_line(line), markup=False, highlight=False)


def _drawn(fraction: float | None) -> str:
    if fraction is None:
        return ""
    full = round(fraction * CELLS)
    return f"[{'#' * full}{'.' * (CELLS - full)}] {fraction:4.0%}  "
