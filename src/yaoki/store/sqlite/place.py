"""Where the file is and how it is to be written: the URL of a SQLite store."""

import os
import re
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from yaoki.core.errors import InvalidOption, StoreUnavailable, UnsupportedStore

PREFIX = "sqlite://"

# WAL needs memory that every process shares, and locks that hold; these give neither.
_NETWORK = re.compile(
    r"^(nfs\d?|cifs|smb\w*|afs|9p|ncpfs|fuse\.(sshfs|s3fs|rclone|gcsfuse|davfs\w*))$"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A parsed `sqlite:///path?durability=full|normal&busy_timeout=seconds`.

    `path` is None for `:memory:`, which is a private temporary file. `busy_timeout` is how many
    seconds a writer waits for another process that holds the write lock.
    """

    path: Path | None
    durability: str = "full"
    busy_timeout: float = 30.0


def parse(url: str) -> Place:
    """The place that a URL names; InvalidOption says what is wrong with it."""
    if not url.startswith(f"{PREFIX}/") and url != PREFIX:
        raise InvalidOption(
            f"{url!r} is no SQLite URL: write sqlite:///jobs.db (relative), "
            "sqlite:////var/lib/jobs.db (absolute) or sqlite:///:memory:"
        )
    rest, _, query = url[len(PREFIX) + 1 :].partition("?")
    place = Place(_path(unquote(rest)))
    return replace(place, **_options(query))


def temporary() -> Path:
    """A new private file for `:memory:`."""
    return Path(tempfile.mkdtemp(prefix="yaoki-")) / "jobs.db"


def check(path: Path, mounts: str | None = None) -> None:
    """Refuse a file that cannot be opened, or on which WAL is not safe."""
    try:
        if path.is_dir():
            raise StoreUnavailable(
                f"{path} is a folder; name a file in it, like {path / 'jobs.db'}"
            )
        if not path.parent.is_dir():
            raise StoreUnavailable(f"the folder {path.parent} does not exist; make it first")
    except OSError as error:
        raise StoreUnavailable(
            f"{path}: {error.strerror}; check that the folder exists, and that it and the file "
            "may be read and written"
        ) from error
    kind = _file_system(path.resolve().parent, _mounts() if mounts is None else mounts)
    if _NETWORK.match(kind) or str(path).startswith("\\\\"):
        raise UnsupportedStore(
            f"{path} is on a network file system ({kind or 'UNC path'}), where SQLite files get "
            "damaged; use a local disk, or PostgreSQL for several machines: postgresql://…"
        )


def _path(text: str) -> Path | None:
    if text in ("", ":memory:"):
        return None
    if "\0" in text:
        raise InvalidOption("a file name cannot contain NUL")
    return Path(text)


def _options(query: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "durability" and value in ("full", "normal"):
            options[name] = value
        elif name == "busy_timeout" and re.fullmatch(r"\d{1,6}(\.\d{1,3})?", value):
            options[name] = float(value)
        else:
            raise InvalidOption(
                f"{name}={value} in the database URL is not understood: there are "
                "durability=full, durability=normal and busy_timeout=SECONDS"
            )
    return options


def _mounts() -> str:
    if not sys.platform.startswith("linux"):
        return ""
    try:
        return Path("/proc/self/mounts").read_text("utf-8", "surrogateescape")
    except OSError:
        return ""


def _file_system(folder: Path, mounts: str) -> str:
    """The type of the file system that `folder` is on; "" when it cannot be told."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].replace("\\040", " ")
        inside = folder == Path(point) or Path(point) in folder.parents
        if inside and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def same_file(one: os.PathLike[str] | str, other: os.PathLike[str] | str) -> bool:
    """Do two paths lead to the same file? False when either is not there."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False


Identity = tuple[int, int] | None


def identity(path: Path) -> Identity:
    """Which file it is that has this name now; None when there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino
