"""Plain Python: the same waits, as many at once, and the same messages, with no queue at all."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from statistics import median


def sleeps_in_threads(count: int, at_once: int, seconds: float) -> float:
    """Sleeps a second through a pool of threads."""
    with ThreadPoolExecutor(at_once) as pool:
        began = time.perf_counter()
        for _ in pool.map(time.sleep, [seconds] * count):
            pass
        return count / (time.perf_counter() - began)


def sleeps_in_tasks(count: int, at_once: int, seconds: float) -> float:
    """Sleeps a second on an event loop, a task for each."""

    async def all_of_them() -> float:
        free = asyncio.Semaphore(at_once)

        async def one() -> None:
            await asyncio.sleep(seconds)
            free.release()

        began = time.perf_counter()
        tasks = []
        for _ in range(count):
            await free.acquire()
            tasks.append(asyncio.create_task(one()))
        await asyncio.gather(*tasks)
        return count / (time.perf_counter() - began)

    return asyncio.run(all_of_them())


class Echo:
    """A process that sends back what it is sent."""

    def __init__(self) -> None:
        spawn = get_context("spawn")
        self._line, theirs = spawn.Pipe()
        self._process = spawn.Process(target=_echo, args=(theirs,))
        self._process.start()
        theirs.close()
        self.median_of(1)

    def median_of(self, count: int) -> float:
        """Seconds until a message of 500 bytes is back."""
        message, times = b"x" * 500, []
        for _ in range(count):
            began = time.perf_counter()
            self._line.send_bytes(message)
            self._line.recv_bytes()
            times.append(time.perf_counter() - began)
        return median(times)

    def close(self) -> None:
        self._line.close()
        self._process.join()


def _echo(line: "Connection[bytes, bytes]") -> None:
    with suppress(EOFError):
        while True:
            line.send_bytes(line.recv_bytes())
