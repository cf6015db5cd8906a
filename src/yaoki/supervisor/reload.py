"""Which source files have changed, for --reload."""

import os
from collections.abc import Iterable, Iterator

SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
"""Folders in which nobody edits what a worker runs; so are those that begin with a dot."""


class Sources:
    """The Python files below a folder, and others that are named, as they were last seen."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen: dict[str, tuple[int, int]] | None = None

    def changed(self, others: Iterable[str]) -> list[str]:
        """What is new, gone or different since it was last asked; nothing the first time.

        A file that is `other` for the first time is only remembered.
        """
        now = {path: stamp for path in self._paths(others) if (stamp := _stamp(path))}
        before, self._seen = self._seen, now
        if before is None:
            return []
        below = self._folder + os.sep
        different = {path for path in now.keys() & before.keys() if now[path] != before[path]}
        new = {path for path in now.keys() - before.keys() if path.startswith(below)}
        gone = {path for path in before.keys() - now.keys() if not os.path.exists(path)}
        return sorted(different | new | gone)

    def _paths(self, others: Iterable[str]) -> Iterator[str]:
        yield from others
        for folder, inner, files in os.walk(self._folder):
            inner[:] = [
                name
                for name in inner
                if name not in SKIPPED
                and not name.startswith(".")
                and not os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))
            ]
            yield from (os.path.join(folder, name) for name in files if name.endswith(".py"))


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
