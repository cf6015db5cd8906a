"""Hosts on one machine: network namespaces, each with one cable to a common switch.

A namespace has no name and no file: it is there as long as a process is in it, so nothing is left
when the test is over, or was killed. Root may make them; so may others where the system lets them
make a namespace of users first.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from servers.postgres import Elsewhere, unprivileged

PEERS = "10.77.0.0/24"

ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""A process that is started by this ends when the one that started it is gone."""


class Namespace:
    """A network of its own, held by a process that waits for our end."""

    def __init__(self, *make: str) -> None:
        self._holder = subprocess.Popen(
            [*make, *ENDS_WITH_US, "sh", "-c", "echo there; exec cat >/dev/null"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
        )
        assert self._holder.stdout is not None
        said = self._holder.stdout.readline()
        if said != "there\n":
            self._holder.communicate(timeout=10)  # closes its pipes too
            raise CannotMake(said.strip() or "the process in a namespace ended")

    @property
    def pid(self) -> int:
        return self._holder.pid

    @property
    def enter(self) -> tuple[str, ...]:
        """The command that runs another one in here."""
        users = () if os.geteuid() == 0 else ("--user", "--preserve-credentials")
        return ("nsenter", f"--target={self.pid}", *users, "--net")

    def run(self, *command: str) -> None:
        """To its end, which must be a good one."""
        ended = subprocess.run([*self.enter, *command], capture_output=True, text=True)
        if ended.returncode != 0:
            raise CannotMake(f"{' '.join(command)}: {ended.stderr.strip()}")

    def end(self) -> None:
        self._holder.communicate()


class CannotMake(Exception):
    """Namespaces cannot be made here; says why."""


class Host:
    """One of them; a process is run in it by `command`."""

    def __init__(self, network: "Network", number: int) -> None:
        self._switch, self._port = network.switch, f"port{number}"
        self.address = PEERS.replace("0/24", str(number))
        self.space = Namespace(*network.new_space)
        try:
            self._plug_in()
        except CannotMake:
            self.space.end()
            raise

    def _plug_in(self) -> None:
        ip = _ip()
        self._switch.run(
            *(ip, "link", "add", self._port, "type", "veth"),
            *("peer", "name", "eth0", "netns", str(self.space.pid)),
        )
        self.space.run(ip, "address", "add", f"{self.address}/24", "dev", "eth0")
        self.space.run(ip, "link", "set", "lo", "up")
        self.space.run(ip, "link", "set", "eth0", "up")
        self._switched("up", "master", "switch")

    def command(self, *command: str) -> tuple[str, ...]:
        """The same command, in this host."""
        return (*self.space.enter, *ENDS_WITH_US, *command)

    def server(self) -> Elsewhere:
        """For a PostgreSQL server in this host; it does not run as root."""
        user = unprivileged()
        if user is not None:
            uid, gid = user
            inside = (*self.space.enter, f"--setuid={uid}", f"--setgid={gid}")
        else:
            # Who made the namespaces is root in them, so he gets his own name back.
            names = (f"--map-user={os.geteuid()}", f"--map-group={os.getegid()}")
            inside = (*self.space.enter, "unshare", "--user", *names)
        return Elsewhere(inside, self.address, PEERS)

    def pull_the_plug(self) -> None:
        """No carrier: this host can see that it is cut off."""
        self._switched("down")

    def plug_in(self) -> None:
        self._switched("up")

    def lose_everything(self) -> None:
        """The cable seems fine, but nothing that is sent arrives, and nobody says so."""
        self._switched("nomaster")

    def lose_nothing(self) -> None:
        self._switched("master", "switch")

    def _switched(self, *how: str) -> None:
        self._switch.run(_ip(), "link", "set", self._port, *how)


class Network:
    """A switch, and the hosts that are plugged into it."""

    def __init__(self) -> None:
        as_root = os.geteuid() == 0
        users = () if as_root else ("--user", "--map-root-user")
        self.switch = Namespace("unshare", *users, "--net")
        # The others belong to the same users, or they could not be wired together.
        self.new_space = ("unshare", "--net") if as_root else (*self._as_its_users, "--net")
        self._hosts: list[Host] = []
        try:
            self.switch.run(_ip(), "link", "add", "switch", "type", "bridge", "forward_delay", "0")
            self.switch.run(_ip(), "link", "set", "switch", "up")
        except CannotMake:
            self.end()
            raise

    @property
    def _as_its_users(self) -> tuple[str, ...]:
        return (
            *("nsenter", f"--target={self.switch.pid}", "--user", "--preserve-credentials"),
            "unshare",
        )

    def host(self) -> Host:
        self._hosts.append(Host(self, len(self._hosts) + 1))
        return self._hosts[-1]

    def end(self) -> None:
        for host in self._hosts:
            host.space.end()
        self.switch.end()


@contextmanager
def network() -> Iterator[Network]:
    """A network of the test's own; CannotMake when there can be none."""
    missing = [tool for tool in ("unshare", "nsenter", "setpriv") if shutil.which(tool) is None]
    if missing:
        raise CannotMake(f"{', '.join(missing)} of util-linux cannot be found")
    made = Network()
    try:
        yield made
    finally:
        made.end()


def _ip() -> str:
    found = shutil.which("ip", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    if found is None:
        raise CannotMake("ip (of the package iproute2) cannot be found")
    return found
