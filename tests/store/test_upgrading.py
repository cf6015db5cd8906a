"""Tables that an earlier yaoki made: a newer one brings them up to date, and loses nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import postgres as server
from tests.support.databases import ask
from yaoki import Yaoki
from yaoki.store import open_store
from yaoki.store.migrations import migrations
from yaoki.store.postgres import migrate as postgres
from yaoki.store.sqlite import migrate as sqlite

NEWEST = migrations("sqlite")[-1].number

JOBS = """
INSERT INTO yaoki.jobs (
    type, queue, priority, status, payload, run_at, attempt, max_attempts, worker_id, claimed_at,
    started_at, lease, lease_for, lease_expires_at, error, result, created_at, updated_at,
    finished_at
) VALUES
    ('mail', 'default', 0, 'pending', '{"to": "a"}', 1, 0, 4, NULL, NULL,
     NULL, 0, NULL, NULL, NULL, NULL, 1, 1, NULL),
    ('mail', 'default', 0, 'running', '{"to": "b"}', 1, 4, 4, 'w1', 5,
     5, 11, 1, 6, NULL, NULL, 1, 5, NULL),
    ('mail', 'default', 0, 'failed', '{"to": "c"}', 1, 4, 4, 'w1', 5,
     5, 12, NULL, NULL, 'no such address', NULL, 1, 9, 9),
    ('mail', 'default', 0, 'completed', '{"to": "d"}', 1, 1, 4, 'w1', 5,
     5, 12, NULL, NULL, NULL, '"sent"', 1, 9, 9)
"""


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Of a database with nothing in it."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
    else:
        with server.fresh_database(migrated=False) as url:
            yield url


def made_by_version(number: int, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables as they were after so many steps, with a job in each state."""
    with monkeypatch.context() as patch:
        for module in (sqlite, postgres):
            patch.setattr(module, "migrations", lambda dialect: migrations(dialect)[:number])
        store = open_store(url)
        store.migrate()
        ask(store, JOBS)
        store.close()


@pytest.mark.parametrize("number", range(1, NEWEST))
def test_jobs_of_an_earlier_schema_live_on(
    empty_url: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by_version(number, empty_url, monkeypatch)

    app = Yaoki(empty_url)
    told = {job.payload["to"]: (job.status, job.error, job.result) for job in app.jobs()}
    [claimed] = app.claim("w2")
    app.complete(claimed, result="sent too")
    [rescued] = app.rescue()
    new = app.enqueue("mail", {"to": "e"})

    assert told == {
        "a": ("pending", None, None),
        "b": ("running", None, None),
        "c": ("failed", "no such address", None),
        "d": ("completed", None, "sent"),
    }
    assert app.get(claimed).result == "sent too"
    assert app.get(rescued.id).status == "failed"
    assert app.retry(rescued.id).status == "pending"
    assert new.id > max(job.id for job in app.jobs(status="completed"))
    app.close()
    again = open_store(empty_url)
    assert again.migrate() == []
    again.close()
