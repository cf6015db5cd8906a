"""The app of these tests: copied into a folder of its own as `deeds`; what runs is written down."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import time

from yaoki import JobContext, RetryPolicy, Yaoki, fixed

app = Yaoki()

SOON = fixed(0.05)

STARTED_AT = time.monotonic()


def note(what: object) -> None:
    """A line in the file `ran`: what ran, and in which process."""
    with open("ran", "a", encoding="utf-8") as file:
        file.write(f"{what} {os.getpid()}\n")


@app.job("quick")
def quick(n: int = 0) -> int:
    note("quick")
    return os.getpid()


@app.job("sleep", retry=RetryPolicy(max_attempts=3, backoff=SOON))
def sleep(seconds: float) -> int:
    note("sleep")
    time.sleep(seconds)
    return os.getpid()


@app.job("sleep-once", retry=RetryPolicy(max_attempts=3, backoff=SOON))
def sleep_once() -> int:
    """The first time for a minute."""
    first = not os.path.exists("slept")
    note("sleep-once")
    with open("slept", "w"):
        time.sleep(60 if first else 0)
    return os.getpid()


@app.job("hold", retry=RetryPolicy(max_attempts=3, backoff=SOON))
def hold(seconds: float) -> int:
    """Hold the interpreter, as an extension in C may: no other thread of the process runs."""
    note("hold")
    _hold(seconds)
    return os.getpid()


@app.job("hold-limited", timeout=0.5, retry=RetryPolicy(max_attempts=1))
def hold_limited(seconds: float) -> None:
    note("hold-limited")
    _hold(seconds)


def _hold(seconds: float) -> None:
    ctypes.PyDLL(None).usleep(ctypes.c_uint(round(seconds * 1_000_000)))


@app.job("block", retry=RetryPolicy(max_attempts=3, backoff=SOON))
async def block(seconds: float) -> int:
    """Let no other task of the loop run."""
    note("block")
    time.sleep(seconds)
    await asyncio.sleep(0)
    return os.getpid()


@app.job("die", retry=RetryPolicy(max_attempts=3, backoff=SOON))
def die() -> None:
    note("die")
    os.kill(os.getpid(), signal.SIGKILL)


@app.job("leave", retry=RetryPolicy(max_attempts=1))
def leave() -> None:
    """End the process as if all was well."""
    os._exit(0)


@app.job("innocent", retry=RetryPolicy(max_attempts=2, backoff=SOON))
def innocent() -> None:
    note("innocent")
    time.sleep(0.1)


@app.job("overrun", timeout=0.2, retry=RetryPolicy(max_attempts=1))
def overrun(ctx: JobContext) -> None:
    time.sleep(60)


_hoard: list[bytes] = []


@app.job("grow")
def grow(megabytes: int) -> int:
    _hoard.append(os.urandom(1024) * 1024 * megabytes)
    return os.getpid()


@app.job("leave-orphan")
def leave_orphan() -> int:
    """Start a process whose parent ends before it; the number of that one."""
    orphan = (
        "import os, time\nif os.fork() == 0: os.close(1), time.sleep(1)\nelse: print(os.getpid())"
    )
    done = subprocess.run(
        [sys.executable, "-c", orphan], stdout=subprocess.PIPE, check=True, text=True
    )
    return int(done.stdout)
