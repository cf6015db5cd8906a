"""Whatever happens to a store, in whatever order, it does what it promises."""

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import psycopg
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from tests.model.history import History
from tests.model.model import ENDED
from tests.model.world import (
    POLICIES,
    claims,
    lengths,
    names,
    often,
    on_existing,
    outcomes,
    queues,
    small,
    types,
    understood,
    wishes,
    workers,
)
from tests.support.acts import SECOND
from tests.support.clocks import Clock
from tests.support.postgres import fresh_database
from tests.support.runners import Awaiting
from yaoki.core.outcomes import Outcome, Released, settle
from yaoki.core.said import NewJob
from yaoki.store import SQLiteStore, Store
from yaoki.store.ops.claims import Claim
from yaoki.store.ops.jobs import (
    Cancel,
    Discard,
    Enqueue,
    EnqueueMany,
    OnExisting,
    Retry,
    RetryFailed,
)
from yaoki.store.ops.queues import Kind, Pause, Resume
from yaoki.store.ops.settling import (
    Exchange,
    Extend,
    Held,
    Report,
    Settlement,
    SettleOne,
    StillHeld,
)
from yaoki.store.ops.upkeep import KeepAlive, Lease, Leases, MarkStarted, Rescue, WorkerRow
from yaoki.store.postgres.store import PostgresStore

WORKER = WorkerRow("w1", "host", 1, "1", None, "[]", 1, "working", SECOND)


class Anything(History):
    """All that programs, workers and operators do."""

    # Time passes, programs start anew

    @rule(by=st.integers(-1, 3), anew=often(False, True))
    def time_passes(self, by: int, anew: bool) -> None:
        self.clock.advance(by)
        if anew:
            self.store.close()

    # Making jobs

    @rule(wish=wishes, on_existing=on_existing)
    def enqueue(self, wish: NewJob, on_existing: OnExisting) -> None:
        new = understood(wish, self.now)

        done = self.both(
            Enqueue(wish, POLICIES[wish.type], on_existing),
            lambda: self.model.places([new], on_existing, self.now),
        )

        if done is not None:
            job, places = done
            self.made([new], places, [job])

    @initialize(wishes=st.lists(wishes, min_size=2, max_size=5), on_existing=st.just("return"))
    def begin_with_some(self, wishes: list[NewJob], on_existing: OnExisting) -> None:
        self.enqueue_many(wishes, on_existing)

    @rule(wishes=st.lists(wishes, max_size=4), on_existing=on_existing)
    def enqueue_many(self, wishes: list[NewJob], on_existing: OnExisting) -> None:
        batch = [understood(wish, self.now) for wish in wishes]

        done = self.both(
            EnqueueMany(wishes, POLICIES, on_existing),
            lambda: self.model.places(batch, on_existing, self.now),
        )

        if done is not None:
            jobs, places = done
            self.made(batch, places, jobs)

    # Claiming and ending

    @precondition(lambda self: "pending" in self.model.statuses)
    @rule(claim=claims)
    def claim(self, claim: Claim) -> None:
        claimed = self.store.run(claim)

        self.claimed(claim, claimed.jobs)

    @precondition(lambda self: "pending" in self.model.statuses)
    @rule(data=st.data(), slots=st.sampled_from([10, 1, 0]), lease_for=lengths)
    def work_on_whatever_is_due(self, data: st.DataObject, slots: int, lease_for: int) -> None:
        """Some of it is not ended yet, and some is cancelled meanwhile."""
        claim = Claim(worker_id="w1", limit=10, slots=slots, policies=POLICIES, lease_for=lease_for)

        for held, hold in self.claimed(claim, self.store.run(claim).jobs):
            if data.draw(often(False, True)):
                self.both(Cancel(hold.job_id), lambda job_id=hold.job_id: self.model.cancel(job_id))
            if outcome := data.draw(st.none() | outcomes):
                self.store.run(SettleOne(Settlement(held, settle(outcome))))
                assert self.model.settle(hold, outcome, self.now)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), outcome=outcomes)
    def settle(self, data: st.DataObject, outcome: Outcome) -> None:
        held, hold = data.draw(self.any_handle())

        landed = self.lands(SettleOne(Settlement(held, settle(outcome))), hold)

        assert landed == self.model.settle(hold, outcome, self.now)

    @precondition(lambda self: self.ahead)
    @rule(data=st.data())
    def hand_back_what_never_began(self, data: st.DataObject) -> None:
        held, hold = data.draw(st.sampled_from(self.ahead))
        outcome = Released("handed back", started=False)

        landed = self.lands(SettleOne(Settlement(held, settle(outcome))), hold)

        assert landed == self.model.settle(hold, outcome, self.now)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), claim=claims)
    def exchange(self, data: st.DataObject, claim: Claim) -> None:
        """Outcomes of several jobs, late ones among them, and the next claim in one step."""
        drawn = data.draw(st.lists(self.any_handle(), max_size=4))
        ends = {hold.job_id: (held, hold, data.draw(outcomes)) for held, hold in drawn}
        settlements = [Settlement(held, settle(outcome)) for held, _, outcome in ends.values()]

        exchanged = self.store.run(Exchange(settlements, claim))

        for _, hold, outcome in ends.values():
            landed = self.model.settle(hold, outcome, self.now)
            assert landed == (hold.job_id not in exchanged.refused)
        assert exchanged.claimed is not None
        self.claimed(claim, exchanged.claimed.jobs)

    @precondition(lambda self: "pending" in self.model.statuses)
    @rule(begun=often(1, 0, 19, 20, 21), ahead=often(0, 1, 2))
    def hand_back_again_and_again(self, begun: int, ahead: int) -> None:
        """So often after it had begun, and then so often before it had."""
        for slots in [1] * begun + [0] * ahead:
            claim = Claim(worker_id="w1", limit=1, slots=slots, policies=POLICIES)
            jobs = self.store.run(claim).jobs
            for held, hold in self.claimed(claim, jobs):
                outcome = Released("handed back", started=slots == 1)
                self.store.run(SettleOne(Settlement(held, settle(outcome))))
                assert self.model.settle(hold, outcome, self.now)

    @precondition(lambda self: self.ahead)
    @rule(data=st.data())
    def begin_what_was_claimed_ahead(self, data: st.DataObject) -> None:
        held, hold = data.draw(st.sampled_from(self.ahead))

        self.store.run(MarkStarted([(held, 0)]))

        hold.begun = True

    @precondition(lambda self: self.late)
    @rule(data=st.data(), outcome=outcomes)
    def a_late_worker_comes_back(self, data: st.DataObject, outcome: Outcome) -> None:
        """Somebody else has the job by now: nothing that it tries has any effect."""
        held, hold = data.draw(st.sampled_from(self.late))

        assert not self.lands(SettleOne(Settlement(held, settle(outcome))), hold)
        assert not self.lands(Extend(held, 3 * SECOND), hold)
        assert not self.lands(Report(held, '{"done":9}'), hold)
        assert self.store.run(KeepAlive(WORKER, [held])).lost == {held}
        assert not self.store.run(StillHeld(held))
        self.store.run(MarkStarted([(held, 0)]))

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), lease_for=lengths)
    def extend(self, data: st.DataObject, lease_for: int) -> None:
        held, hold = data.draw(self.any_handle())

        landed = self.lands(Extend(held, lease_for), hold)

        assert landed == self.model.extend(hold, lease_for, self.now)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), worker_id=workers)
    def keep_alive(self, data: st.DataObject, worker_id: str) -> None:
        drawn = dict(data.draw(st.lists(self.any_handle(), min_size=1, max_size=3)))

        kept = self.store.run(KeepAlive(WORKER._replace(worker_id=worker_id), list(drawn)))

        for held, hold in drawn.items():
            renewed = self.model.extend(hold, hold.lease_for, self.now)
            assert renewed == (held not in kept.lost)
        assert {one.id for one in kept.held} == {
            hold.job_id for hold in self.model.holds if hold.worker_id == worker_id
        }

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), done=small)
    def report(self, data: st.DataObject, done: int) -> None:
        held, hold = data.draw(self.any_handle())

        holds = self.store.run(StillHeld(held))
        landed = self.lands(Report(held, f'{{"done":{done}}}'), hold)

        assert holds == landed == self.model.report(hold, done)

    # Rescue

    @precondition(lambda self: self.model.holds)
    @rule(data=st.data(), between=st.sampled_from(["nothing", "renewed", "handed back"]))
    def rescue_what_was_seen(self, data: st.DataObject, between: str) -> None:
        """A lease to which something has happened since it was seen is let alone."""
        leases = self.look_at_leases()
        seen = data.draw(st.lists(st.sampled_from(leases), min_size=1, unique=True))
        held = Held(seen[0].id, seen[0].lease)
        hold = dict(self.handles)[held]
        if between == "renewed":
            longer = max(hold.ends_at - self.now, 0) + 1
            self.store.run(Extend(held, longer))
            assert self.model.extend(hold, longer, self.now)
        elif between == "handed back":
            outcome = Released("handed back")
            self.store.run(SettleOne(Settlement(held, settle(outcome))))
            assert self.model.settle(hold, outcome, self.now)

        rescued = self.store.run(Rescue(seen))

        holds = [self.model.jobs[lease.id].holder for lease in seen]
        unchanged = holds[:1] * (between == "nothing") + holds[1:]
        self.rescued([one for one in unchanged if one], {one.id: one.counted for one in rescued})

    def look_at_leases(self) -> list[Lease]:
        leases = [
            Lease(*held, hold.ends_at, hold.lease_for, hold.ends_at <= self.now)
            for held, hold in dict(self.handles).items()
            if self.model.held(hold) is not None
        ]
        dubious = [
            one for one in leases if one.expired or one.expires_at > self.now + one.lease_for
        ]
        assert self.store.run(Leases()).suspects == sorted(dubious)
        return leases

    @rule(after=small)
    def rescue(self, after: int) -> None:
        self.clock.advance(after)

        rescued = self.store.run(Rescue())

        over = self.model.expired(self.now)
        self.rescued(over, {one.id: one.counted for one in rescued})

    # What operators do

    @precondition(lambda self: "running" in self.model.statuses)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        job_id = data.draw(self.any_id("running"))
        self.both(Cancel(job_id), lambda: self.model.cancel(job_id))

    @precondition(lambda self: self.model.statuses & ENDED)
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        job_id = data.draw(self.any_id("failed", "cancelled"))
        self.both(Retry(job_id), lambda: self.model.retry(job_id, self.now))

    @precondition(lambda self: self.model.statuses & ENDED)
    @rule(data=st.data())
    def discard(self, data: st.DataObject) -> None:
        job_id = data.draw(self.any_id("completed", "failed", "cancelled"))
        self.both(Discard(job_id), lambda: self.model.discard(job_id))

    @precondition(lambda self: "failed" in self.model.statuses)
    @rule(kind=st.none() | types, queue=st.none() | queues)
    def retry_failed(self, kind: str | None, queue: str | None) -> None:
        ids = self.store.run(RetryFailed(kind, queue))

        assert ids == self.model.retry_failed(kind, queue, self.now)

    @rule(name=names)
    def pause_or_resume(self, name: tuple[Kind, str]) -> None:
        if name in self.model.paused:
            self.store.run(Resume(*name))
        else:
            self.store.run(Pause(*name))
        self.model.paused ^= {name}


@pytest.mark.timeout(900)  # only to shrink what was found
@pytest.mark.parametrize("awaiting", [False, True], ids=["blocking", "awaiting"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_store_keeps_its_promises(kind: str, awaiting: bool, tmp_path: Path) -> None:
    with ExitStack() as at_the_end:
        empty = files(tmp_path) if kind == "sqlite" else at_the_end.enter_context(tables())

        def anything() -> Anything:
            clock, ends = Clock(), ExitStack()
            store: Any = empty(clock)
            ends.callback(store.close)
            if awaiting:
                store = Awaiting(store)
                ends.callback(store.stop)
            return Anything(store, clock, ends.close)

        # The operations are the same ones; only who drives them is another.
        examples = settings(SETTINGS, max_examples=40 if awaiting else 100)
        run_state_machine_as_test(anything, settings=examples)


MakeEmpty = Callable[[Clock], Store]


def files(folder: Path) -> MakeEmpty:
    """An empty store on SQLite: each time another file."""
    template = folder / "template.db"
    first = SQLiteStore(f"sqlite:///{template}")
    first.migrate()
    first.close()
    number = itertools.count()

    def make(clock: Clock) -> Store:
        file = folder / f"{next(number)}.db"
        shutil.copy(template, file)
        return SQLiteStore(f"sqlite:///{file}?durability=normal", clock=clock)

    return make


@contextmanager
def tables() -> Iterator[MakeEmpty]:
    """An empty store on PostgreSQL: each time the same tables, emptied."""
    with fresh_database() as url, psycopg.connect(url, autocommit=True) as connection:

        def make(clock: Clock) -> Store:
            connection.execute(EMPTY)
            return PostgresStore(url, clock=clock)

        yield make


EMPTY = """
TRUNCATE
    yaoki.jobs, yaoki.attempts, yaoki.logs, yaoki.definitions, yaoki.workers, yaoki.paused,
    yaoki.once
RESTART IDENTITY
"""

SETTINGS = settings(
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)
