"""Three ways to find the next jobs, one order: whichever way a claim goes, it takes the same."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.clocks import Clock
from tests.support.databases import Ask, connected
from yaoki.core.said import NewJob
from yaoki.store import Store
from yaoki.store.ops.claims import ALONE_AFTER, Claim, Claimed
from yaoki.store.ops.jobs import EnqueueMany
from yaoki.store.ops.queues import Pause

NAMES = ("a", "b", "c")


class Given(NamedTuple):
    """A job that is there before the claim; due when `at` is not above 0."""

    kind: str
    queue: str
    priority: int
    at: int
    rescues: int
    attempt: int


class Wish(NamedTuple):
    types: tuple[str, ...] | None
    queues: tuple[str, ...] | None
    paused_types: frozenset[str]
    paused_queues: frozenset[str]
    caps: dict[str, int]
    skips_dangerous: bool
    limit: int


names = st.sampled_from(NAMES)
small = st.integers(0, 2)
attempts = st.sampled_from([0, 2, 3])
"""Of four: so many were used."""
given_jobs = st.builds(Given, names, names, st.integers(-1, 2), st.integers(-2, 1), small, attempts)
jobs = st.lists(given_jobs, max_size=14)
some = st.none() | st.lists(names, max_size=3, unique=True).map(tuple)
wishes = st.builds(
    Wish,
    types=some,
    queues=some,
    paused_types=st.frozensets(names, max_size=1),
    paused_queues=st.frozensets(names, max_size=1),
    caps=st.dictionaries(names, small, max_size=2),
    skips_dangerous=st.booleans(),
    limit=st.integers(1, 5),
)


@pytest.fixture
def behind(store: Store) -> Iterator[Ask]:
    """Runs statements on the database of `store`, once its tables are there."""
    store.migrate()
    with connected(store) as ask:
        yield ask


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(jobs, wishes, st.sampled_from(["wide window", "narrow window", "lanes"]))
def test_a_claim_takes_the_first_eligible_jobs_in_order_however_it_finds_them(
    store: Store, behind: Ask, jobs: list[Given], wish: Wish, way: str
) -> None:
    made = store_all(store, behind, jobs, wish)

    claimed = claim(store, wish, way)

    assert [job.id for job in claimed.jobs] == first_eligible(made, wish)


def store_all(store: Store, behind: Ask, jobs: list[Given], wish: Wish) -> dict[int, Given]:
    for table in ("jobs", "paused"):
        behind(f"DELETE FROM yaoki.{table}")
    for name in wish.paused_types:
        store.run(Pause("type", name))
    for name in wish.paused_queues:
        store.run(Pause("queue", name))
    now = Clock().now
    new = [NewJob(job.kind, "{}", job.queue, job.priority, run_at=now + job.at) for job in jobs]
    made = dict(zip((job.id for job in store.run(EnqueueMany(new))), jobs, strict=True))
    for column in ("rescues", "attempt"):
        for value in {getattr(job, column) for job in jobs} - {0}:
            those = [str(job_id) for job_id, job in made.items() if getattr(job, column) == value]
            behind(f"UPDATE yaoki.jobs SET {column} = {value} WHERE id IN ({','.join(those)})")
    return made


def claim(store: Store, wish: Wish, way: str) -> Claimed:
    return store.run(
        Claim(
            worker_id="w1",
            limit=wish.limit,
            types=wish.types,
            queues=wish.queues,
            window=2 if way == "narrow window" else 1_000,
            by_lanes=way == "lanes",
            caps=wish.caps,
            alone="skip" if wish.skips_dangerous else "never mind",
        )
    )


def first_eligible(made: dict[int, Given], wish: Wish) -> list[int]:
    taken: list[int] = []
    left = dict(wish.caps)
    for job_id, job in sorted(made.items(), key=in_order):
        if len(taken) < wish.limit and eligible(job, wish) and left.get(job.queue, 1) > 0:
            taken.append(job_id)
            if job.queue in left:
                left[job.queue] -= 1
    return taken


def in_order(item: tuple[int, Given]) -> tuple[int, int, int]:
    job_id, job = item
    return -job.priority, job.at, job_id


def eligible(job: Given, wish: Wish) -> bool:
    return (
        job.at <= 0
        and (wish.types is None or job.kind in wish.types)
        and (wish.queues is None or job.queue in wish.queues)
        and job.kind not in wish.paused_types
        and job.queue not in wish.paused_queues
        and not (wish.skips_dangerous and dangerous(job))
    )


def dangerous(job: Given) -> bool:
    return job.rescues >= ALONE_AFTER or (job.rescues > 0 and job.attempt == 3)
