"""Jobs enqueued by name: those of types that nobody here knows, and those to be taken in."""

import logging
import time

from yaoki.jobtypes import JobSet
from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.ops.claims import DueTypes
from yaoki.store.ops.workers import Adopt
from yaoki.store.patience import of_lease

log = logging.getLogger("yaoki.worker")

EVERY = 10.0

ADOPT_EVERY = 30.0
"""Seconds that a job which was enqueued just when its type was first published may be put off."""


class ByName(Loop):
    """Warns once for each type of due jobs that this worker does not know.

    Such jobs are left alone: no attempt is used, and a worker that knows the type takes them.
    """

    def __init__(
        self, store: Store, types: JobSet, queues: tuple[str, ...] | None, lease_for: float
    ) -> None:
        super().__init__("by name", of_lease(lease_for))
        self._store, self._types, self._queues = store, types, queues
        self._told: set[str] = set()
        self._adopt_at = time.monotonic() + EVERY

    def once(self) -> float:
        self._warn_of_unknown()
        if not self._store.one_writer and time.monotonic() >= self._adopt_at:
            self._store.run(Adopt([kind.definition for kind in self._types]))
            self._adopt_at = time.monotonic() + ADOPT_EVERY
        return EVERY

    def _warn_of_unknown(self) -> None:
        due = self._store.run(DueTypes(self._queues))
        unknown = {name for name in due if name not in self._types}
        for name in sorted(unknown - self._told):
            log.warning(
                "jobs of type %r are due, and this worker has no handler of that name; they wait "
                "for one that has (is its module imported?)",
                name,
            )
        self._told = unknown
