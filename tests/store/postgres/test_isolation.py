"""Whatever isolation a role, or a database, has by default, jobs go their way."""

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from tests.support import postgres
from tests.support.acts import held, ids
from tests.support.databases import ask, assert_intact
from yaoki import Yaoki
from yaoki.core.said import NewJob
from yaoki.store.ops.jobs import EnqueueMany
from yaoki.store.ops.settling import Report
from yaoki.store.ops.upkeep import KeepAlive, MarkStarted, WorkerRow

LEVELS = ["read committed", "repeatable read", "serializable"]


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def strict(level: str, postgres_url: str) -> Iterator[Yaoki]:
    """An app on a database whose owner wants all transactions to be of this level."""
    database = postgres.database_of(postgres_url)
    with psycopg.connect(postgres.for_libpq(postgres_url), autocommit=True) as owner:
        owner.execute(
            f"ALTER DATABASE \"{database}\" SET default_transaction_isolation = '{level}'".encode()
        )
    app = Yaoki(postgres_url)
    yield app
    app.close()


def test_everything_works_at_once_and_each_job_is_done_once(strict: Yaoki, level: str) -> None:
    """Claims failed with serialization errors, and SKIP LOCKED was of no use (fault 67)."""
    made = strict.enqueue_many("mail", [{}] * 200)
    [(found,)] = ask(strict.store, "SELECT current_setting('transaction_isolation')")
    assert found == level
    ended: Counter[int] = Counter()

    def live(number: int) -> None:
        chance = random.Random(number)
        me = WorkerRow(f"w{number}", "host", 1, "0", None, "[]", 1, "working", 60_000_000)
        while batch := strict.claim(f"w{number}", limit=chance.randint(1, 9)):
            strict.enqueue("later", idempotency_key=f"key {chance.randrange(20)}", delay=3_600)
            strict.store.run(MarkStarted([(held(job), 0) for job in batch]))
            strict.store.run(KeepAlive(me, [held(job) for job in batch]))
            for job in batch:
                strict.store.run(Report(held(job), "{}"))
                strict.complete(job)
                ended[job.id] += 1
            strict.rescue()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(live, range(8)))

    assert ended == dict.fromkeys(ids(made), 1)
    assert {job.status for job in strict.jobs(type="mail", limit=200)} == {"completed"}
    assert_intact(strict.store)


def test_callers_with_one_key_get_one_job(strict: Yaoki) -> None:
    """Where the row of another is invisible, the key is taken all the same (fault 71)."""

    def make(number: int) -> list[int]:
        jobs = [strict.enqueue("mail", idempotency_key=f"key {key}") for key in range(5)]
        many = [NewJob("mail", "{}", idempotency_key=f"key {key}") for key in range(5, 15)]
        jobs += strict.store.run(EnqueueMany(many if number % 2 else many[::-1]))
        return sorted(ids(jobs))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(make, range(8)))

    assert len(answers[0]) == 15
    assert answers == [answers[0]] * 8
    assert len(strict.jobs(limit=100)) == 15
