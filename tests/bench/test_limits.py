"""The limits do the same work: the rows they leave are those that yaoki leaves."""

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.databases.postgres import PostgresDatabases
from bench.databases.sqlite import SQLiteFiles
from bench.jobs import new_app, payload
from bench.limits import drain_rate, open_raw, rows
from bench.setting import QUICK, Setting
from bench.workloads.drain import drained
from tests.support.postgres import fresh_database
from yaoki.core.job import COLUMNS

JOBS = 30


@pytest.fixture(params=["sqlite", "postgres"])
def setting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Setting]:
    if request.param == "sqlite":
        yield Setting(QUICK, SQLiteFiles(tmp_path), tmp_path)
        return
    with (
        fresh_database(migrated=False) as url,
        closing(PostgresDatabases(url, "the tests")) as databases,
    ):
        yield Setting(QUICK, databases, tmp_path)


def stored(url: str) -> list[dict[str, object]]:
    """The rows, with what differs from run to run replaced by what it is."""
    with closing(open_raw(url)) as raw:
        found = raw.rows(f"SELECT {', '.join(COLUMNS)} FROM {{jobs}} ORDER BY id")
    jobs = [dict(zip(COLUMNS, row, strict=True)) for row in found]
    for job in jobs:
        for column in [name for name in job if name.endswith("_at") and job[name] is not None]:
            job[column] = "an instant"
        if job["lease"]:
            job["lease"] = "an odd token" if int(str(job["lease"])) % 2 else "an even token"
        if job["worker_id"] is not None:
            job["worker_id"] = "a worker"
    return jobs


def test_a_raw_insert_writes_what_enqueue_writes(setting: Setting) -> None:
    ours, limit = setting.new_database(), setting.new_database()
    types, raw = new_app(ours), open_raw(limit)

    for number in range(JOBS):
        types.kind("noop").enqueue(**payload(number))
    raw.insert_many(rows(JOBS - 1))
    [last] = rows(1, JOBS - 1)
    assert raw.insert(last) == JOBS
    types.app.close()
    raw.close()

    assert stored(limit) == stored(ours)


def test_a_raw_drain_writes_what_a_worker_writes(setting: Setting) -> None:
    filled = setting.filled_database("noop", JOBS)

    with setting.copied(filled) as ours, setting.copied(filled) as limit:
        drained(setting, ours, JOBS)
        drain_rate(limit, 7, setting.databases.writers)

        assert stored(limit) == stored(ours)
        assert {job["status"] for job in stored(limit)} == {"completed"}


def test_a_raw_claim_writes_what_a_claim_writes(setting: Setting) -> None:
    filled = setting.filled_database("noop", JOBS)

    with setting.copied(filled) as ours, setting.copied(filled) as limit:
        with closing(new_app(ours).app) as app:
            app.claim("w", limit=JOBS)
        with closing(open_raw(limit)) as raw:
            assert sorted(raw.exchange(JOBS)) == list(range(1, JOBS + 1))

        assert stored(limit) == stored(ours)
        assert {job["status"] for job in stored(limit)} == {"running"}


def test_two_raw_claimers_never_get_the_same_job(setting: Setting) -> None:
    filled = setting.filled_database("noop", JOBS)

    with (
        setting.copied(filled) as url,
        closing(open_raw(url)) as one,
        closing(open_raw(url)) as two,
    ):
        claimed = one.exchange(JOBS - 1) + two.exchange(JOBS)

    assert sorted(claimed) == list(range(1, JOBS + 1))


@pytest.mark.parametrize("durability", ["full", "normal"])
def test_both_connections_wait_for_the_disk_in_the_same_way(
    setting: Setting, durability: str
) -> None:
    asked = {"sqlite": "PRAGMA synchronous", "postgres": "SHOW synchronous_commit"}
    waits = {"sqlite": {"full": 2, "normal": 1}, "postgres": {"full": "on", "normal": "off"}}
    store = setting.databases.store

    with closing(open_raw(setting.new_database(), durability)) as raw:
        assert raw.rows(asked[store]) == [(waits[store][durability],)]


def test_a_raw_wake_up_is_heard_by_the_one_who_waits(setting: Setting) -> None:
    url = setting.new_database()
    ear, mouth = os.pipe()
    with closing(open_raw(url)) as waiter, closing(open_raw(url)) as producer:
        waiter.listen()
        [row] = rows(1)
        producer.insert_and_wake(row, mouth)

        assert waiter.wait(ear)
        assert waiter.exchange(1) == [1]
        os.close(mouth)
        assert not waiter.wait(ear)
    os.close(ear)
