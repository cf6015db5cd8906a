"""What an app does when a worker begins and ends."""

import asyncio
import logging
import signal
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path

import pytest

from tests.support.eventually import eventually
from tests.support.processes import Processes
from tests.worker.support_workers import StartWorker, Working, work_off
from yaoki import HookFailed, JobContext, Yaoki

opened: ContextVar[str] = ContextVar("opened", default="nothing")


@pytest.fixture
def app(url: str) -> Iterator[Yaoki]:
    """On one store: hooks ask no database."""
    made = Yaoki(url)
    yield made
    made.close()


def test_start_up_comes_before_the_first_job_and_shutdown_behind_the_last(app: Yaoki) -> None:
    said: list[str] = []

    @app.on_startup
    def first() -> None:
        said.append("start 1")

    @app.on_startup
    async def second() -> None:
        await asyncio.sleep(0.001)
        said.append("start 2")

    @app.on_shutdown
    async def late() -> None:
        await asyncio.sleep(0.001)
        said.append("end 2")

    @app.on_shutdown
    def early() -> None:
        said.append("end 1")

    @app.job("a")
    def handler() -> None:
        said.append("job")

    handler.enqueue()
    work_off(app)

    assert said == ["start 1", "start 2", "job", "end 1", "end 2"]


def test_what_an_async_hook_opens_belongs_to_the_loop_of_async_handlers(app: Yaoki) -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    async def note_too() -> None:
        await note()

    app.on_startup(note)
    app.on_shutdown(note_too)
    job = app.job("a")(note_too).enqueue()
    work_off(app)

    assert app.get(job).status == "completed"
    assert len(loops) == 3
    assert len(set(loops)) == 1


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_handlers_see_the_context_variables_that_start_up_set(app: Yaoki, kind: str) -> None:
    def plain() -> None:
        opened.set("a pool")

    async def awaiting() -> None:
        opened.set("a pool")

    app.on_startup(plain if kind == "plain" else awaiting)

    @app.job("plain")
    def handler() -> str:
        return opened.get()

    @app.job("async")
    async def coroutine() -> str:
        return opened.get()

    jobs = [handler.enqueue(), coroutine.enqueue()]
    work_off(app)

    assert [app.get(job).result for job in jobs] == ["a pool", "a pool"]
    assert opened.get() == "nothing"


def test_a_shutdown_may_use_the_queue(app: Yaoki) -> None:
    """It runs before anything is closed, and what it enqueues is for the next worker."""
    app.job("a")(lambda: None)

    @app.on_shutdown
    def report() -> None:
        app.enqueue("a")

    @app.on_shutdown
    async def report_too() -> None:
        await app.aenqueue("a")

    work_off(app)

    assert [job.status for job in app.jobs()] == ["pending", "pending"]


@pytest.mark.parametrize("raised", [ConnectionError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_start_up_that_fails_keeps_the_worker_from_starting(
    app: Yaoki, kind: str, raised: type[BaseException]
) -> None:
    closed: list[str] = []

    def plain() -> None:
        raise raised("no tracer")

    async def awaiting() -> None:
        raise raised("no tracer")

    app.on_startup(plain if kind == "plain" else awaiting)
    app.on_shutdown(lambda: closed.append("closed"))
    job = app.job("a")(lambda: None).enqueue()

    said = rf"on_startup .+: {raised.__name__}: no tracer \(.+ line \d+\)"
    with pytest.raises(HookFailed, match=said):
        work_off(app)
    assert app.get(job).status == "pending"
    assert app.workers() == []
    assert closed == []


def test_a_worker_on_the_command_line_says_it_in_one_line(
    tmp_path: Path, processes: Processes
) -> None:
    (tmp_path / "shop.py").write_text(
        "from yaoki import Yaoki\n"
        "app = Yaoki()\n"
        "@app.job('a')\n"
        "def a(): ...\n"
        "@app.on_startup\n"
        "def connect(): raise ConnectionError('no tracer')\n"
    )
    worker = processes.yaoki("--app", "shop:app", "worker", cwd=tmp_path)

    assert worker.wait() == 1
    [line] = [line for line in worker.lines if "no tracer" in line]
    assert "on_startup shop.connect: ConnectionError: no tracer" in line
    assert "Traceback" not in worker.output


def test_every_process_of_a_worker_starts_up_and_shuts_down(
    tmp_path: Path, processes: Processes
) -> None:
    (tmp_path / "shop.py").write_text(
        "import os\n"
        "from yaoki import Yaoki\n"
        "app = Yaoki()\n"
        "@app.job('a')\n"
        "def a(): ...\n"
        "@app.on_startup\n"
        "def opened(): os.write(1, f'opened by {os.getpid()}\\n'.encode())\n"
        "@app.on_shutdown\n"
        "def closed(): os.write(1, f'closed by {os.getpid()}\\n'.encode())\n"
    )
    worker = processes.yaoki("--app", "shop:app", "worker", "--processes", "2", cwd=tmp_path)
    opened = {worker.wait_for_line("opened by").split()[-1] for _ in range(2)}
    worker.terminate()
    assert worker.wait() == 0

    assert len(opened) == 2
    closed = [line for line in worker.lines if line.startswith("closed by")]
    assert sorted(closed) == sorted(f"closed by {pid}" for pid in opened)


def test_a_shutdown_that_fails_is_logged_and_the_others_run(
    app: Yaoki, caplog: pytest.LogCaptureFixture
) -> None:
    said: list[str] = []

    @app.on_shutdown
    def last() -> None:
        said.append("last")

    @app.on_shutdown
    def broken() -> None:
        raise SystemExit("cannot close")

    app.job("a")(lambda: None)
    ending = work_off(app)

    assert said == ["last"]
    assert ending.exit_code == 0
    [error] = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert "broken: SystemExit: cannot close" in error.getMessage()


def test_a_shutdown_waits_for_the_handlers_that_have_begun(
    app: Yaoki, start_worker: StartWorker
) -> None:
    began, closed = threading.Event(), threading.Event()
    app.on_shutdown(closed.set)

    @app.job("a")
    def handler(ctx: JobContext) -> bool:
        began.set()
        ctx.wait_stopping(20)
        return closed.wait(0.2)

    job = handler.enqueue()
    working = start_worker()
    assert began.wait(20)
    working.drain()

    assert app.get(job).result is False
    assert closed.is_set()


def test_a_shutdown_that_takes_too_long_is_left(
    app: Yaoki, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaoki.worker.worker.LEAST_FOR_HOOKS", 0.2)
    release = threading.Event()
    app.on_shutdown(lambda: release.wait(30) and None)
    app.job("a")(lambda: None)
    working = Working(app, grace=0.2)
    working.worker.ready.wait(20)
    working.drain()
    release.set()

    assert "had not ended when its time was up" in caplog.text


def test_a_shutdown_has_a_moment_when_the_handlers_have_used_up_the_grace(
    app: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    began, closed = threading.Event(), threading.Event()

    @app.on_shutdown
    async def close() -> None:
        await asyncio.sleep(0.1)
        closed.set()

    @app.job("a")
    def handler() -> None:
        began.set()
        release.wait(30)

    handler.enqueue()
    working = start_worker(grace=0.1)
    assert began.wait(20)

    assert working.drain().handed_back == 1
    assert closed.is_set()


def test_a_second_signal_skips_the_shutdown(app: Yaoki, start_worker: StartWorker) -> None:
    began, closed = threading.Event(), threading.Event()
    app.on_shutdown(closed.set)

    @app.job("a")
    def handler(ctx: JobContext) -> None:
        began.set()
        ctx.wait_stopping(20)
        threading.Event().wait(5)

    handler.enqueue()
    working = start_worker(grace=20)
    assert began.wait(20)
    working.worker.drain()
    working.worker.hurry(signal.SIGTERM)

    assert working.wait().exit_code == 143
    assert not closed.is_set()


def test_a_worker_that_is_told_to_end_while_it_starts_up_ends(app: Yaoki) -> None:
    began, release = threading.Event(), threading.Event()

    @app.on_startup
    def stuck() -> None:
        began.set()
        release.wait(30)

    app.job("a")(lambda: None)
    working = Working(app, grace=0.2)
    assert began.wait(20)
    working.worker.drain()

    with pytest.raises(HookFailed, match="had not ended when its time was up"):
        working.wait()
    release.set()
    eventually(lambda: working.ended)
