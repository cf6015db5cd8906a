"""Taking jobs back from workers that have gone silent."""

import logging
import time

from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.ops.upkeep import Lease, Leases, Rescue

log = logging.getLogger("yaoki.worker")

LONGEST_PAUSE = 10.0

SECOND_LOOK = 0.5
"""The part of a lease's length that lies between two looks at it, by a monotonic clock."""

UNRENEWED = 1.5
"""Lease lengths without a renewal after which a holder is dead, whatever the wall clock says."""

MOST_AT_ONCE = 500


class Rescuer(Loop):
    """Looks twice at a lease before it is taken away.

    A lease that is over by the clock may have a holder who could not renew it: the machine slept,
    the disk was busy, the clock jumped. So it must be seen unchanged twice, half its length
    apart, with no failed or belated look between: who lives has renewed it by then.
    """

    def __init__(self, store: Store, lease_for: float) -> None:
        super().__init__("rescue")
        self._store = store
        self._pause = min(lease_for / 6, LONGEST_PAUSE)
        self._seen: dict[int, tuple[Lease, float, float]] = {}
        self._last_look = time.monotonic()

    def once(self) -> float:
        now = time.monotonic()
        if now - self._last_look > 3 * self._pause + 1:
            # We slept ourselves, and so may have those whose leases seem to be over.
            self._seen.clear()
        self._last_look = now
        leases = self._store.run(Leases())
        dead = self._judge(leases, now)
        for start in range(0, len(dead), MOST_AT_ONCE):
            self._rescue(dead[start : start + MOST_AT_ONCE])
        shortest = min((lease.lease_for for lease in leases), default=10**9) / 1_000_000
        return max(min(self._pause, shortest / 6), 0.05)

    def failed(self, error: Exception) -> None:
        self._seen.clear()

    def _judge(self, leases: list[Lease], now: float) -> list[Lease]:
        """Those that are dead; remembers the others, and since when they look as they do."""
        dead, seen = [], {}
        for lease in leases:
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
                seen[lease.id] = (lease, first, expired_since)
        self._seen = seen
        return dead

    def _rescue(self, dead: list[Lease]) -> None:
        for job in self._store.run(Rescue(dead, seed=time.monotonic_ns())):
            log.warning(
                "job %d (%s) was taken back from worker %s, which is silent%s",
                job.id,
                job.type,
                job.worker_id,
                "" if job.counted else " and had not begun it",
            )
