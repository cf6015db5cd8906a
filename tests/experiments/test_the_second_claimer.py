"""The third experiment on PostgreSQL: the second of two claimers does not wait for the first."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.support.eventually import eventually
from tests.support.postgres import for_libpq
from tests.worker.support_workers import StartWorker
from yaoki import Yaoki
from yaoki.store.base import drive
from yaoki.store.op import Answer, Statement
from yaoki.store.ops.claims import Claim
from yaoki.store.postgres.statements import Dialect, answer

AT_ONCE = 0.5
"""Seconds; who waits for a lock here waits until the test is over."""


@pytest.fixture
def app(postgres_url: str) -> Iterator[Yaoki]:
    made = Yaoki(postgres_url)
    yield made
    made.close()


@pytest.fixture
def other(postgres_url: str) -> Iterator[Yaoki]:
    """Another program on the same queue."""
    made = Yaoki(postgres_url)
    yield made
    made.close()


@contextmanager
def claimed_and_not_committed(app: Yaoki) -> Iterator[int]:
    """The id of a job whose claim is in a transaction that ends with the block."""
    with psycopg.connect(for_libpq(app.url)) as connection, app.on(connection):
        [job] = app.claim("the first")
        yield job.id


def test_the_second_claimer_gets_another_job_at_once(app: Yaoki, other: Yaoki) -> None:
    app.enqueue_many("contested", [{}] * 2)
    other.jobs()

    with claimed_and_not_committed(app) as first:
        began = time.monotonic()
        [second] = other.claim("the second")
        nothing = other.claim("the second")
        took = time.monotonic() - began

    assert took < AT_ONCE
    assert (first, second.id, nothing) == (1, 2, [])
    assert [(job.id, job.worker_id) for job in app.jobs(status="running")] == [
        (2, "the second"),
        (1, "the first"),
    ]


def test_a_worker_goes_on_with_all_other_jobs(
    app: Yaoki, other: Yaoki, start_worker: StartWorker
) -> None:
    @other.job("contested")
    def contested() -> None: ...

    app.enqueue_many("contested", [{}] * 100)

    with claimed_and_not_committed(app) as first:
        start_worker(other)
        eventually(lambda: len(list(other.jobs(status="completed", limit=100))) == 99)
        [left] = other.jobs(status="pending")

    assert left.id == first


def test_without_skip_locked_it_would_wait(app: Yaoki, postgres_url: str) -> None:
    app.enqueue_many("contested", [{}] * 2)

    with (
        claimed_and_not_committed(app),
        psycopg.connect(for_libpq(postgres_url)) as second,
    ):
        second.execute("SET lock_timeout = '300ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable), second.transaction():
            claim_on(second, without=" SKIP LOCKED")
        with second.transaction():
            assert claim_on(second) == [2]


def claim_on(connection: psycopg.Connection[Any], without: str = "") -> list[int]:
    """The statements of a claim as the store sends them, but for these words."""
    dialect = Dialect("yaoki")
    cut: list[str] = []

    def execute(statement: Statement) -> Answer:
        calls, now = dialect.calls(statement)
        cursor = psycopg.RawCursor(connection)
        for call in calls:
            cut.extend([call.text] * (without in call.text))
            cursor.execute(call.text.replace(without, ""), call.values)
        columns = [column.name for column in cursor.description or ()]
        rows = cursor.fetchall() if columns else []
        return answer(rows, cursor.rowcount, columns[-1:] == ["now"], now)

    claimed = drive(Claim(worker_id="the second", limit=1), execute)
    assert cut, "the words are in its statements"
    return [job.id for job in claimed.jobs]
