"""PgBouncer in front of the tests' PostgreSQL, sharing few sessions among many clients.

It is a process of this one's own, started when it is first needed, and ends with it. It pools by
transaction, so a session is whoever's turn it is: nothing that belongs to one may be relied upon.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

SESSIONS = 3
"""To one database, for all clients together."""

NOT_FOUND = (
    "PgBouncer was not found, so nothing is tested through it: install your system's pgbouncer "
    "(apt-get install pgbouncer)"
)

GUARD = """
pgbouncer -q "$1" & read -r end
kill -s TERM $! && wait
rm -rf "$(dirname "$1")"
"""
"""Ends it when the input ends, which is when the process that started it is gone."""

SETTINGS = """\
[databases]
* = {server}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
admin_users = admin
pool_mode = {mode}
default_pool_size = {sessions}
max_client_conn = {clients}
server_idle_timeout = 1
server_check_delay = 0
query_wait_timeout = {patience}
logfile = {folder}/log
"""


def program() -> str | None:
    """Where it is, if it is installed (which CI may not do without)."""
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None and os.environ.get("CI"):
        raise RuntimeError(NOT_FOUND)
    return found


def description() -> str:
    """Which one the tests use, in one line."""
    found = program()
    if found is None:
        return NOT_FOUND
    return subprocess.check_output([found, "--version"], text=True).splitlines()[0]


class PgBouncer:
    """A running one, in front of the server of a URL."""

    def __init__(
        self,
        url: str,
        *,
        mode: str = "transaction",
        sessions: int = SESSIONS,
        clients: int = 500,
        patience: int = 120,
        port: int | None = None,
    ) -> None:
        given = conninfo_to_dict(url)
        login = {
            name: given[name] for name in ("host", "port", "user", "password") if name in given
        }
        self._found = program()
        if self._found is None:
            raise RuntimeError(NOT_FOUND)
        self._console: psycopg.Connection[Any] | None = None
        self.port = _free_port() if port is None else port
        self._folder = Path(tempfile.mkdtemp(prefix="yaoki-pgbouncer-"))
        settings = self._folder / "settings.ini"
        settings.write_text(
            SETTINGS.format(
                server=make_conninfo(**login),
                port=self.port,
                mode=mode,
                sessions=sessions,
                clients=clients,
                patience=patience,
                folder=self._folder,
            )
        )
        self._process = self._started(settings)
        self._wait_until_it_answers()

    def of(self, url: str) -> str:
        """The URL of the same database through it."""
        given = conninfo_to_dict(url)
        user = quote(str(given.get("user", "postgres")), safe="")
        return f"postgresql://{user}@127.0.0.1:{self.port}/{given['dbname']}"

    def leave(self, url: str) -> None:
        """Nobody needs that database any more: close the sessions."""
        self.tell(f'KILL "{urlsplit(url).path.removeprefix("/")}"')

    def tell(self, command: str) -> list[tuple[Any, ...]]:
        """Say something on its console: SHOW POOLS, PAUSE, KILL …"""
        if self._console is None or self._console.closed:
            self._console = psycopg.connect(
                f"postgresql://admin@127.0.0.1:{self.port}/pgbouncer",
                autocommit=True,
                cursor_factory=psycopg.ClientCursor,
            )
        cursor = self._console.execute(command.encode())
        return cursor.fetchall() if cursor.description else []

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text("utf-8", "replace")

    def end(self) -> None:
        if self._console is not None:
            self._console.close()
        self._process.communicate("", timeout=30)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _started(self, settings: Path) -> "subprocess.Popen[str]":
        as_nobody: dict[str, object] = {}
        if os.geteuid() == 0:
            # It refuses to be root.
            nobody = pwd.getpwnam("nobody")
            for path in (self._folder, settings):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
            as_nobody = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        return subprocess.Popen(
            ["/bin/sh", "-c", GUARD.replace("pgbouncer", str(self._found), 1), "guard", settings],
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self._folder,
            start_new_session=True,
            **as_nobody,  # type: ignore[arg-type]
        )

    def _wait_until_it_answers(self, within: float = 20) -> None:
        end = time.monotonic() + within
        while True:
            try:
                self.tell("SHOW VERSION")
                return
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("PgBouncer did not start") from error
            time.sleep(0.01)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


_running: PgBouncer | None = None


@contextmanager
def through(url: str) -> Iterator[str]:
    """The URL of a database of the tests' server through the one that is in front of it."""
    global _running
    if _running is None:
        _running = PgBouncer(url)
    pooled = _running.of(url)
    yield pooled
    _running.leave(pooled)


def end() -> None:
    """End what `through` began."""
    global _running
    if _running is not None:
        _running.end()
        _running = None
