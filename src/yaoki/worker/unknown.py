"""Telling people about jobs that wait for a handler which nobody here has."""

import logging

from yaoki.jobtypes import JobSet
from yaoki.loop import Loop
from yaoki.store import Store
from yaoki.store.ops.claims import DueTypes

log = logging.getLogger("yaoki.worker")

EVERY = 10.0


class UnknownTypes(Loop):
    """Warns once for each type of due jobs that this worker does not know.

    Such jobs are left alone: no attempt is used, and a worker that knows the type takes them.
    """

    def __init__(self, store: Store, types: JobSet, queues: tuple[str, ...] | None) -> None:
        super().__init__("unknown types")
        self._store, self._types, self._queues = store, types, queues
        self._told: set[str] = set()

    def once(self) -> float:
        due = self._store.run(DueTypes(self._queues))
        unknown = {name for name in due if name not in self._types}
        for name in sorted(unknown - self._told):
            log.warning(
                "jobs of type %r are due, and this worker has no handler of that name; they wait "
                "for one that has (is its module imported?)",
                name,
            )
        self._told = unknown
        return EVERY
