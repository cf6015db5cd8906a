"""The health of a queue: what is found, in what words, and how bad it is."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.acts import SECOND
from tests.support.clocks import Clock
from tests.support.runners import postgres, sqlite
from yaoki import Check, Health, InvalidOption, WorkerHealth, Yaoki
from yaoki.core.health import LoopHealth
from yaoki.store import Store
from yaoki.store.ops import health as looking
from yaoki.store.ops.upkeep import KeepAlive, WorkerRow


@pytest.fixture(params=[sqlite, postgres], ids=lambda runner: runner.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    """One of each kind. (How else a look can be run: tests/store/test_looking_around.py.)"""
    with request.param(tmp_path, clock) as opened:
        yield opened


def announce(store: Store, worker_id: str = "w1", **more: object) -> None:
    """A worker that knows the types mail and image."""
    types = '["mail","image"]'
    row = WorkerRow(worker_id, "host", 7, "0.1", None, types, 5, "working", 60 * SECOND)
    store.run(KeepAlive(row._replace(**more), []))


def check(health: Health, code: str) -> Check:
    [found] = [one for one in health.checks if one.code == code]
    return found


def test_a_queue_that_works_is_healthy(app: Yaoki, store: Store, clock: Clock) -> None:
    announce(store, health=WorkerHealth(looked_ago=0.5).to_json())
    app.enqueue("mail")
    app.claim("w1")
    app.enqueue("image", delay=5)
    clock.advance(1)

    health = app.health()

    assert health.ok
    assert health.problems == ()
    assert {one.code for one in health.warnings} <= _OF_THIS_MACHINE
    assert health.ready == ()
    assert check(health, "workers").message == "1 worker at work"
    assert check(health, "cannot-claim").message.endswith("; one looked 1.5 s ago")


def test_the_longest_waiting_job_of_each_queue_is_named(
    app: Yaoki, store: Store, clock: Clock
) -> None:
    app.enqueue("image", queue="a", priority=50)
    clock.advance(1)
    first = app.enqueue("mail", queue="b", priority=-50)
    clock.advance(2)
    app.enqueue("mail", queue="b", priority=50)
    app.enqueue("mail", queue="c", delay=60)
    clock.advance(4)

    a, b = app.health().ready

    assert (a.queue, a.type, a.waits) == ("a", "image", 7.0)
    assert (b.queue, b.type, b.job_id, b.waits) == ("b", "mail", first.id, 6.0)


def test_a_job_that_waits_for_long_is_a_warning(app: Yaoki, store: Store, clock: Clock) -> None:
    job = app.enqueue("mail", queue="slow")
    clock.advance(400)
    announce(store)

    late, patient = app.health(), app.health(longest_wait=500)

    assert check(late, "waiting").level == "warning"
    assert f"slow (job {job.id}, type mail, for 6 min 40 s)" in check(late, "waiting").message
    assert check(patient, "waiting").level == "ok"
    with pytest.raises(InvalidOption, match="longest_wait"):
        app.health(longest_wait=-1)


def test_nobody_at_work_is_a_problem_when_something_is_ready(
    app: Yaoki, store: Store, clock: Clock
) -> None:
    app.migrate()
    before = app.health()
    app.enqueue("mail", queue="orders")
    announce(store, state="draining")
    clock.advance(10)

    health = app.health()

    assert (before.ok, check(before, "workers").level) == (True, "warning")
    assert check(health, "workers").level == "problem"
    assert "orders" in check(health, "workers").message
    assert check(health, "workers").advice.startswith("start one: yaoki")
    assert check(health, "unknown-types").level == "ok", "said once is enough"


def test_a_silent_worker_is_named(app: Yaoki, store: Store, clock: Clock) -> None:
    announce(store, "lost")
    clock.advance(61)
    announce(store, "alive")

    health = app.health()

    assert health.ok
    assert "lost" in check(health, "silent-workers").message
    assert check(health, "workers").message == "1 worker at work"


def test_a_lease_that_nobody_takes_back_is_a_problem(app: Yaoki, clock: Clock) -> None:
    app.enqueue_many("mail", [{}] * 2)
    first, _ = app.claim("w1", limit=2, lease_for=60)
    clock.advance(100)
    meanwhile = app.health()
    clock.advance(21)

    leases = check(app.health(), "leases")

    assert check(meanwhile, "leases").level == "ok", "workers take their time, to be sure"
    assert leases.level == "problem"
    assert leases.message.startswith("2 jobs are running")
    assert f"the first is job {first.id}" in leases.message


def test_a_type_that_no_worker_knows_is_a_problem_and_one_that_was_just_enqueued_is_not(
    app: Yaoki, store: Store, clock: Clock
) -> None:
    app.enqueue("typo")
    app.enqueue("mail")
    announce(store)
    at_once = app.health()
    clock.advance(6)

    unknown = check(app.health(), "unknown-types")

    assert check(at_once, "unknown-types").level == "ok"
    assert unknown.level == "problem"
    assert "jobs of typo are ready, and no worker knows it (job " in unknown.message


def test_a_queue_that_nobody_serves_is_a_problem(app: Yaoki, store: Store, clock: Clock) -> None:
    announce(store, queues_json='["a","b"]')
    announce(store, "other", types_json='["other"]')
    app.enqueue("mail", queue="a")
    app.enqueue("mail", queue="c")
    clock.advance(6)

    health = app.health()

    assert check(health, "unserved-queues").level == "problem"
    assert "ready in c, and no worker" in check(health, "unserved-queues").message
    assert check(health, "unknown-types").level == "ok"


def test_what_is_paused_is_named_only_when_something_waits_for_it(
    app: Yaoki, store: Store, clock: Clock
) -> None:
    announce(store)
    app.pause("a")
    app.pause("empty")
    app.pause(type="image")
    app.enqueue("typo", queue="a")
    app.enqueue("image", queue="b")
    clock.advance(400)

    health = app.health()

    paused = [one for one in health.checks if one.code == "paused"]
    assert [one.level for one in paused] == ["warning", "warning"]
    assert [one.advice for one in paused] == [
        "let it go on: yaoki resume a",
        "let it go on: yaoki resume --type image",
    ]
    assert health.ok, "what is paused is nobody's fault"
    assert {one.queue for one in health.ready} == {"a", "b"}


def test_what_a_worker_says_of_itself_is_told_to_everybody(app: Yaoki, store: Store) -> None:
    said = WorkerHealth(
        loops=(LoopHealth("exchange", failures=3, error="the disk is full"), LoopHealth("rescue")),
        looked_ago=12.5,
        concurrency=5,
        leaked=2,
    )
    announce(store, health=said.to_json())

    health = app.health()
    [worker] = app.workers()

    assert not health.ok
    assert check(health, "cannot-claim").message == (
        "worker w1: it cannot claim jobs: its loop exchange has failed 3 times in a row: "
        "the disk is full"
    )
    assert check(health, "leaked-handlers").level == "warning"
    assert worker.health == said
    assert not worker.is_well
    assert worker.to_dict()["health"]["can_claim"] is False  # type: ignore[index]


def test_what_a_newer_worker_says_of_itself_stops_nobody(app: Yaoki, store: Store) -> None:
    announce(store, "newer", health='{"loops":[{"name":"x","mood":"fine"}],"more":1}')
    announce(store, "strange", health='{"loops":7}')
    announce(store, "broken", health="not JSON")

    health = app.health()

    assert health.ok
    assert [worker.health and worker.health.loops[0].name for worker in app.workers()] == [
        *(None, "x", None),
    ]


def test_health_is_json_for_programs(app: Yaoki, store: Store, clock: Clock) -> None:
    app.enqueue("mail")
    clock.advance(10)

    told = json.loads(json.dumps(app.health().to_dict()))

    assert told["ok"] is False
    assert {"code", "level", "message", "advice"} == set(told["checks"][0])
    assert told["ready"] == [{"queue": "default", "type": "mail", "job_id": 1, "waits": 10.0}]


def test_more_lanes_than_are_looked_at_are_said_to_be_too_many(
    app: Yaoki, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.enqueue_many("mail", [{}], queue="a")
    app.enqueue_many("mail", [{}], queue="b")
    monkeypatch.setattr(looking, "MOST_LANES", 2)

    health = app.health()

    assert check(health, "many-queues").level == "warning"


@pytest.fixture
def real(any_url: str) -> Iterator[Yaoki]:
    """A queue of each kind, with real clocks."""
    made = Yaoki(any_url)
    yield made
    made.close()


def test_the_awaiting_twin_says_the_same(real: Yaoki) -> None:
    real.enqueue("mail", delay=3600)

    told, awaited = real.health(), asyncio.run(real.ahealth())

    assert awaited.ok
    assert [one.code for one in awaited.checks] == [one.code for one in told.checks]


_OF_THIS_MACHINE = {"wal-flaw", "vacuum", "wake-ups", "disk", "connections"}
"""What may be a warning for reasons that are not the queue's."""
