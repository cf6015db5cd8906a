"""A worker that cannot do its work says so, mends itself, or ends."""

import ctypes
import gc
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker
from yaoki import StoreUnavailable, Yaoki
from yaoki.core.health import STUCK_AFTER
from yaoki.loop import Loop
from yaoki.store.op import Op
from yaoki.store.ops.claims import Look
from yaoki.store.ops.settling import Exchange
from yaoki.worker.slots import Slots
from yaoki.worker.tasks import Tasks
from yaoki.worker.watch import Notes, Watch

deadly = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
"""For tests in which threads die, which pytest is otherwise told of."""


on_one = pytest.mark.parametrize("any_url", ["sqlite"], indirect=True)
"""For what takes its time, and has nothing to do with the database."""


class Troubled:
    """A store in which claims meet whatever `trouble` does; all else works."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.trouble: Callable[[], None] = lambda: None

    def run(self, op: Op[Any]) -> Any:
        if isinstance(op, Look | Exchange):
            self.trouble()
        return self._store.run(op)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
def app(any_url: str) -> Iterator[Yaoki]:
    made = Yaoki(any_url)

    @made.job("a")
    def handler() -> None: ...

    yield made
    made.close()


@pytest.fixture
def outside(app: Yaoki) -> Iterator[Yaoki]:
    """Another program on the same queue."""
    made = Yaoki(app.url)
    yield made
    made.close()


@pytest.fixture
def troubled(app: Yaoki) -> Troubled:
    made = Troubled(app.store)
    app.store = made  # type: ignore[assignment]
    return made


def fail() -> None:
    raise StoreUnavailable("the disk is full")


def die() -> None:
    raise SystemExit


def events(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What was logged of a worker's health, in its order."""
    wanted = ("degraded", "recovered", "loop died", "broken")
    found = (getattr(record, "event", None) for record in caplog.records)
    return [event for event in found if event in wanted]


def cannot_claim(app: Yaoki) -> bool:
    return any(check.code == "cannot-claim" for check in app.health().problems)


def test_a_worker_that_is_well_knows_what_it_does(
    app: Yaoki, outside: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    @app.job("long")
    def long() -> None:
        release.wait(30)

    working = start_worker(concurrency=3)
    outside.enqueue_many("long", [{}] * 2)
    eventually(lambda: working.worker.health().running == 2, within=20)
    eventually(lambda: working.worker.health().looked_ago is not None, within=20)
    health = working.worker.health()

    assert health.ok
    assert health.can_claim
    assert {"exchange", "keeper", "rescue"} <= {loop.name for loop in health.loops}
    assert (health.concurrency, health.leaked, health.unrecorded) == (3, 0, 0)
    assert health.looked_ago is not None
    assert health.looked_ago < 20
    [told] = outside.workers()
    assert told.is_well
    assert told.health is not None


def test_a_worker_that_cannot_claim_says_so_at_once_and_when_it_can_again(
    app: Yaoki,
    outside: Yaoki,
    troubled: Troubled,
    start_worker: StartWorker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With a lease of a minute the next beat is 20 s away; the news does not wait for it."""
    caplog.set_level(logging.INFO)
    working = start_worker(lease_for=60)
    outside.wait(outside.enqueue("a"), timeout=20)
    troubled.trouble = fail
    eventually(lambda: cannot_claim(outside), within=15)
    unwell = working.worker.health()
    troubled.trouble = lambda: None
    eventually(lambda: not cannot_claim(outside), within=15)

    assert not unwell.ok
    assert not unwell.can_claim
    assert "the disk is full" in unwell.problems[0].message
    eventually(lambda: events(caplog) == ["degraded", "recovered"], within=15)
    [told] = [r for r in caplog.records if getattr(r, "event", None) == "degraded"]
    assert "cannot claim jobs" in told.getMessage()
    assert told.worker == working.worker.settings.worker_id  # type: ignore[attr-defined]
    assert told.checks[0]["code"] == "cannot-claim"  # type: ignore[attr-defined]


@on_one
def test_a_worker_whose_claim_hangs_says_so_while_it_hangs(
    outside: Yaoki,
    troubled: Troubled,
    start_worker: StartWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its beats go on all the time: alive, and deaf."""
    assert STUCK_AFTER["exchange"] == 5.0, "as the guide says; the test is not as patient"
    monkeypatch.setitem(STUCK_AFTER, "exchange", 1.5)
    go_on = threading.Event()
    working = start_worker(lease_for=60)
    outside.wait(outside.enqueue("a"), timeout=20)
    troubled.trouble = lambda: go_on.wait(60) and None
    eventually(lambda: cannot_claim(outside), within=25)
    stuck = [loop.name for loop in working.worker.health().loops if loop.stuck_for is not None]
    go_on.set()

    assert stuck == ["exchange"]
    eventually(lambda: not cannot_claim(outside), within=15)
    outside.wait(outside.enqueue("a"), timeout=20)


@on_one
@deadly
def test_a_loop_that_died_is_begun_anew(
    app: Yaoki,
    outside: Yaoki,
    troubled: Troubled,
    start_worker: StartWorker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    working = start_worker()
    outside.wait(outside.enqueue("a"), timeout=20)
    before = working.worker.exchanger._thread
    troubled.trouble = die
    eventually(lambda: not before.is_alive(), within=15)
    troubled.trouble = lambda: None

    outside.wait(outside.enqueue("a"), timeout=20)
    assert "loop died" in events(caplog)
    eventually(lambda: working.worker.health().ok, within=15)
    assert working.drain().exit_code == 0


@deadly
def test_every_loop_that_died_is_begun_anew(
    app: Yaoki, outside: Yaoki, start_worker: StartWorker
) -> None:
    working = start_worker()
    outside.wait(outside.enqueue("a"), timeout=20)
    loops = (*working.worker.parts, working.worker.watch)
    before = {loop: loop._thread for loop in loops}
    for loop, thread in before.items():
        kill(thread)
        loop.wake()

    eventually(lambda: not any(map(threading.Thread.is_alive, before.values())), within=30)
    eventually(lambda: not any(loop.died for loop in before), within=15)
    outside.wait(outside.enqueue("a"), timeout=20)


@on_one
@deadly
def test_a_worker_whose_loop_dies_again_and_again_ends_and_its_exit_code_says_so(
    app: Yaoki,
    outside: Yaoki,
    troubled: Troubled,
    start_worker: StartWorker,
    caplog: pytest.LogCaptureFixture,
) -> None:
    working = start_worker()
    outside.wait(outside.enqueue("a"), timeout=20)
    troubled.trouble = die

    ending = working.wait(within=40)

    assert ending.exit_code == 1
    assert ending.broken == "its loop exchange has died 3 times"
    assert "broken" in events(caplog)


@on_one
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_a_worker_whose_event_loop_has_ended_ends(
    app: Yaoki, outside: Yaoki, start_worker: StartWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its async handlers would hold their leases for ever, and never come on."""

    @app.job("async")
    async def coroutine() -> None: ...

    monkeypatch.setattr(Tasks, "_run_until_stopped", lambda self, loop: None)
    working = start_worker(grace=0.1)
    outside.enqueue("async")

    ending = working.wait(within=30)

    assert ending.exit_code == 1
    assert ending.broken == "the event loop of its async handlers has ended"
    assert not list(outside.jobs(status="running")), "what it had is given back"
    gc.collect()  # tasks that were never begun complain, and here it does not matter


@pytest.mark.parametrize("any_url", ["postgres"], indirect=True)
def test_a_worker_that_cannot_listen_works_and_says_so(
    outside: Yaoki, start_worker: StartWorker
) -> None:
    """Notifications are a hint: it looks once a second, so that is no problem, but a warning."""
    deaf = Yaoki(f"{outside.url}?listen=postgresql://127.0.0.1:1/nowhere")

    @deaf.job("a")
    def handler() -> None: ...

    def warnings() -> list[str]:
        told = [worker.health for worker in outside.workers() if worker.health is not None]
        return [check.code for health in told for check in health.warnings]

    working = start_worker(deaf, lease_for=60)
    eventually(lambda: warnings() == ["wake-ups"], within=20)

    assert working.worker.health().ok
    assert outside.wait(outside.enqueue("a"), timeout=20).status == "completed"
    assert working.drain().exit_code == 0
    deaf.close()


@on_one
def test_handlers_that_outlived_their_time_limit_are_counted(
    app: Yaoki, outside: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    @app.job("stubborn", timeout=0.1)
    def stubborn() -> None:
        release.wait(60)

    working = start_worker()
    outside.enqueue("stubborn", max_attempts=1)

    def leaked() -> bool:
        return any(check.code == "leaked-handlers" for check in outside.health().warnings)

    eventually(leaked, within=20)
    health = working.worker.health()
    assert health.ok, "its slot was given on, so it works"
    assert health.warnings[0].message == "1 handler ran past the time limit and still runs"
    release.set()
    eventually(lambda: not leaked(), within=20)


def _nothing(*_: object) -> None: ...


class Idle(Loop):
    """A loop that has little to do."""

    def once(self) -> float:
        return 60.0


def test_a_process_that_was_frozen_finds_nothing_wrong_when_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After SIGCONT, or a night with the lid closed, every round is late: its own look as well."""
    loop = Idle("exchange")
    loop.start()
    eventually(lambda: loop.due_at < float("inf"))
    watch = Watch("w1", [loop], Slots(1, *[_nothing] * 3), Notes, _nothing, print)
    loop.due_at -= 120
    watch._looked_at -= 60
    watch.once()
    woken = events(caplog)
    watch.once()

    assert woken == []
    assert events(caplog) == ["degraded"], "at the second look it is no excuse any more"
    loop.stop()


def kill(thread: threading.Thread) -> None:
    """Let it end as if its code had raised SystemExit, the next time that it runs any."""
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
    )


def test_an_outage_is_two_lines_however_many_loops_fail_one_after_the_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "yaoki.health")
    keeper, exchange = Idle("keeper"), Idle("exchange")
    watch = Watch("w1", [keeper, exchange], Slots(1, *[_nothing] * 3), Notes, _nothing, print)

    for failing in ((1, 0), (2, 1), (0, 2), (3, 0), (4, 5), (0, 0), (0, 0)):
        keeper.failures, exchange.failures = failing
        watch.once()

    assert events(caplog) == ["degraded", "degraded", "recovered"]
    assert "cannot claim" not in caplog.messages[0]
    assert "cannot claim" in caplog.messages[1]
