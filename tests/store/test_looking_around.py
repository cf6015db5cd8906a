"""How the work goes, as the database tells it: the first job of each lane, and what is overdue."""

from tests.support.acts import claim, make, publish
from tests.support.clocks import Clock
from yaoki import Yaoki
from yaoki.store import Store
from yaoki.store.ops.health import LookAround, Ready


def test_a_look_finds_the_first_of_each_lane_and_what_nobody_took_back(
    app: Yaoki, store: Store, clock: Clock
) -> None:
    publish(store)
    overdue = make(store, "image")
    claim(store)
    for priority in (5, -5, 0):
        clock.advance(1)
        make(store, "mail", queue="a", priority=priority)
        make(store, "mail", queue="b", priority=priority)
    make(store, "mail", queue="c", delay=10**12)
    make(store, "請求書", queue="a")
    clock.advance(130)
    app.pause("b")

    found = store.run(LookAround())

    assert found.ready == [
        Ready("mail", "a", 2, 132.0),
        Ready("mail", "b", 3, 132.0),
        Ready("請求書", "a", 9, 130.0),
    ]
    assert (found.overdue, found.first_overdue) == (1, overdue.id)
    assert [one.name for one in found.paused] == ["b"]
    assert found.complete


def test_a_look_at_nothing_finds_nothing(store: Store, clock: Clock) -> None:
    assert store.run(LookAround()) == ([], True, 0, None, [], [], clock.time)
