"""Making jobs: what they get from their caller, from their definition, and from nobody."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.acts import SECOND, claim, claim_one, end, failed_for_now, make, publish, read
from tests.support.clocks import Clock
from tests.support.databases import ask
from yaoki import InvalidOption, InvalidPayload, RetryPolicy, Yaoki, fixed
from yaoki.core.definition import Definition
from yaoki.core.said import NO_LIMIT, NewJob, Unsaid
from yaoki.store import Store
from yaoki.store.ops.jobs import EnqueueMany
from yaoki.store.ops.workers import Adopt


def test_a_new_job_has_the_defaults(app: Yaoki, clock: Clock) -> None:
    job = app.enqueue("send-mail", {"to": "mai@example.jp"})

    assert app.get(job) == job
    assert (job.type, job.payload, job.status) == (
        "send-mail",
        {"to": "mai@example.jp"},
        "pending",
    )
    assert (job.queue, job.priority, job.attempt, job.max_attempts) == ("default", 0, 0, 4)
    assert (job.timeout, job.revision, job.created) == (3600, 1, True)
    assert job.run_at == job.created_at == job.updated_at == clock.time
    assert (job.lease, job.worker_id, job.error, job.result, job.tags) == (None,) * 4 + ((),)


def test_a_new_job_has_what_its_caller_said(app: Yaoki, clock: Clock) -> None:
    job = app.enqueue(
        "send-mail",
        {},
        queue="mail",
        priority="high",
        delay=timedelta(minutes=1),
        idempotency_key="order-7",
        max_retries=6,
        timeout=None,
        tags=["a", "b"],
    )

    assert app.get(job) == job
    assert (job.queue, job.priority, job.max_attempts, job.timeout) == ("mail", 20, 7, None)
    assert (job.idempotency_key, job.tags) == ("order-7", ("a", "b"))
    assert job.run_at == clock.time + timedelta(minutes=1)


def test_a_job_can_name_its_instant(app: Yaoki) -> None:
    new_year = datetime(2028, 1, 1, tzinfo=UTC)

    job = app.enqueue("greet", {}, run_at=new_year)

    assert app.get(job).run_at == new_year


def test_an_instant_in_the_past_is_due_now(app: Yaoki, clock: Clock) -> None:
    job = app.enqueue("greet", {}, run_at=clock.time - timedelta(days=400))

    assert [claimed.id for claimed in app.claim("w1")] == [job.id]


@pytest.mark.parametrize(
    "options",
    [
        {"queue": ""},
        {"queue": "a\0b"},
        {"queue": "\ud83d"},
        {"queue": " mail"},
        {"queue": 7},
        {"priority": 101},
        {"priority": -101},
        {"priority": "urgent"},
        {"priority": True},
        {"priority": 2**63},
        {"max_attempts": 0},
        {"max_attempts": 2**63},
        {"max_attempts": True},
        {"max_retries": -1},
        {"max_retries": 1, "max_attempts": 3},
        {"delay": -1},
        {"delay": float("nan")},
        {"delay": 2**63},
        {"delay": 1, "run_at": datetime(2028, 1, 1, tzinfo=UTC)},
        {"run_at": datetime(2028, 1, 1)},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": 2**63},
        {"idempotency_key": ""},
        {"idempotency_key": "k\0"},
        {"idempotency_key": "\ud83d"},
        {"idempotency_key": "k" * 501},
        {"on_existing": "replace"},
        {"tags": "one"},
        {"tags": ["\ud83d"]},
        {"colour": "red"},
    ],
    ids=str,
)
def test_an_option_that_cannot_be_is_refused_and_nothing_is_made(
    app: Yaoki, options: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOption) as refused:
        app.enqueue("send-mail", {}, **options)
    with pytest.raises(InvalidOption):
        app.enqueue_many("send-mail", [{}], **options)

    assert "\n" not in str(refused.value)
    assert app.jobs() == []


@pytest.mark.parametrize("kind", ["", "a\0b", "\ud83d", "x" * 201, None, 7, "a\nb"])
def test_a_type_that_cannot_be_is_refused(app: Yaoki, kind: Any) -> None:
    with pytest.raises(InvalidOption):
        app.enqueue(kind, {})

    assert app.jobs() == []


def test_whole_numbers_at_the_edge_of_64_bits_are_refused_in_options_before_a_driver_sees_them(
    app: Yaoki,
) -> None:
    """sqlite3 raises OverflowError for 2**63, which is no sqlite3.Error (fact F11)."""
    for option in ("priority", "max_attempts", "delay", "timeout"):
        for number in (2**63, -(2**63) - 1, 10**30):
            with pytest.raises(InvalidOption):
                app.enqueue("send-mail", {}, **{option: number})


# Options that nobody gave


def test_what_a_worker_published_decides_what_the_caller_left_open(store: Store) -> None:
    publish(store, queue="mail", priority=20, max_attempts=9, timeout=5 * SECOND)

    job = make(store)

    assert read(store, job) == job
    assert (job.queue, job.priority, job.max_attempts, job.timeout) == ("mail", 20, 9, 5)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"queue": "other"}, ("other", 20, 9, 5)),
        ({"queue": "default"}, ("default", 20, 9, 5)),
        ({"priority": 0}, ("mail", 0, 9, 5)),
        ({"max_attempts": 4}, ("mail", 20, 4, 5)),
        ({"timeout": 7 * SECOND}, ("mail", 20, 9, 7)),
        ({"timeout": NO_LIMIT}, ("mail", 20, 9, None)),
    ],
)
def test_what_the_caller_said_stands_above_what_was_published(
    store: Store, said: dict[str, Any], expected: tuple[object, ...]
) -> None:
    """Also where it says what the default would be."""
    publish(store, queue="mail", priority=20, max_attempts=9, timeout=5 * SECOND)

    job = read(store, make(store, **said))

    assert (job.queue, job.priority, job.max_attempts, job.timeout) == expected


def test_the_program_that_knows_the_type_decides_by_its_own_definition(store: Store) -> None:
    publish(store, queue="published", max_attempts=9)

    job = make(store, unsaid=Unsaid(queue="mine", max_attempts=2))

    assert (job.queue, job.max_attempts) == ("mine", 2)


def test_a_type_of_the_app_is_enqueued_by_name_as_by_its_handler(app: Yaoki) -> None:
    @app.job("send-mail", queue="mail", priority="high", retry=RetryPolicy(max_attempts=2))
    def send_mail(to: str) -> None: ...

    by_name = app.enqueue("send-mail", {"to": "a"})
    [in_a_batch] = app.enqueue_many("send-mail", [{"to": "a"}])

    for job in (by_name, in_a_batch):
        assert (job.queue, job.priority, job.max_attempts) == ("mail", 20, 2)


def test_what_nobody_had_said_is_adopted_when_the_type_is_first_published(
    store: Store, clock: Clock
) -> None:
    early = make(store)
    clock.advance(5)

    publish(store, queue="mail", priority=30, max_attempts=2, timeout=None)

    adopted = read(store, early)
    assert (adopted.queue, adopted.priority, adopted.max_attempts) == ("mail", 30, 2)
    assert (adopted.timeout, adopted.revision, adopted.updated_at) == (None, 2, clock.time)


def test_a_job_that_slipped_past_the_first_publish_is_taken_in_later(store: Store) -> None:
    job = make(store, "mail")

    store.run(Adopt([Definition("mail", queue="post", max_attempts=9)]))
    store.run(Adopt([Definition("mail", queue="elsewhere")]))

    assert (read(store, job).queue, read(store, job).max_attempts) == ("post", 9)


def test_a_batch_larger_than_one_message_is_made_in_its_order(app: Yaoki) -> None:
    """Whether its jobs differ by their payloads only, or by more."""
    texts = [f"{number:02}{'x' * 1_000_000}" for number in range(20)]

    alike = app.enqueue_many("mail", [{"text": text} for text in texts])
    keyed = app.store.run(
        EnqueueMany(
            [NewJob("mail", f'{{"text":"{text}"}}', idempotency_key=text[:2]) for text in texts]
        )
    )

    for jobs in (alike, keyed):
        assert [app.get(job).payload["text"] for job in jobs] == texts
        assert [job.id for job in jobs] == sorted(job.id for job in jobs)


def test_adoption_leaves_what_the_caller_said(store: Store) -> None:
    early = make(store, queue="default", max_attempts=4)

    publish(store, queue="mail", priority=30, max_attempts=2, timeout=SECOND)

    adopted = read(store, early)
    assert (adopted.queue, adopted.priority) == ("default", 30)
    assert (adopted.max_attempts, adopted.timeout) == (4, 1)


def test_adoption_is_for_pending_jobs_of_that_type_only(store: Store) -> None:
    other = make(store, "other")
    done = make(store)
    claimed = claim_one(store, types=("mail",))

    publish(store, queue="mail")

    assert claimed.id == done.id
    assert [read(store, job).queue for job in (other, done)] == ["default", "default"]


def test_more_jobs_than_one_statement_adopts_are_adopted(store: Store) -> None:
    store.run(EnqueueMany([NewJob("mail", "{}")] * 2_345))

    publish(store, queue="mail", priority=10)

    assert len(claim(store, 10_000, queues=("mail",))) == 2_345


def test_a_newer_definition_changes_nothing_that_an_older_one_decided(store: Store) -> None:
    publish(store, queue="old", max_attempts=9)
    job = make(store)

    publish(store, queue="new", max_attempts=2)

    assert (read(store, job).queue, read(store, job).max_attempts) == ("old", 9)
    assert make(store).queue == "new"


def test_a_definition_that_this_version_cannot_read_counts_as_the_defaults(
    store: Store, app: Yaoki
) -> None:
    publish(store)
    ask(store, "UPDATE yaoki.definitions SET definition = '{\"type\": 7}'")

    assert make(store).queue == "default"
    assert app.definitions()["mail"].max_attempts == 4


def test_an_adopted_job_keeps_its_attempts(store: Store) -> None:
    make(store)
    end(store, claim_one(store), failed_for_now())

    publish(store, queue="mail", max_attempts=2)

    again = claim_one(store)
    assert (again.queue, again.attempt, again.max_attempts) == ("mail", 2, 2)


# Many at once


def test_ten_thousand_jobs_are_made_at_once_in_their_order(app: Yaoki) -> None:
    """One bind parameter for each value would break long before (fault 120)."""
    payloads = [{"number": number} for number in range(10_000)]

    jobs = app.enqueue_many("count", payloads)

    assert [job.payload["number"] for job in jobs] == list(range(10_000))
    assert [job.id for job in jobs] == list(range(jobs[0].id, jobs[0].id + 10_000))
    taken = app.claim("w1", limit=10_000)
    assert [job.payload for job in taken] == payloads


def test_jobs_of_a_batch_are_what_can_be_read(app: Yaoki) -> None:
    jobs = app.enqueue_many("count", [{"a": 1}, {"a": 2}], queue="q", priority=5, delay=9)

    assert [app.get(job) for job in jobs] == jobs
    assert {(job.queue, job.priority, job.run_at) for job in jobs} == {("q", 5, jobs[0].run_at)}


def test_an_empty_batch_makes_nothing(app: Yaoki) -> None:
    assert app.enqueue_many("count", []) == []
    assert app.jobs() == []


def test_one_bad_payload_in_a_batch_makes_none_of_it(app: Yaoki) -> None:
    with pytest.raises(InvalidPayload, match=r"\$\[1\]\.a"):
        app.enqueue_many("count", [{"a": 1}, {"a": float("nan")}, {"a": 3}])

    assert app.jobs() == []


def test_one_key_cannot_name_a_batch(app: Yaoki) -> None:
    with pytest.raises(InvalidOption, match="template"):
        app.enqueue_many("count", [{}, {}], idempotency_key="k")


def test_a_batch_takes_what_was_published(store: Store) -> None:
    publish(store, queue="mail")

    jobs = store.run(EnqueueMany([NewJob("mail", "{}"), NewJob("mail", "{}", queue="own")]))

    assert [job.queue for job in jobs] == ["mail", "own"]
    assert [read(store, job) for job in jobs] == jobs


def test_what_is_enqueued_is_there_for_whoever_opens_the_database_anew(app: Yaoki) -> None:
    job = app.enqueue("send-mail", {"to": "a"})

    other = Yaoki(app.url)

    assert other.get(job.id) == job
    other.close()


def test_a_policy_of_the_app_is_on_the_row_from_the_claim_on(app: Yaoki) -> None:
    @app.job("send-mail", retry=RetryPolicy(max_attempts=2, backoff=fixed(7)), timeout=3)
    def send_mail() -> None: ...

    app.enqueue("send-mail")
    [job] = app.claim("w1")

    other = Yaoki(app.url)
    failed = other.fail(job, "it did not work")
    assert (failed.max_attempts, failed.timeout) == (2, 3)
    assert failed.run_at == failed.updated_at + timedelta(seconds=7)
    other.close()
