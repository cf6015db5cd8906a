"""Many jobs that end in every way there is, while somebody cancels, retries and takes away."""

import asyncio
import random
import threading
from collections import Counter

import pytest

from tests.support.databases import ask
from tests.support.dialects import mark
from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, let_lease_end
from yaoki import (
    Cancel,
    GiveUp,
    JobContext,
    RetryAfter,
    RetryPolicy,
    Snooze,
    WrongStatus,
    Yaoki,
    fixed,
)

RULES = RetryPolicy(max_attempts=4, backoff=fixed(0.01))


class Chance:
    """Dice that threads may share."""

    def __init__(self, seed: int) -> None:
        self._rng, self._lock = random.Random(seed), threading.Lock()

    def roll(self, *sides: str) -> str:
        with self._lock:
            return self._rng.choice(sides)


def behave(side: str) -> None:
    match side:
        case "fails":
            raise ValueError(side)
        case "exits":
            raise SystemExit(2)
        case "gives up":
            raise GiveUp(side)
        case "later":
            raise RetryAfter(0.02, side)
        case "snoozes":
            raise Snooze(0.02, side)
        case "cancels":
            raise Cancel(side)


SIDES = ("returns", "returns", "fails", "exits", "gives up", "later", "snoozes", "cancels", "slow")


def declare(app: Yaoki, chance: Chance) -> None:
    """Three job types, each of whose attempts rolls the dice."""

    @app.job("plain", retry=RULES, timeout=0.3)
    def plain(ctx: JobContext) -> None:
        side = chance.roll(*SIDES)
        if side == "slow":
            ctx.wait_stopping(0.5)
        behave(side)

    @app.job("async", retry=RULES, timeout=0.3)
    async def coroutine(ctx: JobContext) -> None:
        side = chance.roll(*SIDES)
        await asyncio.sleep(0.5 if side == "slow" else 0.005)
        behave(side)

    @app.job("effect", retry=RULES, timeout=2)
    def effect(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute(f"INSERT INTO effects VALUES ({mark(app.url)})", [ctx.job.id])
            behave(chance.roll(*SIDES[:-1]))
        behave(chance.roll("returns", "fails", "exits"))


@pytest.mark.parametrize("seed", [1, 2])
def test_every_job_ends_and_what_it_did_is_what_it_says(
    app: Yaoki, start_worker: StartWorker, seed: int
) -> None:
    chance, rng = Chance(seed), random.Random(seed)
    app.migrate()
    ask(app.store, "CREATE TABLE effects (job_id bigint)")
    declare(app, chance)
    jobs = [app.enqueue(rng.choice(["plain", "async", "effect"])) for _ in range(120)]
    start_worker(concurrency=4, lease_for=1)
    second = start_worker(concurrency=4, lease_for=1)
    for _ in range(60):
        job = rng.choice(jobs)
        try:
            rng.choice([app.cancel, app.retry])(job)
        except WrongStatus:
            continue
        if rng.random() < 0.3:
            take_away_one(app)
    second.drain()
    eventually(lambda: all(app.get(job).is_final for job in jobs), within=30)

    ended = [app.get(job) for job in jobs]
    effects = Counter(job_id for (job_id,) in ask(app.store, "SELECT job_id FROM effects"))
    assert ask(app.store, "SELECT id FROM yaoki.jobs WHERE lease % 2 = 1") == []
    assert max(one.attempt for one in ended) <= 4
    assert {one.status for one in ended} == {"completed", "failed", "cancelled"}
    for one in ended:
        if one.type == "effect":
            assert effects[one.id] == (1 if one.status == "completed" else 0), one.attempts
        if one.status != "cancelled":
            assert (one.error is None) == (one.status == "completed"), one.error
        assert one.finished_at is not None
        assert [each for each in one.attempts if each.ended_at < each.claimed_at] == []


def take_away_one(app: Yaoki) -> None:
    """What happens to a job whose worker was thought dead."""
    held = "SELECT id FROM yaoki.jobs WHERE lease % 2 = 1 ORDER BY id LIMIT 1"
    for (job_id,) in ask(app.store, held):
        let_lease_end(app, job_id)
    app.rescue()
