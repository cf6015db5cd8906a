"""The program `yaoki`."""

import sys
from importlib import metadata
from typing import Any

import click

from yaoki.cli import exits
from yaoki.cli.commands.demo import demo
from yaoki.cli.commands.doctor import doctor
from yaoki.cli.commands.enqueue import enqueue
from yaoki.cli.commands.jobs import job, jobs
from yaoki.cli.commands.migrate import migrate
from yaoki.cli.commands.operate import cancel, discard, retry
from yaoki.cli.commands.queues import pause, queues, resume
from yaoki.cli.commands.timetable import timetable
from yaoki.cli.commands.watch import watch
from yaoki.cli.commands.worker import worker
from yaoki.cli.commands.workers import workers
from yaoki.cli.target import note_app, note_url


class Program(click.Group):
    """Lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
            return code
        except BrokenPipeError:
            exits.silence_output()
            return exits.UNREAD
        except OSError:
            if not _output_works():
                exits.silence_output()
            raise


def _output_works() -> bool:
    try:
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        click.echo(f"yaoki {metadata.version('yaoki')}")
        ctx.exit()


@click.group(
    cls=Program,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 the thing asked for failed, 2 wrong usage. "
    "`yaoki COMMAND --help` says more; --app and --url may also stand behind the command.",
)
@click.option(
    "--app",
    metavar="MODULE:ATTR",
    envvar="YAOKI_APP",
    callback=note_app,
    expose_value=False,
    help="The app, as in shop.jobs:app; the current folder is looked in first. Also: YAOKI_APP.",
)
@click.option(
    "--url",
    metavar="URL",
    envvar="YAOKI_URL",
    callback=note_url,
    expose_value=False,
    help="The database, as in sqlite:///jobs.db or postgresql://user@host/database. Also: "
    "YAOKI_URL; else that of the app, else sqlite:///yaoki.db.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    callback=_version,
    expose_value=False,
    help="Say which yaoki this is, and exit.",
)
def program() -> None:
    """Background jobs that survive: run them, list them, put them back."""


for command in (
    demo, worker, enqueue, jobs, job, watch, retry, cancel, discard, queues, pause, resume,
    workers, doctor, timetable, migrate,
):  # fmt: skip
    program.add_command(command)


def main() -> None:
    """Run the command that sys.argv says, and exit."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command; its exit code. Whatever goes wrong is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if not arguments:
        click.echo(_help(), err=True)
        return exits.WRONG_USAGE
    try:
        code = program.main(arguments, prog_name="yaoki", standalone_mode=False)
        return code if isinstance(code, int) else exits.DONE
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except Exception as error:
        return exits.said(error)


def _help() -> str:
    return program.get_help(click.Context(program, info_name="yaoki", **program.context_settings))
