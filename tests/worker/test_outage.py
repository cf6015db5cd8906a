"""The server is away for a while: a worker in a program keeps quiet, and goes on when it is back.

With YAOKI_OUTAGE=60 it is away for so many seconds; else for as long as the suite can spare.
"""

import asyncio
import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from servers.postgres import Server
from tests.store.postgres.support_trouble import start_server
from tests.support.databases import assert_intact
from tests.support.eventually import eventually
from tests.worker.support_workers import Working, stays
from yaoki import JobContext, RetryPolicy, StoreUnavailable, Yaoki, fixed
from yaoki.loop import FIRST_PAUSE, LONGEST_PAUSE

OUTAGE = float(os.environ.get("YAOKI_OUTAGE", "4"))


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of these tests' own."""
    made = start_server()
    yield made
    made.delete()


@pytest.fixture
def mortal(server: Server) -> Iterator[Server]:
    """It may be stopped by a test, and runs again for the next one."""
    yield server
    if not server.runs:
        server.start()


class Program:
    """What the worker is embedded in: it serves request after request."""

    def __init__(self, app: Yaoki) -> None:
        self._app = app
        self.acknowledged: list[int] = []
        self.refused = 0
        self.slowest = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def end(self) -> None:
        self._over.set()
        self._thread.join(20)
        assert not self._thread.is_alive()

    def _serve(self) -> None:
        while not self._over.wait(0.05):
            began = time.monotonic()
            try:
                self.acknowledged.append(self._app.enqueue("short").id)
            except StoreUnavailable:
                self.refused += 1
            self.slowest = max(self.slowest, time.monotonic() - began)


def tries_within(seconds: float) -> int:
    """How often a loop tries when each pause is twice the one before."""
    tries, pause = 1, FIRST_PAUSE
    while seconds > 0:
        tries, seconds, pause = tries + 1, seconds - pause, min(2 * pause, LONGEST_PAUSE)
    return tries


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.timeout(120 + 2 * OUTAGE)
def test_a_server_that_is_away_for_a_while_costs_few_lines_and_five_seconds(
    mortal: Server, caplog: pytest.LogCaptureFixture
) -> None:
    app, runs = Yaoki(mortal.url), Counter[int]()
    away = threading.Event()

    @app.job("long", retry=RetryPolicy(backoff=fixed(0)))
    def long(ctx: JobContext) -> str:
        runs[ctx.job.id] += 1
        away.wait(20)
        ctx.progress(1, 2, "it ends while nobody can be told")
        return "done"

    @app.job("awaits", retry=RetryPolicy(backoff=fixed(0)))
    async def awaits(ctx: JobContext) -> str:
        runs[ctx.job.id] += 1
        while not away.is_set():
            await asyncio.sleep(0.02)
        await ctx.aprogress(1, 2, "and so does this one")
        return "done"

    @app.job("short", retry=RetryPolicy(backoff=fixed(0)))
    def short(ctx: JobContext) -> None:
        runs[ctx.job.id] += 1

    working = Working(app, concurrency=8, lease_for=60)
    held = [kind.enqueue() for kind in (long, awaits) for _ in range(2)]
    program = Program(app)
    eventually(lambda: len(runs) > 20)
    caplog.clear()
    caplog.set_level(logging.INFO)
    cpu = time.process_time()
    mortal.stop("INT")
    began = time.monotonic()
    away.set()
    assert stays(lambda: not working.ended, during=OUTAGE)
    cpu = time.process_time() - cpu
    mortal.start()
    up = time.monotonic()
    lines = [record for record in caplog.records if record.levelno >= logging.WARNING]
    before = program.acknowledged[-1]
    eventually(lambda: any(runs[job] for job in program.acknowledged if job > before), within=20)
    back = time.monotonic()
    eventually(lambda: quick(app), within=20)
    quick_again = time.monotonic()
    program.end()
    ended = [app.wait(job, timeout=20) for job in [*held, *program.acknowledged[-50:]]]
    working.drain()

    by_loop = Counter(loop_of(record) for record in lines)
    others = by_loop.pop("", 0)
    print(
        f"away for {up - began:.1f} s: a job ran after {back - up:.2f} s, at once after "
        f"{quick_again - up:.2f} s; lines {dict(by_loop)} and {others}; {cpu:.2f} s of CPU; "
        f"{program.refused} calls refused, the slowest took {program.slowest:.3f} s"
    )
    assert back - up < 5 + 1
    assert max(by_loop.values()) <= tries_within(up - began)
    assert others <= 12
    assert not any(record.exc_info for record in lines)
    assert cpu < 0.25 * (up - began)
    assert program.refused > 0.5 * OUTAGE / 0.05, "it served all the time"
    assert program.slowest < 2
    assert {(one.status, one.attempt, one.rescues) for one in ended} == {("completed", 1, 0)}
    assert set(runs.values()) == {1}, "what had ended in the outage was recorded, and not run again"
    assert set(program.acknowledged) <= runs.keys()
    assert_intact(app.store)
    app.close()


@pytest.mark.slow
@pytest.mark.crash
def test_a_worker_that_ends_in_an_outage_tries_in_peace_and_says_what_is_not_recorded(
    mortal: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaoki.worker.worker.RECORDING_PATIENCE", 2.0)
    app, runs = Yaoki(f"{mortal.url}?schema=ending"), Counter[int]()
    away = threading.Event()

    @app.job("long")
    def long(ctx: JobContext) -> None:
        runs[ctx.job.id] += 1
        away.wait(20)

    for _ in range(3):
        long.enqueue()
    working = Working(app, lease_for=60)
    eventually(lambda: len(runs) == 3)
    mortal.stop("INT")
    away.set()
    eventually(lambda: working.worker.slots.ended == 3)
    caplog.clear()
    began = time.monotonic()
    ending = working.drain()

    assert time.monotonic() - began < 10
    assert (ending.unrecorded, ending.exit_code) == (3, 1)
    assert working.worker.exchanger.longest_pause <= 0.5, "time was short"
    lines = Counter(loop_of(record) for record in caplog.records)
    assert max(lines.values()) <= 12, lines
    app.close()


def loop_of(record: logging.LogRecord) -> str:
    """Of which loop of the worker a line in the log tells; empty: of none."""
    named = record.name == "yaoki.loop" and isinstance(record.args, tuple)
    return str(record.args[0]) if named and isinstance(record.args, tuple) else ""


def quick(app: Yaoki) -> bool:
    """Are idle workers woken at once again? The middle one of five."""

    def waited() -> float:
        job = app.wait(app.enqueue("short"), timeout=10)
        assert job.claimed_at is not None
        return (job.claimed_at - job.created_at).total_seconds()

    return sorted(waited() for _ in range(5))[2] < 0.2
