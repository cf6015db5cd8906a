"""Who works here: announced, heard of, gone; and what they say of their job types."""

from datetime import timedelta

from tests.support.acts import SECOND, publish
from tests.support.clocks import Clock
from yaoki import Yaoki
from yaoki.core.definition import Definition
from yaoki.store import Store
from yaoki.store.ops.upkeep import KeepAlive, WorkerRow
from yaoki.store.ops.workers import FORGOTTEN_AFTER, Leave, Publish


def beat(store: Store, worker_id: str, state: str = "working", **more: object) -> None:
    row = WorkerRow(worker_id, "host", 7, "0.1", '["mail"]', '["a","b"]', 5, state, 60 * SECOND)
    store.run(KeepAlive(row._replace(**more), []))


def test_a_worker_is_listed_as_it_announced_itself(app: Yaoki, store: Store, clock: Clock) -> None:
    beat(store, "w1")

    [worker] = app.workers()

    assert (worker.worker_id, worker.host, worker.pid, worker.version) == ("w1", "host", 7, "0.1")
    assert (worker.queues, worker.types, worker.concurrency) == (("mail",), ("a", "b"), 5)
    assert (worker.state, worker.started_at, worker.silent) == ("working", clock.time, False)


def test_a_worker_of_every_queue_says_so(app: Yaoki, store: Store) -> None:
    beat(store, "w1", queues_json=None)

    assert app.workers()[0].queues is None


def test_a_worker_is_heard_of_with_every_beat(app: Yaoki, store: Store, clock: Clock) -> None:
    beat(store, "w1")
    since = clock.time
    clock.advance(50)
    beat(store, "w1", "draining")
    clock.advance(50)

    [worker] = app.workers()

    assert (worker.started_at, worker.seen_at) == (since, since + timedelta(seconds=50))
    assert (worker.state, worker.silent) == ("draining", False)


def test_a_worker_that_is_not_heard_of_for_a_lease_is_silent(
    app: Yaoki, store: Store, clock: Clock
) -> None:
    beat(store, "w1")
    clock.advance(61)

    assert app.workers()[0].silent


def test_a_worker_that_takes_leave_is_gone(app: Yaoki, store: Store) -> None:
    beat(store, "w1")
    beat(store, "w2")

    store.run(Leave("w1"))

    assert [worker.worker_id for worker in app.workers()] == ["w2"]


def test_workers_that_fell_silent_long_ago_are_forgotten_when_somebody_leaves(
    app: Yaoki, store: Store, clock: Clock
) -> None:
    beat(store, "old")
    clock.now += FORGOTTEN_AFTER + 1
    beat(store, "new")

    store.run(Leave("another"))

    assert [worker.worker_id for worker in app.workers()] == ["new"]


def test_the_oldest_worker_comes_first(app: Yaoki, store: Store, clock: Clock) -> None:
    for worker_id in ("b", "a"):
        beat(store, worker_id)
        clock.advance(1)

    assert [worker.worker_id for worker in app.workers()] == ["b", "a"]


def test_what_is_published_can_be_read_back(app: Yaoki, store: Store) -> None:
    definition = Definition(
        "mail",
        title="予約確定メール送信",
        queue="mail",
        priority=20,
        max_attempts=9,
        timeout=None,
        secret=("card",),
        arguments=("to",),
    )

    store.run(Publish([definition], "w1"))

    assert app.definitions() == {"mail": definition}


def test_the_newest_definition_stands(app: Yaoki, store: Store) -> None:
    publish(store, queue="old")
    publish(store, queue="new")
    publish(store, "other")

    definitions = app.definitions()
    assert (definitions["mail"].queue, set(definitions)) == ("new", {"mail", "other"})


def test_publishing_nothing_does_nothing(app: Yaoki, store: Store) -> None:
    store.run(Publish([], "w1"))

    assert app.definitions() == {}


def test_an_app_publishes_all_that_was_said_at_the_decorator(app: Yaoki, store: Store) -> None:
    @app.job("mail", queue="q", priority="high", timeout=5, title="Mail", secret=("to",))
    def mail(to: str) -> None:
        """Send a mail."""

    store.run(Publish([kind.definition for kind in app.types], "w1"))

    read = app.definitions()["mail"]
    assert (read.queue, read.priority, read.timeout) == ("q", 20, 5 * SECOND)
    assert (read.title, read.description, read.secret) == ("Mail", "Send a mail.", ("to",))
