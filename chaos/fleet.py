"""The worker processes: as many as there are to be, each replaced when it ends."""

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chaos import marked
from chaos.ledger import working

ROOT = Path(__file__).resolve().parent.parent

ISOLATES = "CHAOS_ISOLATES"
"""In the environment of workers that know the types of isolated handlers too."""

RECYCLED_AFTER = 100
"""Jobs; so a process is replaced every few seconds."""


@dataclass(frozen=True)
class Ended:
    """A worker that ended although nobody told it to, and whether it had ever begun to work."""

    code: int
    began: float
    ended: float
    ready: bool
    said: str


class Member:
    """One process that was started; with a supervisor, the handlers run in children of it."""

    def __init__(
        self, place: int, command: Sequence[str], env: Mapping[str, str], log: Path
    ) -> None:
        self.place, self.log = place, log
        self.began = time.monotonic()
        self.told = False
        """It was told to end, or killed."""
        with log.open("wb") as sink:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **env},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def code(self) -> int | None:
        return self._process.poll()

    @property
    def ready(self) -> int:
        """How many processes of it have begun to work, so far."""
        return self.log.read_text("utf-8", "replace").count(" is ready")

    @property
    def last_line(self) -> str:
        lines = self.log.read_text("utf-8", "replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


class Fleet:
    """The members, and the processes below them that run handlers."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        folder: Path,
        ledger: Path,
        *,
        isolates: bool,
    ) -> None:
        self._mark = secrets.token_hex(8)
        self._command, self._env = command, {**env, marked.NAME: self._mark}
        self._folder, self._ledger, self._isolates = folder, ledger, isolates
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "chaos.marked", self._mark],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._members: list[Member] = []
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="chaos-fleet", daemon=True)
        self.started = 0
        self.ended_by_themselves: list[Ended] = []

    def start(self, count: int) -> None:
        for place in range(count):
            self._add(place)
        self._watcher.start()

    def wait_until_ready(self, processes: int, within: float = 60) -> None:
        """Until each has so many processes that work; or some seconds, if one cannot."""
        until = time.monotonic() + within
        while time.monotonic() < until:
            if all(member.ready >= processes for member in self.parents):
                return
            time.sleep(0.02)

    @property
    def parents(self) -> list[Member]:
        """The members that live, in the order in which they were started."""
        with self._lock:
            return [member for member in self._members if member.code is None]

    def workers(self) -> list[int]:
        """The processes that have run handlers and live, the oldest first."""
        return [pid for pid in working(self._ledger) if self.is_ours(pid)]

    def is_ours(self, pid: int) -> bool:
        """Does it live, and was it started here?"""
        return marked.is_marked(pid, self._mark)

    def tree(self, pid: int) -> list[int]:
        """A process and all below it, the oldest first."""
        found = [pid]
        for one in found:
            found += _children(one)
        return found

    def send(self, pid: int, number: signal.Signals) -> None:
        """A signal to a process of ours, if it still lives."""
        if self.is_ours(pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self, pid: int) -> None:
        for member in self.parents:
            if member.pid == pid:
                member.told = True
        self.send(pid, signal.SIGKILL)

    def end(self, within: float) -> list[str]:
        """Tell all of them to end; what was wrong with that. None is left when this returns."""
        self._ending.set()
        if self._watcher.ident is not None:
            self._watcher.join()
        for member in self.parents:
            member.told = True
            self.send(member.pid, signal.SIGTERM)
        until = time.monotonic() + within
        while self.parents and time.monotonic() < until:
            time.sleep(0.02)
        problems = [f"worker {one.pid} did not end: {one.last_line}" for one in self.parents]
        for member in self.parents:
            for pid in self.tree(member.pid):
                self.send(pid, signal.SIGKILL)
        self._look_who_ended()
        for pid in self.left_behind():
            problems.append(f"process {pid} was left behind: {_command_of(pid)}")
        self._guard.communicate()
        return problems

    def left_behind(self, within: float = 2.0) -> list[int]:
        """Processes of ours that live although nobody needs them, a moment later as well."""
        until = time.monotonic() + within
        while (found := marked.marked(self._mark)) and time.monotonic() < until:
            time.sleep(0.05)
        return found

    def tracebacks(self) -> int:
        """How many their logs hold."""
        logs = [path.read_text("utf-8", "replace") for path in self._folder.glob("worker-*.log")]
        return sum(log.count("Traceback (most recent call last)") for log in logs)

    def _add(self, place: int) -> None:
        self.started += 1
        log = self._folder / f"worker-{self.started}.log"
        # One of them has children for isolated handlers: they are dear to start, again and again.
        isolates = {ISOLATES: "yes"} if self._isolates and place == 0 else {}
        # And one replaces its processes as it goes.
        recycles = ["--recycle-after", str(RECYCLED_AFTER)] if place == 1 else []
        member = Member(place, [*self._command, *recycles], {**self._env, **isolates}, log)
        with self._lock:
            self._members.append(member)

    def _watch(self) -> None:
        while not self._ending.wait(0.05):
            for gone in self._look_who_ended():
                self._add(gone.place)

    def _look_who_ended(self) -> list[Member]:
        """Take those that have ended off the list, and note whose end was not to be."""
        with self._lock:
            gone = [member for member in self._members if member.code is not None]
            self._members = [member for member in self._members if member not in gone]
        for member in gone:
            code = member.code
            if code is not None and code not in self._expected(member):
                self.ended_by_themselves.append(
                    Ended(
                        *(code, member.began, time.monotonic()),
                        *(member.ready > 0, member.last_line),
                    )
                )
        return gone

    def _expected(self, member: Member) -> set[int]:
        """Exit codes: of one that was told, or whose handler killed it."""
        if member.told:
            return {0, 1, -signal.SIGKILL, 128 + signal.SIGTERM, -signal.SIGTERM}
        dies = any(
            path.name.startswith(f"{member.pid}.") and "\ndies " in path.read_text()
            for path in self._ledger.iterdir()
        )
        return {-signal.SIGKILL} if dies else set()


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return "it is gone now"


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
