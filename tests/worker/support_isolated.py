"""Apps with isolated handlers, each in a module of its own: the processes import that."""

import importlib
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from yaoki import Yaoki

MakeApp = Callable[..., Yaoki]


@pytest.fixture
def make_app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeApp]:
    """Makes apps in modules of their own: `declare(app)` and `more` stand in them."""
    monkeypatch.syspath_prepend(tmp_path)
    yield from _making(tmp_path)


_numbers = count()


def _making(folder: Path) -> Iterator[MakeApp]:
    made: list[tuple[str, Yaoki]] = []

    def make(url: str, more: str = "") -> Yaoki:
        name = f"isolated_app_{next(_numbers)}"
        text = f"from tests.worker.isolated_handlers import *\napp = Yaoki({url!r})\ndeclare(app)\n"
        (folder / f"{name}.py").write_text(text + more)
        app: Yaoki = importlib.import_module(name).app
        made.append((name, app))
        return app

    yield make
    for name, app in made:
        app.close()
        del sys.modules[name]


@pytest.fixture(scope="module")
def shared_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yaoki]:
    """One app for all tests of a module."""
    folder = tmp_path_factory.mktemp("isolated")
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(folder)
        making = _making(folder)
        yield next(making)(f"sqlite:///{folder / 'jobs.db'}")
        for _ in making:
            pass


def module_of(app: Yaoki) -> str:
    """Where `make` has put it."""
    made = [name for name in sys.modules if name.startswith("isolated_app_")]
    return next(name for name in made if getattr(sys.modules[name], "app", None) is app)


def those_that_began(app: Yaoki) -> set[int]:
    folder = Path(app.url.removeprefix("sqlite:///")).parent
    return {int(path.name.partition("-")[2]) for path in folder.glob("began-*")}


def is_alive(pid: int) -> bool:
    """Zombies are not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
