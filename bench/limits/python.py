"""Plain Python: the same waits, as many at once, with no queue at all."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor


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
