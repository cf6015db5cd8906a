"""Queues: how deep they are, and holding them back."""

from datetime import timedelta
from typing import Any

import pytest

from tests.support.acts import ids
from tests.support.clocks import Clock
from yaoki import InvalidOption, Yaoki


def test_a_queue_counts_what_is_due_delayed_running_and_dead(app: Yaoki, clock: Clock) -> None:
    app.enqueue("mail", queue="a", max_attempts=1)
    app.fail(app.claim("w1")[0], "x")
    app.enqueue("mail", queue="a")
    app.complete(app.claim("w1")[0])
    app.enqueue("mail", queue="a")
    app.claim("w1")
    since = clock.time
    app.enqueue_many("mail", [{}] * 3, queue="a")
    app.enqueue_many("mail", [{}] * 2, queue="a", delay=90)
    clock.advance(30)
    app.enqueue("mail", queue="b")

    [a, b] = app.queues()

    assert (a.name, a.due, a.delayed, a.running, a.failed) == ("a", 3, 2, 1, 1)
    assert (a.oldest_due_at, a.paused) == (since, False)
    assert (b.name, b.due, b.oldest_due_at) == ("b", 1, since + timedelta(seconds=30))


def test_a_queue_of_ended_jobs_only_is_not_listed(app: Yaoki) -> None:
    app.enqueue("mail")
    app.complete(app.claim("w1")[0])

    assert app.queues() == []


def test_queues_are_listed_in_the_order_of_their_characters(app: Yaoki) -> None:
    """Not in that of a language, which is another one in every database."""
    names = ["b", "B", "a", "Z", "z", "ä", "10", "9", "お", "a b", "a-b"]
    for name in names:
        app.enqueue("mail", queue=name)
        app.pause(name)

    assert [queue.name for queue in app.queues()] == sorted(names)
    assert [one.name for one in app.paused()] == sorted(names)


def test_delayed_jobs_are_not_what_a_queue_is_late_with(app: Yaoki) -> None:
    app.enqueue("mail", delay=9)

    [queue] = app.queues()

    assert (queue.due, queue.delayed, queue.oldest_due_at) == (0, 1, None)


def test_a_paused_queue_is_listed_although_it_is_empty(app: Yaoki) -> None:
    app.pause("mail")

    [queue] = app.queues()

    assert (queue.name, queue.due, queue.paused) == ("mail", 0, True)


def test_a_paused_queue_takes_jobs_and_gives_none_away(app: Yaoki) -> None:
    app.pause("mail")
    job = app.enqueue("send", queue="mail")
    other = app.enqueue("send")

    assert ids(app.claim("w1", limit=9)) == [other.id]
    assert app.queues()[1].paused
    app.resume("mail")
    assert ids(app.claim("w1", limit=9)) == [job.id]


def test_jobs_that_run_when_their_queue_is_paused_go_on(app: Yaoki) -> None:
    app.enqueue("send", queue="mail")
    [job] = app.claim("w1")

    app.pause("mail")

    app.extend(job)
    assert app.complete(job).status == "completed"


def test_pausing_a_queue_is_not_pausing_the_type_of_that_name(app: Yaoki) -> None:
    app.pause("mail")
    job = app.enqueue("mail", queue="other")

    assert ids(app.claim("w1")) == [job.id]


def test_pausing_twice_and_resuming_what_was_not_paused_change_nothing(
    app: Yaoki, clock: Clock
) -> None:
    app.pause("a")
    since = clock.time
    clock.advance(9)
    app.pause("a")
    app.resume("b")
    app.resume(type="a")

    [one] = app.paused()

    assert (one.kind, one.name, one.paused_at) == ("queue", "a", since)


def test_all_that_is_paused_is_listed(app: Yaoki) -> None:
    app.pause("b")
    app.pause("a")
    app.pause(type="mail")

    assert [(one.kind, one.name) for one in app.paused()] == [
        ("queue", "a"),
        ("queue", "b"),
        ("type", "mail"),
    ]


@pytest.mark.parametrize("verb", ["pause", "resume"])
def test_either_a_queue_or_a_type_is_named(app: Yaoki, verb: str) -> None:
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((), {}),
        (("a",), {"type": "b"}),
        (("",), {}),
        (("\ud83d",), {}),
        ((), {"type": "a\0"}),
    ]
    for args, kwargs in wrong:
        with pytest.raises(InvalidOption):
            getattr(app, verb)(*args, **kwargs)

    assert app.paused() == []
