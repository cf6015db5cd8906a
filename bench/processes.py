"""Worker processes: started, watched, stopped, and what they use."""

import ctypes
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figures import NotMeasured
from bench.probe import Probe

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 30.0
"""Seconds without any progress after which a measurement is given up."""


class Workers:
    """The running worker processes of one measurement."""

    def __init__(self, probe: Probe, processes: list[subprocess.Popen[bytes]], log: Path) -> None:
        self._probe, self._processes, self._log = probe, processes, log

    @property
    def pid(self) -> int:
        """Of the first one."""
        return self._processes[0].pid

    def wait_until_begun(self, marks: int, pause: float = 0.002) -> None:
        """Until so many jobs have begun; NotMeasured when nothing moves any more."""
        seen, moved = -1, time.monotonic()
        while (begun := self._probe.begun) < marks:
            now = time.monotonic()
            if begun != seen:
                seen, moved = begun, now
            self.check_alive()
            if now - moved > PATIENCE:
                raise NotMeasured(f"{begun} of {marks} jobs ran, and then nothing happened")
            time.sleep(pause)

    def wait_until_ready(self) -> None:
        end = time.monotonic() + PATIENCE
        while not self._probe.ready:
            self.check_alive()
            if time.monotonic() > end:
                raise NotMeasured("a worker process did not get ready")
            time.sleep(0.002)

    def check_alive(self) -> None:
        if any(process.poll() is not None for process in self._processes):
            said = self._log.read_text("utf-8", "replace").split("\n") if self._log.exists() else []
            last = next((line for line in reversed(said) if line.strip()), "it said nothing")
            raise NotMeasured(f"a worker process ended: {last}")


@contextmanager
def workers(url: str, probe: Probe, *, concurrency: int = 10) -> Iterator[Workers]:
    """As many workers on this database as the probe has parts, about to begin together."""
    log = probe.path.with_suffix(".log")
    processes: list[subprocess.Popen[bytes]] = []
    try:
        with log.open("wb") as sink:
            for place in range(probe.workers):
                command = [sys.executable, "-m", "bench.worker", url, str(probe.path)]
                command += [str(place), str(concurrency)]
                processes.append(subprocess.Popen(command, cwd=ROOT, stderr=sink))
        started = Workers(probe, processes, log)
        started.wait_until_ready()
        probe.go()
        yield started
    finally:
        stop(processes)
        log.unlink(missing_ok=True)


def stop(processes: list[subprocess.Popen[bytes]]) -> None:
    """Ask them to end, and see to it that they do."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def cpu_seconds(pid: int) -> float:
    """The processor time that a process has used, to the nanosecond; Linux only."""
    clock = ctypes.c_int()
    if not sys.platform.startswith("linux"):
        raise NotMeasured("only Linux tells what another process uses")
    if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise NotMeasured(f"there is no process {pid}")
    return time.clock_gettime(clock.value)


def megabytes(pid: int) -> float:
    """The memory of a process, what it shares counted by its share (PSS); Linux only."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        raise NotMeasured("only Linux tells what another process uses") from None
    [kilobytes] = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return kilobytes / 1024
