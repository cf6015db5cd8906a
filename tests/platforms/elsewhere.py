"""A program on a machine that lacks what only Unix has: run by test_without_unix.py.

It cannot tell what Windows or macOS do; it can tell that nothing of ours asks for what they lack.
"""

import asyncio
import concurrent.futures
import ctypes
import importlib
import logging.handlers
import multiprocessing.connection
import multiprocessing.spawn
import os
import pkgutil
import random
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import uuid
from datetime import timedelta

import click
import psycopg
import rich.console
import rich.progress

# What they do at import depends on the platform, and is theirs: they are imported before.
_ = (
    concurrent.futures, ctypes, logging.handlers, multiprocessing, random, sqlite3, subprocess,
    tempfile, uuid, click, psycopg, rich,
)  # fmt: skip

PROGRAMS = ("__main__", ".worker_app")
"""Modules that do something when they are imported: they are run, not imported."""

UNIX_MODULES = ("fcntl", "grp", "pwd", "resource", "termios")
UNIX_NAMES = {
    os: (
        "fork", "forkpty", "getuid", "geteuid", "getpgid", "getpgrp", "getsid", "killpg",
        "register_at_fork", "setsid", "setpgid", "statvfs", "sysconf", "uname", "wait", "waitid",
        "WNOHANG", "posix_spawn",
    ),
    select: ("epoll", "poll"),
    signal: (
        "SIGALRM", "SIGCHLD", "SIGCONT", "SIGHUP", "SIGKILL", "SIGPIPE", "SIGQUIT", "SIGSTOP",
        "SIGUSR1", "SIGUSR2", "alarm", "pthread_kill", "pthread_sigmask", "setitimer",
    ),
}  # fmt: skip


def become_elsewhere(platform: str) -> None:
    """Take away what `platform` (as in sys.platform) has not; before yaoki is imported."""
    sys.platform = platform
    if platform != "win32":
        return
    for name in UNIX_MODULES:
        sys.modules[name] = None  # type: ignore[assignment]
    for module, names in UNIX_NAMES.items():
        for name in names:
            if hasattr(module, name):
                delattr(module, name)

    def refuse(*_: object) -> None:
        raise NotImplementedError

    asyncio.AbstractEventLoop.add_signal_handler = refuse  # type: ignore[method-assign]
    asyncio.SelectorEventLoop.add_signal_handler = refuse  # type: ignore[assignment]


def main(platform: str, url: str) -> None:
    become_elsewhere(platform)

    import yaoki

    for module in pkgutil.walk_packages(yaoki.__path__, "yaoki."):
        if not module.name.endswith(PROGRAMS):
            importlib.import_module(module.name)

    app = yaoki.Yaoki(url)
    once = yaoki.RetryPolicy(max_attempts=1)

    @app.job("plain")
    def plain(number: int) -> int:
        return number + 1

    @app.job("async")
    async def coroutine(number: int) -> int:
        await asyncio.sleep(0.01)
        return number + 1

    @app.job("slow", timeout=timedelta(seconds=0.3), retry=once)
    def slow() -> None:
        time.sleep(2)

    jobs = [plain.enqueue(number=1), coroutine.enqueue(number=2), slow.enqueue()]
    ending = app.run_worker(until_empty=True, lease_for=2)
    for job in jobs:
        now = app.get(job.id)
        print(now.type, now.status, now.result, now.error)
    print("exit code", ending.exit_code)

    @app.job("say")
    def say() -> None:
        print("waits for a signal", flush=True)

    say.enqueue()
    print("exit code", app.run_worker(grace=5).exit_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
