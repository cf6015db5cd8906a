"""How the program ends: its exit codes, and the one line that it says when something failed.

0    done
1    the thing that was asked for failed
2    wrong usage
130  interrupted by Ctrl-C
141  nobody read the output to its end (as in `yaoki jobs | head -1`)
"""

import os
import sys
import traceback

import click

from yaoki.cli.show.text import one_line
from yaoki.core.errors import InvalidArguments, InvalidOption, InvalidPayload, YaokiError

DONE = 0
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
UNREAD = 141


class CommandFailed(Exception):
    """The thing that was asked for cannot be done; the message says why, and what to do."""


def say(message: str) -> None:
    """A line to the person at the terminal, not part of the output."""
    click.echo(f"yaoki: {one_line(message)}", err=True)


def said(error: Exception) -> int:
    """Say what went wrong in one line; the exit code for it."""
    code, message = in_a_line(error)
    if message is not None:
        say(message)
    return code


def in_a_line(error: Exception) -> tuple[int, str | None]:
    """The exit code for what went wrong, and the line to say; None: there is nothing to say."""
    match error:
        case click.Abort():
            return INTERRUPTED, None
        case click.UsageError():
            message = f"{_unstopped(error.format_message())}{_where_to_look(error)}"
            return error.exit_code, message
        case click.ClickException():
            return error.exit_code, error.format_message()
        case InvalidPayload(path="$", reason=reason):
            return WRONG_USAGE, reason
        case InvalidOption() | InvalidPayload() | InvalidArguments():
            return WRONG_USAGE, str(error)
        case CommandFailed() | YaokiError():
            return FAILED, str(error)
        case OSError():
            return FAILED, (
                f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
            )
        case _:
            return FAILED, _unexpected(error)


def silence_output() -> None:
    """Nobody can read the output any more: let the interpreter not try again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _where_to_look(error: click.UsageError) -> str:
    wrong_value = isinstance(error, click.BadParameter)
    if error.ctx is None or (wrong_value and not isinstance(error, click.MissingParameter)):
        return ""
    return f" (see {error.ctx.command_path} --help)"


def _unstopped(message: str) -> str:
    return " ".join(message.split()).removesuffix(".")


def _unexpected(error: Exception) -> str:
    if os.environ.get("YAOKI_DEBUG"):
        traceback.print_exception(error)
    return (
        f"unexpected {type(error).__name__}: {error}; this is a mistake in yaoki, and "
        "YAOKI_DEBUG=1 shows where"
    )
