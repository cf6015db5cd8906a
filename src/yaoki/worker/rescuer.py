"""Taking jobs back from workers that have gone silent."""

import logging
import time
from collections import Counter

from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.ops.upkeep import CanWrite, Lease, LeasePage, Leases, Rescue, Rescued
from yaoki.store.patience import of_lease

log = logging.getLogger("yaoki.worker")

LONGEST_PAUSE = 10.0

SECOND_LOOK = 0.5
"""The part of a lease's length that lies between two looks at it, by a monotonic clock."""

UNRENEWED = 1.5
"""Lease lengths without a renewal after which a holder is dead, whatever the wall clock says."""

MOST_AT_ONCE = 500
"""Jobs that are taken back in one transaction."""

A_SECOND = 50_000
"""Leases of the living that a rescuer looks at in a second: it takes a small part of its time."""

TOLD_ONE_BY_ONE = 20
"""So many jobs that are taken back at once are named in the log; more are counted."""


class Rescuer(Loop):
    """Looks twice at a lease before it is taken away.

    A lease that is over by the clock may have a holder who could not renew it: the machine slept,
    the disk was busy, the clock jumped. So it must be seen unchanged twice, half its length
    apart, with no failed or belated look between, and at times when others could write: who lives
    has renewed it by then.
    """

    def __init__(self, store: Store, lease_for: float) -> None:
        super().__init__("rescue", of_lease(lease_for))
        self._store = store
        self._pause = self._rest = min(lease_for / 6, LONGEST_PAUSE)
        self._seen: dict[int, _Seen] = {}
        self._awake_at = time.monotonic()

    def once(self) -> float:
        after: int | None = 0
        count, shortest = 0, 10**9
        self._others_can_write = False
        now_seen: dict[int, _Seen] = {}
        while after is not None and not self.stopping:
            page = self._look(after)
            if page is None or not self._rescue(self._judge(page.suspects, now_seen)):
                # We slept ourselves, or waited, and so may have those whose leases seem to be over.
                self._seen.clear()
                break
            after, count = page.last, count + page.looked_at
            shortest = min(page.shortest or shortest, shortest)
        else:
            self._seen = now_seen
        tired = 0.0 if self._seen else count / A_SECOND
        self._rest = max(min(self._pause, shortest / 6_000_000), 0.05, tired)
        return self._rest

    def failed(self, error: Exception) -> None:
        self._seen.clear()

    def _look(self, after: int) -> LeasePage | None:
        """A page of the leases; None when what it says is of no use."""
        page = self._store.run(Leases(after))
        if page.suspects and not self._others_can_write:
            # Reads may go on while nobody can write, and so renew a lease.
            began = time.monotonic()
            self._store.run(CanWrite())
            if time.monotonic() - began > self._pause / 2:
                return None
            self._others_can_write = True
            page = self._store.run(Leases(after))
        return page if self._is_awake() else None

    def _is_awake(self) -> bool:
        """Did this thread run all the time since it was last asked?"""
        now, before = time.monotonic(), self._awake_at
        self._awake_at = now
        return now - before <= 3 * self._rest + 1

    def _judge(self, suspects: list[Lease], now_seen: "dict[int, _Seen]") -> list[Lease]:
        """Those that are dead; notes of the others since when they look as they do."""
        dead, now = [], time.monotonic()
        for lease in suspects:
            before, first, expired_since = self._seen.get(lease.id, (None, now, now))
            if before is None or before[:4] != lease[:4]:
                first, expired_since = now, now
            elif not before.expired:
                expired_since = now
            length = lease.lease_for / 1_000_000
            twice = lease.expired and now - expired_since >= SECOND_LOOK * length
            if twice or now - first >= UNRENEWED * length:
                dead.append(lease)
            else:
                now_seen[lease.id] = (lease, first, expired_since)
        return dead

    def _rescue(self, dead: list[Lease]) -> bool:
        """Bite by bite; False when one took so long that what was seen is of no use any more."""
        for start in range(0, len(dead), MOST_AT_ONCE):
            if self.stopping:
                break
            bite = dead[start : start + MOST_AT_ONCE]
            _tell(self._store.run(Rescue(bite, seed=time.monotonic_ns())))
            if not self._is_awake():
                return False
        return True


_Seen = tuple[Lease, float, float]
"""A lease, since when it looks as it does, and since when it is over by the clock (monotonic)."""


def _tell(rescued: list[Rescued]) -> None:
    if len(rescued) > TOLD_ONE_BY_ONE:
        for worker_id, count in Counter(job.worker_id for job in rescued).items():
            log.warning("%d jobs were taken back from worker %s, which is silent", count, worker_id)
        return
    for job in rescued:
        log.warning(
            "job %d (%s) was taken back from worker %s, which is silent%s",
            job.id,
            job.type,
            job.worker_id,
            "" if job.counted else " and had not begun it",
            extra={"event": "taken back", "job": job.id, "type": job.type},
        )
