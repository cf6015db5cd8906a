"""Isolated handlers of every kind: their processes import this, so it is to be quick."""

import array
import asyncio
import ctypes
import logging
import mmap
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from yaoki import JobContext, RetryPolicy, Yaoki, fixed
from yaoki.jobtypes import running

ONCE = RetryPolicy(max_attempts=1)

log = logging.getLogger("tests.isolated")
tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
local = threading.local()
hoarded: list[bytearray] = []


class Order(msgspec.Struct):
    number: int
    at: datetime


class Wicked(Exception):
    """Nothing can be done with it: it cannot be shown, compared or pickled."""

    def __str__(self) -> str:
        raise SystemExit("from __str__")

    __repr__ = __str__

    def __reduce__(self) -> Any:
        raise OSError("not to be pickled")


class Unborn(Exception):
    """It can be pickled, and not be made again."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__("no")


def declare(app: Yaoki) -> None:
    """The job types of these tests, named after what their handlers do."""
    isolated: dict[str, Any] = {"isolation": "process"}
    once = isolated | {"retry": ONCE}

    @app.job("pid", **isolated)
    def pid() -> int:
        return os.getpid()

    @app.job("async pid", **isolated)
    async def async_pid() -> int:
        await asyncio.sleep(0)
        return os.getpid()

    @app.job("order", **isolated)
    def order(ctx: JobContext, order: Order, note: str = "none") -> list[object]:
        return [type(order).__name__, order.number, order.at.year, note, ctx.attempt, ctx.job.id]

    @app.job("echo", **isolated)
    def echo(text: str) -> str:
        return text

    @app.job("crash", **once)
    def crash(how: str) -> None:
        crashes[how]()

    @app.job("crash once", isolation="process", retry=RetryPolicy(backoff=fixed(0)))
    def crash_once(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            ctx.progress(3, 7, "on the way")
            ctx.log("about to crash")
            os.kill(os.getpid(), signal.SIGKILL)
        return "survived"

    @app.job("raise", **once)
    def raises(what: str) -> None:
        raise errors[what]()

    @app.job("async raise", **once)
    async def async_raises(what: str) -> None:
        raise errors[what]()

    @app.job("return", **isolated)
    def returns(what: str) -> object:
        return results[what]()

    @app.job("secret", secret=("token",), **once)
    def secret(token: str) -> None:
        raise ValueError(f"it was {token}")

    @app.job("stdin", **isolated)
    def stdin() -> str:
        print("printed by a handler")
        return sys.stdin.read() + str(os.read(0, 10))

    @app.job("leave", **isolated)
    def leave() -> list[object]:
        seen = [tenant.get(), getattr(local, "tenant", "nobody"), os.getpid()]
        tenant.set("somebody")
        local.tenant = "somebody"
        return seen

    @app.job("logs", **isolated)
    def logs(text: str) -> None:
        log.info("info %s", text, extra={"order": 7})
        try:
            raise KeyError("inside")
        except KeyError:
            log.exception("exception %s", text)

    @app.job("enqueue", **isolated)
    def enqueue(text: str) -> int:
        return app.enqueue("echo", {"text": text}).id

    @app.job("fork", **isolated)
    def fork() -> str:
        if os.fork() == 0:
            return "the copy"  # into yaoki's code
        os.wait()
        return "the original"

    @app.job("multiprocessing", **isolated)
    def with_processes(method: str, ctx: JobContext) -> list[int]:
        ctx.log("begins")
        with multiprocessing.get_context(method).Pool(2) as processes:
            return processes.map(logged_square, range(4))

    @app.job("children", **once)
    def children(file: str, how: str) -> None:
        child = subprocess.Popen(["sleep", "600"])
        Path(file).write_text(str(child.pid))
        crashes[how]()

    @app.job("start and wait", **once)
    def start_and_wait(file: str, ctx: JobContext) -> None:
        Path(file).write_text(str(subprocess.Popen(["sleep", "600"]).pid))
        ctx.wait_stopping(600)

    @app.job("memory", memory_limit=200, **once)
    def memory() -> int:
        return len(bytearray(400_000_000))

    @app.job("async memory", memory_limit=200, **once)
    async def async_memory() -> int:
        return len(bytearray(400_000_000))

    @app.job("shared memory", memory_limit=200, **once)
    def shared_memory() -> None:
        with mmap.mmap(-1, 300 << 20) as shared:
            for start in range(0, len(shared), 4096):
                shared[start] = 1
            time.sleep(60)

    @app.job("modest", memory_limit=200, **once)
    def modest() -> list[int]:
        return [os.getpid(), len(bytearray(20_000_000))]

    @app.job("hoard", **isolated)
    def hoard() -> int:
        hoarded.append(bytearray(300_000_000))
        return os.getpid()

    @app.job("next to nothing", memory_limit=1, **once)
    def next_to_nothing() -> int:
        return len(bytearray(5_000_000))

    @app.job("sleep in C", timeout=0.5, **once)
    def sleep_in_c(seconds: int) -> None:
        began(app)
        hold_the_lock(seconds)

    @app.job("await for long", timeout=0.5, **once)
    async def await_for_long() -> None:
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue

    @app.job("deaf", **isolated)
    def deaf() -> None:
        began(app)
        hold_the_lock(60)

    @app.job("deaf once", isolation="process", retry=RetryPolicy(backoff=fixed(0)))
    def deaf_once(ctx: JobContext) -> str:
        if ctx.attempt == 1:
            ctx.progress(0, message=str(os.getpid()))
            hold_the_lock(60)
        return "in the end"

    @app.job("listens", **isolated)
    def listens(ctx: JobContext) -> str | None:
        began(app)
        ctx.wait_stopping(60)
        return ctx.stopping

    @app.job("async listens", **isolated)
    async def async_listens(ctx: JobContext) -> str:
        began(app)
        await asyncio.sleep(60)
        return "not told"

    @app.job("meet", **isolated)
    def meet(people: int, folder: str) -> int:
        (Path(folder) / str(os.getpid())).touch()
        end = time.monotonic() + 30
        while len(os.listdir(folder)) < people and time.monotonic() < end:
            time.sleep(0.005)
        return os.getpid()

    @app.job("long", **isolated)
    def long(ctx: JobContext) -> int:
        for done in range(100):
            ctx.progress(done, 100)
            if ctx.wait_stopping(0.05):
                break
        return os.getpid()


def logged_square(number: int) -> int:
    log.warning("in a process of the handler's own")
    context = running()
    if context is not None:
        context.progress(number)
        context.log("said in a process of the handler's own")
    return number * number


def hold_the_lock(seconds: int) -> None:
    """Sleep in C without letting go of the interpreter: nothing else of the process can run."""
    ctypes.PyDLL(None).sleep(seconds)


def began(app: Yaoki) -> None:
    """Say who runs it, for the test to see."""
    folder = Path(app.url.removeprefix("sqlite:///")).parent
    (folder / f"began-{os.getpid()}").touch()


def _close_everything() -> None:
    os.closerange(3, 1_000)


def _take_the_place_of_everything() -> None:
    """Where the line was there is a file of the handler's own now."""
    os.closerange(3, 1_000)
    files = [os.memfd_create("mine") for _ in range(100)]
    time.sleep(0.6)
    for file in files:
        assert os.fstat(file).st_size == 0, "somebody wrote into a file of ours"


def _write_nonsense() -> None:
    for number in _sockets():
        os.write(number, b"\0\0\0\4nons")
    time.sleep(20)


def _shut_the_line() -> None:
    for number in _sockets():
        with socket.socket(fileno=os.dup(number)) as line:
            line.shutdown(socket.SHUT_RDWR)
    time.sleep(20)


def _sockets() -> Iterator[int]:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                yield int(name)
        except OSError:
            continue


crashes: dict[str, Callable[[], object]] = {
    "segmentation fault": lambda: ctypes.string_at(0),
    "abort": lambda: os.abort(),
    "os._exit(3)": lambda: os._exit(3),
    "os._exit(0)": lambda: os._exit(0),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "close everything": _close_everything,
    "take the place of everything": _take_the_place_of_everything,
    "write nonsense": _write_nonsense,
    "shut the line": _shut_the_line,
}

errors: dict[str, Callable[[], BaseException]] = {
    "sys.exit": lambda: SystemExit(5),
    "interrupt": lambda: KeyboardInterrupt(),
    "generator exit": lambda: GeneratorExit("no"),
    "wicked": Wicked,
    "unborn": lambda: Unborn(1, 2),
    "local": lambda: type("Local", (Exception,), {"lock": threading.Lock()})("of no module"),
    "huge": lambda: ValueError("x" * 10_000_000),
    "surrogate": lambda: ValueError("half \ud800"),
}

results: dict[str, Callable[[], object]] = {
    "object": lambda: threading.Lock(),
    "function": lambda: lambda: None,
    "array": lambda: array.array("i", [1, 2]),
    "nan": lambda: float("nan"),
    "too big": lambda: "x" * (2 << 20),
    "big": lambda: "x" * ((1 << 20) - 2),
    "wicked": lambda: Wicked(),
}
