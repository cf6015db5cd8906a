"""Three hosts: PostgreSQL on one, and room for a worker on each of the two others."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import pytest

from servers.postgres import Server
from tests.network.hosts import CannotMake, Host, network
from tests.network.program import build
from tests.support.databases import execute_all
from tests.support.postgres import FAST
from tests.support.processes import Process, Processes
from yaoki import Yaoki

SOON = "-c tcp_keepalives_idle=1 -c tcp_keepalives_interval=1 -c tcp_keepalives_count=2"
"""The server asks whether a client is there after 1 s, where yaoki would say 15."""


class Site(NamedTuple):
    """The hosts, and the app of the test itself, which no cut can reach."""

    app: Yaoki
    server: Server
    left: Host
    right: Host
    ledger: Path
    processes: Processes

    def start_worker(self, name: str, *, supervised: bool) -> Process:
        """On the host of this name: `yaoki worker`, or `app.run_worker()`; it is ready."""
        host: Host = {"left": self.left, "right": self.right}[name]
        url = f"{self.server.url}?options={quote(SOON)}"
        given = {"NETWORK_URL": url, "NETWORK_LEDGER": str(self.ledger), "NETWORK_HOST": name}
        if supervised:
            program = ["-m", "yaoki", "--app", "tests.network.served:app", "worker"]
            program += ["--lease-for", "2", "--grace", "5", "--concurrency", "4"]
        else:
            program = ["-m", "tests.network.program", *given.values()]
        worker = self.processes.python(*program, env=given, inside=host.command)
        worker.wait_for_line("is ready")
        return worker

    def written(self) -> list[str]:
        """The lines that handlers wrote."""
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []


@contextmanager
def or_skipped() -> Iterator[None]:
    """Where namespaces cannot be made, a test is skipped; but not in CI: nobody would notice."""
    try:
        yield
    except CannotMake as problem:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"network namespaces cannot be made here: {problem}")


@pytest.fixture
def site(tmp_path: Path, processes: Processes) -> Iterator[Site]:
    with or_skipped(), network() as made:
        first, left, right = made.host(), made.host(), made.host()
        server = Server(elsewhere=first.server(), **FAST)
        app = build(server.socket_url, tmp_path / "ledger")
        try:
            app.migrate()
            execute_all(app.store, ["CREATE TABLE effects (host text)"])
            yield Site(app, server, left, right, tmp_path / "ledger", processes)
        finally:
            processes.end()
            app.close()
            server.delete()
