"""The loops of a worker: no error ends them, and none makes them hurry."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support.eventually import eventually
from yaoki.loop import FIRST_PAUSE, LONGEST_PAUSE, Loop
from yaoki.store.patience import patience


class Told(Loop):
    """Does what a test says, round after round."""

    def __init__(self, act: Callable[[int], float], longest: float = float("inf")) -> None:
        super().__init__("told", longest)
        self._act = act
        self.rounds: list[float] = []

    def once(self) -> float:
        self.rounds.append(time.monotonic())
        return self._act(len(self.rounds))


@pytest.fixture
def begun() -> Iterator[Callable[[Told], Told]]:
    """Starts loops that are stopped at the end."""
    loops: list[Told] = []

    def begin(loop: Told) -> Told:
        loops.append(loop)
        loop.start()
        return loop

    yield begin
    for loop in loops:
        loop.stop()


Begun = Callable[[Told], Told]


def fail(number: int) -> float:
    raise ValueError(f"number {number}")


def test_each_pause_after_a_failure_is_twice_the_one_before_and_bounded(begun: Begun) -> None:
    loop = begun(Told(fail, longest=0.4))
    eventually(lambda: len(loop.rounds) > 5, within=10)
    pauses = [later - sooner for sooner, later in zip(loop.rounds, loop.rounds[1:], strict=False)]

    assert all(pause >= least for pause, least in zip(pauses, LEAST, strict=False))
    assert Told(fail).longest_pause == LONGEST_PAUSE < 5, "a recovery may take five seconds"


LEAST = (FIRST_PAUSE, 0.2, 0.4, 0.4, 0.4)


def test_a_failing_loop_is_not_hurried_by_those_who_wake_it(begun: Begun) -> None:
    loop = begun(Told(fail))
    over = time.monotonic() + 1
    while time.monotonic() < over:
        loop.wake()
        time.sleep(0.002)

    assert 2 <= len(loop.rounds) <= 5


def test_a_failing_loop_stops_at_once(begun: Begun) -> None:
    loop = begun(Told(fail))
    eventually(lambda: loop.failures >= 4)
    began = time.monotonic()
    loop.stop()

    assert time.monotonic() - began < 0.5
    assert not loop._thread.is_alive()


def test_a_try_that_hung_has_waited_already(begun: Begun) -> None:
    def hang(number: int) -> float:
        if number == 4:
            time.sleep(0.8)
        return fail(number)

    loop = begun(Told(hang))
    eventually(lambda: len(loop.rounds) > 4, within=20)

    assert loop.rounds[4] - loop.rounds[3] < 1.5, "its pause would have been 0.8 s by itself"


def test_a_wait_that_fails_ends_no_loop_and_is_told_seldom(
    begun: Begun, caplog: pytest.LogCaptureFixture
) -> None:
    class CannotWait(Told):
        def _wait(self, seconds: float) -> None:
            raise OSError("too many open files")

    loop = begun(CannotWait(lambda number: 0.0))
    assert not threading.Event().wait(1)

    assert not loop.died
    assert 2 <= len(loop.rounds) <= 5
    assert len(caplog.records) <= 5


def test_what_a_loop_does_about_a_failure_may_fail_as_well(begun: Begun) -> None:
    class Clumsy(Told):
        def failed(self, error: Exception) -> None:
            raise KeyError("clumsy")

    loop = begun(Clumsy(lambda number: fail(number) if number < 3 else 0.01))
    eventually(lambda: len(loop.rounds) > 5 and not loop.failures)

    assert not loop.died


def test_what_a_loop_asks_the_database_is_bounded_by_its_patience(begun: Begun) -> None:
    seen = []

    def look(number: int) -> float:
        seen.append(patience())
        return 1.0

    begun(Told(look, longest=0.7))
    eventually(lambda: seen)

    assert seen[0] == (0.7, True)
    assert patience() == (float("inf"), False)
