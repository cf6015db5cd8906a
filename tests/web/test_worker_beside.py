"""A worker beside a web app: Starlette under a real uvicorn, and blocks of other programs."""

import asyncio
import json
import logging
import os
import re
import signal
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.support.processes import ROOT, Process, Processes
from yaoki import InvalidOption, JobContext, Yaoki

SHOP = "tests.web.shop:web"


@pytest.fixture
def app(url: str) -> Iterator[Yaoki]:
    made = Yaoki(url)
    yield made
    made.close()


class Web:
    """A server that runs, and is asked."""

    def __init__(self, process: Process) -> None:
        self.process = process
        found = re.search(r"http://[\d.]+:\d+", process.wait_for_line("Uvicorn running on"))
        assert found is not None
        self._address = found[0]

    def ask(self, path: str, method: str = "GET") -> Any:
        """What it answers; it listens a moment after it has said that it does."""
        request = urllib.request.Request(self._address + path, method=method)
        end = time.monotonic() + 20
        while True:
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    return json.load(answer)
            except urllib.error.URLError as error:
                refused = isinstance(error.reason, ConnectionRefusedError)
                if not refused or time.monotonic() >= end:
                    raise
                time.sleep(0.02)


Serve = Callable[..., Web]


@pytest.fixture
def let_go(tmp_path: Path) -> Path:
    """Handlers go on when this file is there."""
    return tmp_path / "let go"


@pytest.fixture
def serve(processes: Processes) -> Serve:
    def start(url: str, *options: str, **env: str) -> Web:
        command = ("-m", "uvicorn", SHOP, "--port", "0", *options)
        return Web(processes.python(*command, env={"SHOP_URL": url, **env}))

    return start


def test_a_request_makes_a_job_that_is_done_beside(
    any_url: str, serve: Serve, let_go: Path
) -> None:
    web = serve(any_url, LET_GO=str(let_go))
    jobs = [web.ask(f"/orders/{kind}", "POST")["job"] for kind in ("plain", "async")]
    at_once = {web.ask(f"/jobs/{job}")["status"] for job in jobs}
    let_go.touch()
    eventually(
        lambda: all(web.ask(f"/jobs/{job}")["status"] == "completed" for job in jobs), within=20
    )

    assert at_once <= {"pending", "running"}
    pid = web.ask("/alive")["pid"]
    assert {web.ask(f"/jobs/{job}")["result"] for job in jobs} == {f"order 7 by {pid}"}


def test_sigterm_lets_what_has_begun_finish(any_url: str, serve: Serve, let_go: Path) -> None:
    web = serve(any_url, LET_GO=str(let_go))
    jobs = [web.ask(f"/orders/{kind}", "POST")["job"] for kind in ("plain", "async")]
    eventually(
        lambda: all(web.ask(f"/jobs/{job}")["status"] == "running" for job in jobs), within=20
    )
    web.process.send(signal.SIGTERM)
    web.process.wait_for_line("Waiting for application shutdown")
    let_go.touch()

    # uvicorn ends by the signal that it was sent; in between it has let the worker drain.
    assert web.process.wait() in (0, -signal.SIGTERM)
    assert "Application shutdown complete" in web.process.output
    app = Yaoki(any_url)
    assert [app.get(job).status for job in jobs] == ["completed", "completed"]
    assert app.workers() == []
    app.close()


def test_what_does_not_finish_within_the_grace_is_handed_back(
    url: str, serve: Serve, let_go: Path
) -> None:
    web = serve(url, LET_GO=str(let_go), GRACE="0.3")
    job = web.ask("/orders/plain", "POST")["job"]
    eventually(lambda: web.ask(f"/jobs/{job}")["status"] == "running", within=20)
    web.process.send(signal.SIGTERM)
    web.process.wait()
    app = Yaoki(url)

    assert (app.get(job).status, app.get(job).attempt) == ("pending", 0)
    app.close()


def test_a_database_that_is_down_does_not_keep_the_web_app_from_starting(serve: Serve) -> None:
    web = serve("postgresql://postgres@127.0.0.1:1/nowhere")

    assert web.ask("/alive")["pid"]
    web.process.wait_for_line("there is no worker beside this program")
    assert web.ask("/alive")["pid"]
    web.process.send(signal.SIGTERM)
    assert web.process.wait() in (0, -signal.SIGTERM)


def test_a_worker_begins_as_soon_as_the_database_can_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With back-off, and a line for each try."""
    place = tmp_path / "later"
    app = Yaoki(f"sqlite:///{place / 'jobs.db'}")
    done = threading.Event()
    app.job("a")(done.set)
    with app.worker_beside() as beside:
        eventually(lambda: len(caplog.records) >= 2, within=20)
        place.mkdir()
        app.enqueue("a")
        assert done.wait(20)
        assert beside.worker is not None
    waits = [re.findall(r"begun in ([\d.]+) s", record.getMessage()) for record in caplog.records]

    assert waits[:2] == [["0.5"], ["1.0"]]
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    app.close()


def test_the_end_of_a_block_drains_and_does_not_block_the_event_loop(app: Yaoki) -> None:
    began, ticks = threading.Event(), 0

    @app.job("a")
    def handler(ctx: JobContext) -> None:
        began.set()
        time.sleep(0.5)

    async def main() -> None:
        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.ensure_future(tick())
        async with app.worker_beside():
            await handler.aenqueue()
            await asyncio.to_thread(began.wait, 20)
            before = ticks
        assert ticks - before > 5
        ticking.cancel()

    asyncio.run(main())

    assert [job.status for job in app.jobs()] == ["completed"]


def test_a_block_that_ends_by_an_exception_drains_too(app: Yaoki) -> None:
    done = threading.Event()
    app.job("a")(done.set)

    def serve() -> None:
        with app.worker_beside():
            app.enqueue("a")
            assert done.wait(20)
            raise RuntimeError("the web app")

    with pytest.raises(RuntimeError, match="the web app"):
        serve()

    assert [job.status for job in app.jobs()] == ["completed"]
    assert app.workers() == []


def test_a_worker_beside_leaves_the_signals_to_the_program(app: Yaoki) -> None:
    app.job("a")(lambda: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    with app.worker_beside() as beside:
        eventually(lambda: beside.worker is not None and beside.worker.ready.is_set(), within=20)
        assert {number: signal.getsignal(number) for number in before} == before


def test_two_apps_have_a_worker_each_in_one_process(any_url: str, url: str, tmp_path: Path) -> None:
    one, other = Yaoki(any_url), Yaoki(f"sqlite:///{tmp_path / 'other.db'}")
    ran: list[str] = []
    one.job("a")(lambda: ran.append("one"))
    other.job("a")(lambda: ran.append("other"))
    with one.worker_beside(), other.worker_beside():
        jobs = [one.enqueue("a"), other.enqueue("a")]
        assert one.wait(jobs[0], timeout=20).status == "completed"
        assert other.wait(jobs[1], timeout=20).status == "completed"

    assert sorted(ran) == ["one", "other"]
    one.close()
    other.close()


def test_what_is_wrong_with_the_settings_is_said_at_once(app: Yaoki) -> None:
    with pytest.raises(InvalidOption, match="no job types"):
        app.worker_beside()
    app.job("a")(lambda: None)
    with pytest.raises(InvalidOption, match="concurrency"):
        app.worker_beside(concurrency=0)


def test_a_start_up_that_fails_is_logged_and_tried_again(
    app: Yaoki, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[int] = []

    @app.on_startup
    def connect() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionError("no tracer")

    app.job("a")(lambda: None)
    with app.worker_beside():
        assert app.wait(app.enqueue("a"), timeout=20).status == "completed"

    assert len(tries) == 2
    assert "ConnectionError: no tracer" in caplog.text


@pytest.fixture
def reloading(url: str, tmp_path: Path, let_go: Path, processes: Processes) -> Iterator[Web]:
    """A server that starts again when `watched.py` in its folder changes."""
    (tmp_path / "watched.py").write_text("from tests.web.shop import web\n", "utf-8")
    process = processes.python(
        *("-m", "uvicorn", "watched:web", "--port", "0", "--reload"),
        *("--reload-dir", str(tmp_path)),
        env={"SHOP_URL": url, "LET_GO": str(let_go), "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
    )
    try:
        yield Web(process)
    finally:
        # It has a child, which would go on, and keep its output open.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_the_server_may_start_again_when_its_code_changes(
    reloading: Web, tmp_path: Path, let_go: Path
) -> None:
    """uvicorn --reload: the old process drains, the new one goes on."""
    process = reloading.process
    process.wait_for_line("Application startup complete", within=40)
    before = reloading.ask("/alive")["pid"]
    job = reloading.ask("/orders/plain", "POST")["job"]
    eventually(lambda: reloading.ask(f"/jobs/{job}")["status"] == "running", within=20)
    (tmp_path / "watched.py").write_text("from tests.web.shop import web\n\n", "utf-8")
    process.wait_for_line("Waiting for application shutdown", within=40)
    let_go.touch()
    process.wait_for_line("Application shutdown complete", within=40)
    process.wait_for_line("Application startup complete", within=40)

    assert reloading.ask("/alive")["pid"] != before
    done = {"status": "completed", "result": f"order 7 by {before}"}
    assert reloading.ask(f"/jobs/{job}") == done
