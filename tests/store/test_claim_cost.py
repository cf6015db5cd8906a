"""A claim costs the same, whatever else is in the table; counted in steps of SQLite's machine."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

import pytest

from tests.support.crowds import (
    ASIDE,
    AT_THE_HEAD,
    BESIDE,
    CLAIM,
    NOW,
    WANTED,
    Crowd,
    assert_the_wanted_ones,
)
from tests.support.databases import execute_all, insert_rows
from yaoki.core.definition import Definition
from yaoki.store import SQLiteStore
from yaoki.store.base import drive
from yaoki.store.op import Op
from yaoki.store.ops.claims import Claim, Claimed, Look
from yaoki.store.ops.workers import Publish
from yaoki.store.sqlite.connection import executor

T = TypeVar("T")
Factory = pytest.TempPathFactory


class Crowded(NamedTuple):
    """Three tables: without the crowd, with a bit of it, and with all of it."""

    claim: Claim
    alone: sqlite3.Connection
    some: sqlite3.Connection
    full: sqlite3.Connection


@pytest.fixture(scope="module", params=ASIDE)
def aside(request: pytest.FixtureRequest, tmp_path_factory: Factory) -> Iterator[Crowded]:
    with crowded(tmp_path_factory.mktemp("crowd"), ASIDE[request.param]) as tables:
        yield tables


@pytest.fixture(scope="module", params=AT_THE_HEAD)
def behind(request: pytest.FixtureRequest, tmp_path_factory: Factory) -> Iterator[Crowded]:
    with crowded(tmp_path_factory.mktemp("crowd"), AT_THE_HEAD[request.param]) as tables:
        yield tables


@pytest.fixture(scope="module", params=BESIDE)
def beside(request: pytest.FixtureRequest, tmp_path_factory: Factory) -> Iterator[Crowded]:
    with crowded(tmp_path_factory.mktemp("crowd"), BESIDE[request.param]) as tables:
        yield tables


def test_a_claim_costs_the_same_with_and_without(aside: Crowded) -> None:
    cheap, _ = cost(aside.alone, aside.claim)

    dear, claimed = cost(aside.full, aside.claim)

    assert_the_wanted_ones(claimed)
    assert not claimed.by_lanes
    assert dear <= look(aside.full) + 1.5 * cheap


def test_a_first_claim_costs_a_window_behind(behind: Crowded) -> None:
    """However many there are; what it finds out tells the worker to go by lanes from then on."""
    cheap, _ = cost(behind.some, behind.claim)

    dear, claimed = cost(behind.full, behind.claim)

    assert_the_wanted_ones(claimed)
    assert claimed.by_lanes
    assert dear <= look(behind.full) + 1.5 * cheap


def test_the_claims_after_it_cost_the_same_as_without(behind: Crowded) -> None:
    assert_by_lanes_costs_the_same(behind)


def test_a_claim_by_lanes_costs_the_same_in_a_long_lane(beside: Crowded) -> None:
    assert_by_lanes_costs_the_same(beside)


@pytest.mark.parametrize("limit", [1, 3, 9, 11, 2_000])
def test_a_claim_never_takes_more_than_its_limit(limit: int, tmp_path: Path) -> None:
    own = Crowd({"type": "mail"}, count=1_500)

    with table(tmp_path / "jobs.db", own, own.count) as connection:
        from_the_head = cost(connection, replace(CLAIM, limit=limit))[1]
        by_lanes = cost(connection, replace(CLAIM, limit=limit, by_lanes=True))[1]

    assert len(from_the_head.jobs) == len(by_lanes.jobs) == min(limit, 1_500 + WANTED)
    assert [job.id for job in from_the_head.jobs] == [job.id for job in by_lanes.jobs]


def test_a_type_that_is_published_late_takes_each_of_its_jobs_in_once(tmp_path: Path) -> None:
    """It looked at all of them again for every thousand that it had taken in."""
    by_name = Crowd({"type": "mail"}, then=("UPDATE yaoki.jobs SET said = 16",))
    publish = Publish([Definition("mail")], "w1")

    with table(tmp_path / "some.db", by_name, 2_000) as some:
        cheap, _ = counted(some, publish)
    with table(tmp_path / "full.db", by_name, 20_000) as full:
        dear, _ = counted(full, publish)

    assert dear <= 15 * cheap


@contextmanager
def crowded(folder: Path, crowd: Crowd) -> Iterator[Crowded]:
    with (
        table(folder / "alone.db", crowd, 0) as alone,
        table(folder / "some.db", crowd, crowd.some) as some,
        table(folder / "full.db", crowd, crowd.count) as full,
    ):
        yield Crowded(crowd.claim, alone, some, full)


@contextmanager
def table(file: Path, crowd: Crowd, count: int) -> Iterator[sqlite3.Connection]:
    """A table with so much of a crowd, and behind it just the jobs that are wanted."""
    store = SQLiteStore(f"sqlite:///{file}?durability=normal")
    store.migrate()
    store.close()
    if count:
        insert_rows(file, count, NOW, **crowd.columns)
        execute_all(file, crowd.then)
    insert_rows(file, WANTED, NOW, type="mail", queue="mail", run_at=NOW + 1)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        yield connection
    file.unlink()


def assert_by_lanes_costs_the_same(tables: Crowded) -> None:
    by_lanes = replace(tables.claim, by_lanes=True)
    cheap, _ = cost(tables.alone, by_lanes)

    dear, claimed = cost(tables.full, by_lanes)

    assert_the_wanted_ones(claimed)
    assert dear <= look(tables.full) + 2 * cheap


def cost(connection: sqlite3.Connection, claim: Claim) -> tuple[int, Claimed]:
    """The steps of a claim, and what it brought; then it is undone."""
    connection.execute("BEGIN IMMEDIATE")
    steps, claimed = counted(connection, claim)
    connection.execute("ROLLBACK")
    assert len(claimed.jobs) <= claim.limit
    return steps, claimed


def look(connection: sqlite3.Connection) -> int:
    """The steps of a look at each priority that has jobs, at most 201: part of each claim."""
    steps, _ = counted(connection, Look())
    return steps


def counted(connection: sqlite3.Connection, op: Op[T]) -> tuple[int, T]:
    every, ticks = 10, 0

    def tick() -> None:
        nonlocal ticks
        ticks += 1

    connection.set_progress_handler(tick, every)
    value = drive(op, executor(connection, lambda: NOW + 100))
    connection.set_progress_handler(None, every)
    return ticks * every, value
