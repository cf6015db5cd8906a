"""Real processes: started, listened to, killed, and never left behind."""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[2]


class Process:
    """A program that was started by a test; what it prints is kept, line by line."""

    def __init__(self, command: list[str], env: Mapping[str, str], cwd: Path) -> None:
        self.command = command
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=os.environ | {"PYTHONUNBUFFERED": "1"} | dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._fresh: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        assert self._process.stdout is not None
        self._reader = threading.Thread(
            target=self._read, args=(self._process.stdout,), name="output of a process", daemon=True
        )
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        """All that it has printed so far, errors included."""
        return "".join(line + "\n" for line in self.lines)

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def wait_for_line(self, text: str, within: float = 20) -> str:
        """The next line that contains `text`; each line is looked at once."""
        end = time.monotonic() + within
        while True:
            try:
                line = self._fresh.get(timeout=max(end - time.monotonic(), 0))
            except queue.Empty:
                raise AssertionError(
                    f"no {text!r} within {within} s from {self.command}:\n{self.output}"
                ) from None
            if line is None:
                raise AssertionError(f"{self.command} ended without {text!r}:\n{self.output}")
            if text in line:
                return line

    def send(self, number: signal.Signals) -> None:
        """A signal to this one process; none when it has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self.wait()

    def terminate(self) -> None:
        """SIGTERM; does not wait."""
        self._process.terminate()

    def wait(self, within: float = 30) -> int:
        """Its exit code, once it has ended by itself (-9 when it was killed)."""
        try:
            code = self._process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.command} still runs after {within} s:\n{self.output}"
            ) from None
        self._reader.join(within)
        return code

    def end(self) -> None:
        """Kill it if it still runs, and forget it."""
        if self.is_running:
            # A stopped process (SIGSTOP) dies of SIGKILL as well.
            self._process.kill()
            self._process.wait(10)
        self._reader.join(10)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self, output: IO[str]) -> None:
        for line in output:
            self.lines.append(line.rstrip("\n"))
            self._fresh.put(self.lines[-1])
        self._fresh.put(None)


class Processes:
    """Starts processes, and ends every one of them when the test is over."""

    def __init__(self) -> None:
        self._started: list[Process] = []

    def start(
        self, *command: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT
    ) -> Process:
        process = Process(list(command), env or {}, cwd)
        self._started.append(process)
        return process

    def python(
        self,
        *args: str,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        inside: Callable[..., tuple[str, ...]] | None = None,
    ) -> Process:
        """This Python, as in `python("-m", "tests.crash.program", url)`.

        `inside` makes of a command the one that runs it somewhere else.
        """
        command = (sys.executable, *args)
        return self.start(*(command if inside is None else inside(*command)), env=env, cwd=cwd)

    def yaoki(self, *args: str, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> Process:
        """The command line, as in `yaoki("--url", url, "worker")`."""
        return self.python("-m", "yaoki", *args, env=env, cwd=cwd)

    def end(self) -> None:
        for process in self._started:
            process.end()
        self._started.clear()


def parent_of(pid: int) -> int:
    """The number of the process that is a process's parent."""
    listed = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, check=True)
    return int(listed.stdout)


def is_alive(pid: int) -> bool:
    """Does it run? A zombie does not."""
    listed = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True)
    return bool(listed.stdout.strip()) and not listed.stdout.startswith("Z")
