"""One key and many who want it at the same time, some of whom change their minds."""

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg
import pytest

from tests.support import postgres
from tests.support.databases import ask
from tests.support.eventually import eventually
from yaoki import Job, JobNotFound, WrongStatus, Yaoki
from yaoki.core.said import NewJob
from yaoki.store.ops.jobs import EnqueueMany

WAITERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@contextmanager
def mine(app: Yaoki) -> Iterator[psycopg.Connection]:
    """A connection of a caller's, whose transaction ends without a commit."""
    with closing(psycopg.connect(postgres.for_libpq(app.url))) as connection:
        yield connection


def enqueue_many(app: Yaoki, keys: Sequence[str]) -> list[Job]:
    return app.store.run(EnqueueMany([NewJob("mail", "{}", idempotency_key=key) for key in keys]))


def waits(app: Yaoki) -> bool:
    return ask(app.store, WAITERS) == [(1,)]


@pytest.fixture
def second() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def test_the_second_makes_the_job_when_the_first_rolls_back(
    app: Yaoki, second: ThreadPoolExecutor
) -> None:
    """He was told that somebody else was making it; but nobody did (fault 71)."""
    with mine(app) as first:
        with app.on(first):
            lost = app.enqueue("mail", idempotency_key="k")
        waiting: Future[Job] = second.submit(app.enqueue, "mail", idempotency_key="k")
        eventually(lambda: waits(app))
        first.rollback()
        made = waiting.result(10)

    assert made.created
    assert made.id != lost.id
    assert [job.id for job in app.jobs()] == [made.id]


def test_the_second_gets_the_job_of_the_first_when_that_commits(
    app: Yaoki, second: ThreadPoolExecutor
) -> None:
    with mine(app) as first:
        with app.on(first):
            made = app.enqueue("mail", idempotency_key="k")
        waiting: Future[Job] = second.submit(app.enqueue, "mail", idempotency_key="k")
        eventually(lambda: waits(app))
        first.commit()
        found = waiting.result(10)

    assert (found.id, found.created) == (made.id, False)


def test_a_batch_behind_an_open_transaction_is_made_whole_either_way(
    app: Yaoki, second: ThreadPoolExecutor
) -> None:
    for ends in ("rollback", "commit"):
        keys = [f"{ends} {number}" for number in range(5)]
        with mine(app) as first:
            with app.on(first):
                app.enqueue("mail", idempotency_key=keys[3])
            waiting: Future[list[Job]] = second.submit(enqueue_many, app, keys)
            eventually(lambda: waits(app))
            getattr(first, ends)()
            jobs = waiting.result(10)

        assert [job.created for job in jobs] == [True, True, True, ends == "rollback", True]
        assert [job.idempotency_key for job in jobs] == keys


@pytest.mark.parametrize("commits", [0, 1, 25])
def test_of_fifty_who_commit_or_roll_back_one_commit_is_enough_for_one_job(
    commits: int, app: Yaoki
) -> None:
    """Never two, and none only if all roll back (faults 71, 78 and 79)."""
    app.migrate()
    together = threading.Barrier(50)
    ends = [True] * commits + [False] * (50 - commits)
    random.Random(commits).shuffle(ends)

    def enqueue(commit: bool) -> Job | None:
        with mine(app) as connection:
            together.wait(30)
            with app.on(connection):
                job = app.enqueue("mail", idempotency_key="k")
            if commit:
                connection.commit()
                return job
            connection.rollback()
            return None

    with ThreadPoolExecutor(50) as pool:
        kept = [job for job in pool.map(enqueue, ends) if job is not None]

    there = app.jobs()
    assert len(kept) == commits
    assert len(there) == (1 if kept else 0)
    assert {job.id for job in kept} == {job.id for job in there}
    assert sum(job.created for job in kept) <= 1


def test_a_job_that_is_discarded_between_the_two_looks_is_made_anew(app: Yaoki) -> None:
    """The insert finds the key taken, and the look for its job finds none."""
    over = threading.Event()

    def discard_for_ever() -> int:
        discarded = 0
        while not over.is_set():
            for job in app.jobs(limit=5):
                try:
                    app.cancel(job)
                    app.discard(job)
                    discarded += 1
                except (JobNotFound, WrongStatus):
                    pass
        return discarded

    def enqueue(number: int) -> int:
        made = 0
        for _ in range(60):
            if number % 2:
                made += app.enqueue("mail", idempotency_key="k").created
            else:
                made += sum(job.created for job in enqueue_many(app, ["k", "another"]))
        return made

    with ThreadPoolExecutor(6) as pool:
        discards = [pool.submit(discard_for_ever) for _ in range(2)]
        try:
            made = sum(pool.map(enqueue, range(4)))
        finally:
            over.set()
        gone = sum(each.result(20) for each in discards)

    assert made == gone + len(app.jobs())
    assert made > 10
