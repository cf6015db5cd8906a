"""Memory that all processes share: how often each job has begun, and when it last did."""

import mmap
import struct
import time
from pathlib import Path

from bench.figures import NotMeasured

_HEADER = struct.Struct("=qqq")
_GO = 16
_READY = 24


class Probe:
    """Marks of `jobs` jobs by `workers` processes; each process writes in a part of its own.

    Instants are nanoseconds of time.monotonic_ns(), one clock for all processes of a machine.
    """

    def __init__(self, path: Path, place: int = 0) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.jobs, self.workers, _ = _HEADER.unpack_from(self._memory)
        times = _READY + _rounded(self.workers)
        counts = times + 8 * self.jobs * self.workers
        view = memoryview(self._memory)
        self._ready = view[_READY : _READY + self.workers]
        self._all_times = view[times:counts].cast("q")
        self._all_counts = view[counts : counts + self.jobs * self.workers]
        mine = slice(place * self.jobs, (place + 1) * self.jobs)
        self._times, self._counts = self._all_times[mine], self._all_counts[mine]
        self._place = place

    @classmethod
    def create(cls, path: Path, jobs: int, workers: int = 1) -> "Probe":
        """A new file with no marks, opened; other processes open it by its path."""
        size = _READY + _rounded(workers) + 9 * jobs * workers
        path.write_bytes(_HEADER.pack(jobs, workers, 0) + bytes(size - _HEADER.size))
        return cls(path)

    def mark(self, number: int) -> None:
        """The job of this number has begun, now."""
        self._times[number] = time.monotonic_ns()
        self._counts[number] += 1

    def wait_for_go(self) -> None:
        """Say that this process is ready, and wait until all are told to begin."""
        self._ready[self._place] = 1
        while not self._memory[_GO]:
            time.sleep(0.001)

    @property
    def ready(self) -> bool:
        """Every process waits to begin."""
        return all(self._ready)

    def go(self) -> None:
        self._memory[_GO] = 1

    @property
    def begun(self) -> int:
        """How many marks there are, counting a job once for each process that began it."""
        return len(self._all_counts) - bytes(self._all_counts).count(0)

    def first(self) -> int:
        """When the first of all jobs began."""
        return min(filter(None, self._all_times))

    def when(self, number: int) -> int:
        """When this job began; 0 when it has not."""
        return max(self._all_times[number :: self.jobs])

    def check_ran_once(self) -> None:
        """NotMeasured unless every job has begun exactly once."""
        counts = bytes(self._all_counts)
        runs = [sum(counts[number :: self.jobs]) for number in range(self.jobs)]
        lost, again = runs.count(0), sum(1 for each in runs if each > 1)
        if lost or again:
            raise NotMeasured(f"{lost} of {self.jobs} jobs never ran, {again} ran more than once")


def _rounded(size: int) -> int:
    return -(-size // 8) * 8
