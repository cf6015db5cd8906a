"""Many at once on one store: whoever is second is told, and nothing is done twice."""

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.support.acts import BOOM, claim, end, ids, make, read
from tests.support.clocks import Clock
from tests.support.databases import assert_intact
from yaoki import LeaseLost, Yaoki
from yaoki.core.outcomes import Completed, Released, Retried
from yaoki.core.said import NewJob
from yaoki.store import Store
from yaoki.store.ops.jobs import Cancel, EnqueueMany
from yaoki.store.ops.upkeep import Leases, Rescue

THREADS = 12


def at_once(act: Callable[[int], object]) -> list[object]:
    """What `act` answers in threads that begin at the same instant."""
    barrier = threading.Barrier(THREADS)

    def run(number: int) -> object:
        barrier.wait(20)
        return act(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_claimers_share_the_jobs_without_overlap_and_without_rest(store: Store) -> None:
    made = store.run(EnqueueMany([NewJob("mail", "{}")] * 600))

    def take_all(number: int) -> list[int]:
        taken: list[int] = []
        while batch := claim(store, 1 + number % 7, f"w{number}"):
            taken += ids(batch)
        return taken

    shares = at_once(take_all)

    everything = [job_id for share in shares for job_id in share]  # type: ignore[attr-defined]
    assert sorted(everything) == ids(made)


def test_each_claim_gives_its_jobs_in_order_although_others_claim(store: Store) -> None:
    store.run(EnqueueMany([NewJob("mail", "{}", priority=n % 3) for n in range(300)]))

    def take_all(number: int) -> bool:
        in_order = True
        while batch := claim(store, 5, f"w{number}"):
            keys = [(-job.priority, job.id) for job in batch]
            in_order = in_order and keys == sorted(keys)
        return in_order

    assert at_once(take_all) == [True] * THREADS


def test_of_many_settlers_of_one_claim_one_lands(store: Store) -> None:
    for _ in range(10):
        make(store, max_attempts=99)
        [job] = claim(store)

        def settle_once(number: int, job: object = job) -> bool:
            outcome = [Completed(), Released("x"), Retried(BOOM, 0)][number % 3]
            try:
                end(store, job, outcome)  # type: ignore[arg-type]
            except LeaseLost:
                return False
            return True

        assert Counter(at_once(settle_once)) == {True: 1, False: THREADS - 1}
        assert len(read(store, job).attempts) == 1
        if not read(store, job).is_final:
            store.run(Cancel(job.id))


def test_of_many_rescuers_one_takes_each_job_back(store: Store, clock: Clock) -> None:
    """Two reapers over the same snapshot: one re-queue in total (fault 33)."""
    made = store.run(EnqueueMany([NewJob("mail", "{}")] * 50))
    claim(store, 50)
    clock.advance(61)
    seen = store.run(Leases()).suspects

    rescued = at_once(lambda number: [one.id for one in store.run(Rescue(seen))])

    everything = [job_id for share in rescued for job_id in share]  # type: ignore[attr-defined]
    assert sorted(everything) == ids(made)
    assert {(read(store, job).attempt, read(store, job).rescues) for job in made} == {(1, 1)}


def test_a_completion_and_a_rescue_at_the_same_instant_do_not_both_land(
    store: Store, clock: Clock
) -> None:
    for _ in range(20):
        job = make(store)
        [claimed] = [one for one in claim(store, 5) if one.id == job.id]
        clock.advance(61)
        seen = store.run(Leases()).suspects

        def race(number: int, claimed: object = claimed, seen: object = seen) -> bool:
            if number % 2:
                return store.run(Rescue(seen)) != []  # type: ignore[arg-type]
            try:
                end(store, claimed, Completed())  # type: ignore[arg-type]
            except LeaseLost:
                return False
            return True

        assert sum(bool(landed) for landed in at_once(race)) == 1
        after = read(store, job)
        assert (after.status, after.rescues) in {("completed", 0), ("pending", 1)}
        if after.status == "pending":
            store.run(Cancel(job.id))


def test_a_cancelled_job_is_either_never_run_or_told(store: Store) -> None:
    made = store.run(EnqueueMany([NewJob("mail", "{}")] * 120))
    claimed: list[int] = []

    def race(number: int) -> None:
        if number % 2:
            while batch := claim(store, 3, f"w{number}"):
                claimed.extend(ids(batch))
        else:
            for job in random.Random(number).sample(made, len(made)):
                store.run(Cancel(job.id))

    at_once(race)

    for job in made:
        after = read(store, job)
        if job.id in claimed:
            assert after.being_cancelled
        else:
            assert (after.status, after.attempt) == ("cancelled", 0)


def test_a_busy_hour_in_a_second_leaves_every_promise_kept(app: Yaoki, store: Store) -> None:
    def live(number: int) -> None:
        chance = random.Random(number)
        for step in range(30):
            job = app.enqueue("mail", max_attempts=2, idempotency_key=f"k{chance.randrange(80)}")
            for mine in app.claim(f"w{number}", limit=chance.randint(1, 3)):
                match chance.randrange(5):
                    case 0:
                        app.complete(mine, step)
                    case 1:
                        app.fail(mine, "x", retry_in=0)
                    case 2:
                        app.release(mine)
                    case 3:
                        app.fail(mine, "x", retry=False)
                    case 4:
                        app.cancel(mine)
            app.rescue()
            app.get(job)

    at_once(live)

    assert_intact(store)
    keys = [job.idempotency_key for job in app.jobs(limit=1_000)]
    assert len(keys) == len(set(keys))
