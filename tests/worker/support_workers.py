"""Workers on threads of the test's own process, ended when the test ends."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.databases import ask
from yaoki import Yaoki
from yaoki.worker import Ending


class Working:
    """A worker that runs on a thread until it is drained."""

    def __init__(self, app: Yaoki, **settings: Any) -> None:
        settings = {"lease_for": 2, "grace": 5} | settings
        self.worker = app.worker(**settings)
        self.ending: Ending | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="worker under test", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def drain(self, within: float = 20) -> Ending:
        """Tell it to end, and wait until it has."""
        self.worker.drain()
        return self.wait(within)

    def wait(self, within: float = 20) -> Ending:
        """Wait until it has ended by itself."""
        self._thread.join(within)
        assert not self._thread.is_alive(), f"the worker still runs after {within} s"
        if self._error is not None:
            raise self._error
        assert self.ending is not None
        return self.ending

    def _run(self) -> None:
        try:
            self.ending = self.worker.run()
        except BaseException as error:
            self._error = error


StartWorker = Callable[..., Working]


@pytest.fixture
def app(any_url: str) -> Iterator[Yaoki]:
    """A queue in a database of its own, of each kind."""
    made = Yaoki(any_url)
    yield made
    made.close()


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What handlers wait for that are to go on until the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def start_worker(app: Yaoki, release: threading.Event) -> Iterator[StartWorker]:
    """Starts workers that are drained when the test is over."""
    started: list[Working] = []

    def start(of: Yaoki | None = None, /, **settings: Any) -> Working:
        working = Working(app if of is None else of, **settings)
        started.append(working)
        return working

    yield start
    release.set()
    for working in started:
        working.worker.drain()
    for working in started:
        if not working.ended:
            working.wait()


def work_off(app: Yaoki, within: float = 30, **settings: Any) -> Ending:
    """Run a worker until nothing is left to do."""
    return Working(app, until_empty=True, **settings).wait(within)


def stays(fact: Callable[[], object], during: float) -> bool:
    """Whether `fact` is true again and again for so many seconds: that nothing happens."""
    end = time.monotonic() + during
    while fact():
        if time.monotonic() >= end:
            return True
        time.sleep(0.01)
    return False


def let_lease_end(app: Yaoki, job_id: int) -> None:
    """As if its worker had been silent for long."""
    over = "UPDATE yaoki.jobs SET lease_expires_at = 1 WHERE id = :id AND lease % 2 = 1"
    ask(app.store, over, {"id": job_id})
