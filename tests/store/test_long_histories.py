"""Jobs that went on for ages: what they cost the others."""

import pytest

from tests.support.acts import claim_one, end, make, read
from tests.support.databases import ask
from yaoki.core.outcomes import Snoozed
from yaoki.store import Store

HISTORY = """
INSERT INTO yaoki.attempts (job_id, lease, attempt, outcome, claimed_at, ended_at, error)
WITH RECURSIVE number (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 20000)
SELECT :id, n * 2 + 1, 1, 'snoozed', n, n + 1, 'not yet' FROM number
"""


@pytest.fixture
def snoozed(store: Store) -> int:
    """A job that looks every minute whether something has come, for two weeks by now."""
    job = make(store)
    end(store, claim_one(store), Snoozed(0, "not yet"))
    ask(store, HISTORY, {"id": job.id})
    return job.id


def test_a_job_does_not_bring_ten_thousands_of_old_attempts_along(
    store: Store, snoozed: int
) -> None:
    """Each claim would read them all, with the write lock held: the longer, the slower."""
    claimed = claim_one(store)

    assert claimed.id == snoozed
    assert len(claimed.attempts) <= 1_000
    assert len(read(store, snoozed).attempts) <= 1_000


def test_a_job_keeps_its_newest_attempts(store: Store, snoozed: int) -> None:
    claimed = claim_one(store)

    after = end(store, claimed, Snoozed(0, "the newest"))

    assert after.attempts[-1].error == "the newest"
