"""The real program, run as people run it."""

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import pytest

NOW = "2026-01-02T03:04:05+00:00"
PROGRAM = (sys.executable, "-m", "yaoki")

on_both = pytest.mark.parametrize("kind", ["sqlite", "postgres"], indirect=True)
"""For tests of what the program does with its database: it is the same with either."""


class Ran(NamedTuple):
    """How a run ended: its exit code, and what it said."""

    command: str
    code: int
    out: str
    err: str

    def told(self) -> str:
        """All of it, as golden files keep it."""
        parts = [f"$ {self.command}", self.out.rstrip("\n")]
        if self.err:
            parts.append(f"--- on stderr\n{self.err.rstrip()}")
        parts.append(f"--- exit code {self.code}")
        return "\n".join(part for part in parts if part) + "\n"


class Program:
    """Runs yaoki in a folder of its own, where its app and database are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.always: dict[str, str] = {}
        self._started: list[subprocess.Popen[str]] = []

    @property
    def url(self) -> str:
        """Of its default database."""
        return self.always.get("YAOKI_URL", f"sqlite:///{self.folder / 'yaoki.db'}")

    def __call__(
        self, *arguments: str, stdin: str | None = None, env: Mapping[str, str] | None = None
    ) -> Ran:
        done = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=self.folder,
            env=self.environment(env),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        command = " ".join(["yaoki", *map(_quoted, arguments)])
        return Ran(command, done.returncode, self._plain(done.stdout), self._plain(done.stderr))

    def shell(self, script: str) -> Ran:
        """A line of shell in which `yaoki` is the program."""
        program = shlex.join(PROGRAM)
        done = subprocess.run(
            ["bash", "-c", f'yaoki() {{ {program} "$@"; }}\n{script}'],
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        return Ran(script, done.returncode, self._plain(done.stdout), self._plain(done.stderr))

    def start(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
        leader: bool = False,
    ) -> subprocess.Popen[str]:
        """A run that goes on; it is killed at the end of the test if it has not ended.

        As `leader` it has a process group of its own.
        """
        process = subprocess.Popen(
            [*program, *arguments],
            start_new_session=leader,
            cwd=self.folder,
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
        self._started.append(process)
        return process

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        ours = ("YAOKI_", "LC_", "LANG", "NO_COLOR", "FORCE_COLOR", "PYTHONPATH", "TERM")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        fixed = {"COLUMNS": "80", "NO_COLOR": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}
        return kept | fixed | self.always | dict(more or {})

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate()

    def _plain(self, text: str) -> str:
        """What differs from run to run, replaced."""
        return text.replace(str(self.folder), "FOLDER")


def line_with(stream: IO[str] | None, words: str) -> str:
    """The first line of a stream that has these words in it; waits for it."""
    assert stream is not None
    before = []
    for line in stream:
        if words in line:
            return line
        before.append(line)
    raise AssertionError(f"it ended without a line with {words!r}: {before}")


def _quoted(argument: str) -> str:
    if re.fullmatch(r"[\w@%+=:,./-]+", argument):
        return argument
    return f"'{argument}'" if argument.isprintable() else f"${argument!a}"
