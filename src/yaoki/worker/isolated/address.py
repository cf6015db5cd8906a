"""Which app a child is to import: the name under which the worker's own is to be found."""

import os
import sys
from collections.abc import Iterator
from types import ModuleType
from urllib.parse import quote

from yaoki.client import Client
from yaoki.core.errors import InvalidOption
from yaoki.jobtypes import JobSet
from yaoki.store import Store
from yaoki.store.sqlite.store import SQLiteStore


def app_of(types: JobSet) -> tuple[str, list[str]]:
    """The app with these job types as `module:attribute`, and the modules to import for it.

    They are in the order in which they were first imported here: another may not work. Raises
    InvalidOption when no module has the app in a variable.
    """
    # The program itself comes last: to import it again is more than to import a module of it.
    found = sorted(_apps(types), key=lambda one: one[0] == "__main__")
    if not found:
        names = ", ".join(sorted(kind.name for kind in types if kind.isolated))
        raise InvalidOption(
            f"isolated handlers ({names}) run in processes that import the app, and no module "
            "has it in a variable: write app = Yaoki(…) at the top of a module"
        )
    module, attribute = found[0]
    wanted = {module, *(_name(kind.function.__module__) for kind in types)}
    return f"{module}:{attribute}", [name for name in sys.modules if name in wanted]


def _apps(types: JobSet) -> Iterator[tuple[str, str]]:
    for name, module in list(sys.modules.items()):
        # What was put there by hand may be no module, and answer to anything.
        if not isinstance(module, ModuleType) or not _can_be_imported(name, module):
            continue
        for attribute, value in list(vars(module).items()):
            # By its type alone: a lazy object does its work when it is asked for its __class__.
            if issubclass(type(value), Client) and value.types is types:
                yield name, attribute


def _name(module: str) -> str:
    """The program has a second name, which multiprocessing gives it."""
    return "__main__" if module == "__mp_main__" else module


def _can_be_imported(name: str, module: ModuleType) -> bool:
    """A prompt, or a script read from standard input, is no file that could be read again."""
    if name == "__mp_main__":
        return False
    return name != "__main__" or module.__spec__ is not None or _is_file(module)


def _is_file(module: ModuleType) -> bool:
    path = getattr(module, "__file__", None)
    return path is not None and os.path.isfile(path)


def url_of(store: Store) -> str:
    """A URL of the same database that holds in another process, in whatever folder that is."""
    if not isinstance(store, SQLiteStore):
        return store.url
    _, mark, query = store.url.partition("?")
    return f"sqlite:///{quote(str(store.path.absolute()))}{mark}{query}"
