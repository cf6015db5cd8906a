"""Which app, and which database, a command is about: --app, --url and what stands for them."""

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from operator import attrgetter
from typing import Any, TypeVar

import click

from yaoki.app import Yaoki
from yaoki.cli.existing import must_exist
from yaoki.core.errors import InvalidOption
from yaoki.store import without_password

F = TypeVar("F", bound=Callable[..., Any])


class Target:
    """What was said about the app and the database; opens them when a command needs them."""

    def __init__(self) -> None:
        self.app_name: str | None = None
        self.url: str | None = None
        self.url_was_typed = False
        self._client: Yaoki | None = None

    def client(self) -> Yaoki:
        """The app, or one without job types on the database; made if it is not there."""
        if self._client is None:
            self._client = self.app() if self.app_name else Yaoki(self.url)
            click.get_current_context().call_on_close(self._client.close)
        return self._client

    def existing(self) -> Yaoki:
        """The same for commands that make nothing: CommandFailed when there is no such database."""
        client = self.client()
        must_exist(client)
        return client

    def app(self) -> Yaoki:
        """The app with its job types; wrong usage when none was named, or it cannot be had."""
        name = self.needed_app_name()
        if self._client is not None:
            return self._client
        if self.url_was_typed and self.url:
            os.environ["YAOKI_URL"] = self.url
        app = imported(name)
        if self.url_was_typed and app.url != self.url:
            typed = without_password(self.url or "")
            raise InvalidOption(
                f"{name} works on {without_password(app.url)}, which is not --url "
                f"{typed}; leave one of them out, or write Yaoki() without a URL in the app"
            )
        return app

    def needed_app_name(self) -> str:
        """What --app said; wrong usage when nobody said it."""
        if not self.app_name:
            raise InvalidOption(
                "this needs your app: --app module:attribute, as in --app shop.jobs:app "
                "(or YAOKI_APP)"
            )
        return self.app_name


def target_options(command: F) -> F:
    """Let --app and --url stand behind the command's name too."""
    for name, note, metavar in _OPTIONS:
        command = click.option(
            f"--{name}", metavar=metavar, hidden=True, expose_value=False, callback=note
        )(command)
    return command


def note_app(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value:
        ctx.ensure_object(Target).app_name = value


def note_url(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value:
        target = ctx.ensure_object(Target)
        target.url = value
        source = ctx.get_parameter_source(param.name or "")
        target.url_was_typed = source is click.core.ParameterSource.COMMANDLINE


_OPTIONS = (("url", note_url, "URL"), ("app", note_app, "MODULE:ATTR"))

pass_target = click.make_pass_decorator(Target, ensure=True)


def imported(name: str) -> Yaoki:
    """The Yaoki that `module:attribute` names; the current folder is looked in first."""
    module_name, found, attribute = name.partition(":")
    if not (module_name and attribute) or not found:
        raise InvalidOption(
            f"--app {name}: name the module and, behind a colon, the Yaoki in it, as in shop:app"
        )
    is_file = module_name.endswith(".py") and os.path.isfile(module_name)
    if is_file or "/" in module_name or module_name.startswith("."):
        raise InvalidOption(f"--app {name}: name the module and not its file, as in shop.jobs:app")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        # What a module prints when it is imported is no part of a command's output.
        with redirect_stdout(sys.stderr):
            module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise InvalidOption(_not_importable(module_name, error)) from None
    try:
        app = attrgetter(attribute)(module)
    except AttributeError:
        raise InvalidOption(
            f"--app {name}: module {module_name} has no {attribute!r}{_apps_in(module)}"
        ) from None
    if not isinstance(app, Yaoki):
        raise InvalidOption(
            f"--app {name}: that is a {type(app).__name__}, not a Yaoki{_apps_in(module)}"
        )
    return app


def _apps_in(module: object) -> str:
    apps = [name for name, value in vars(module).items() if issubclass(type(value), Yaoki)]
    return f"; there is {', '.join(apps)}" if apps else ""


def _not_importable(module_name: str, error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]:
        return f"--app: there is no module {module_name!r} here ({os.getcwd()}) or installed"
    where = "" if isinstance(error, SyntaxError) else _line_in_it(error)
    return f"--app: importing {module_name} failed{where}: {type(error).__name__}: {error}"


def _line_in_it(error: BaseException) -> str:
    """Where it happened, in the user's code as far as that can be told."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and f"{os.sep}yaoki{os.sep}" not in frame.filename
    ]
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
