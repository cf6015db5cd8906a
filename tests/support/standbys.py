"""A server that follows another one, as a streaming standby, and can take its place."""

import subprocess
from pathlib import Path

import psycopg

from servers.postgres import Server
from tests.support.eventually import eventually

NAME = "standby"


class Standby(Server):
    """A copy of a primary's files that receives all it writes.

    From then on the primary says that something is committed when this has it as well, so what was
    acknowledged is not lost with the primary.
    """

    def __init__(self, primary: Server, binaries: Path | None = None, **settings: str) -> None:
        self._primary = primary
        super().__init__(binaries, **settings)
        with psycopg.connect(primary.url, autocommit=True) as there:
            there.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{NAME}'".encode())
            there.execute("SELECT pg_reload_conf()")
            sync = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
            eventually(lambda: there.execute(sync).fetchone(), within=30)

    def promote(self) -> None:
        """From now on it writes."""
        with psycopg.connect(self.url, autocommit=True) as here:
            here.execute("SELECT pg_promote(true, 60)")

    def _init(self) -> None:
        primary = f"host=127.0.0.1 port={self._primary.port} user=postgres application_name={NAME}"
        copy: list[str | Path] = [
            self._binaries / "pg_basebackup",
            *("-D", self.folder / "data", "-d", primary),
            *("--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"),
        ]
        made = subprocess.run(copy, capture_output=True, text=True, **self._as_user())
        if made.returncode != 0:
            raise RuntimeError(f"pg_basebackup failed: {made.stderr}")
