"""A session that waits for a lock is not left behind when nobody waits for it any more."""

import asyncio
from collections.abc import Callable

import psycopg
import pytest

from tests.support.eventually import eventually
from tests.support.postgres import for_libpq
from yaoki import Job, StoreUnavailable, Yaoki
from yaoki.store.postgres.connection import AsyncLine, Line

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Line, "patience", 0.3)
    monkeypatch.setattr(AsyncLine, "patience", 0.3)


CANCEL: dict[str, Callable[[Yaoki, Job], object]] = {
    "blocking": lambda app, job: app.cancel(job),
    "awaiting": lambda app, job: asyncio.run(app.acancel(job)),
}


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", CANCEL)
def test_who_gives_up_waiting_for_a_lock_leaves_no_session_waiting_for_it(
    app: Yaoki, postgres_url: str, how: str
) -> None:
    job = app.enqueue("mail")

    with psycopg.connect(for_libpq(postgres_url)) as holder:
        holder.execute("SELECT FROM yaoki.jobs FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="has not answered"):
            CANCEL[how](app, job)

        eventually(lambda: holder.execute(WAITING).fetchone() == (0,))

    assert app.get(job).status == "pending"
