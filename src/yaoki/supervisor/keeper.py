"""What a supervisor does with the database: keeps leases, gives back what the dead held."""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from yaoki.loop import Loop
from yaoki.store import SQLiteStore, Store, open_store
from yaoki.store.ops.settling import Held
from yaoki.store.ops.supervise import Buried, Bury, Sustain, Watch, Watched
from yaoki.store.sqlite import place
from yaoki.supervisor.messages import Hello
from yaoki.supervisor.process import Process

log = logging.getLogger("yaoki.supervisor")

LONGEST_PAUSE = 10.0

TICK = 1.0
"""Seconds between two looks at the jobs of a process that does not answer."""

PATIENCE = 10.0
"""Seconds that a database may be silent."""

LOST_AFTER = 30.0
"""Seconds, at least, until a process is ended that does not answer and has begun nothing."""

NO_ANSWER = "its worker process did not answer and was killed"

AGAIN_AFTER = 0.2
"""Seconds until what was locked is tried again."""

OVERTIME = 5_000_000
"""Microseconds that a job of a process that does not answer may be past its time limit."""


@dataclass(frozen=True, slots=True)
class Death:
    """A process that has ended, and what that means for what it held."""

    url: str
    worker_id: str
    why: str
    blameless: bool
    culprits: tuple[Held, ...] = ()
    begun: frozenset[int] = frozenset()


class Keeper(Loop):
    """On a thread of its own; a database that is away or slow holds up nothing else."""

    def __init__(self, processes: Callable[[], list[Process]]) -> None:
        super().__init__("supervisor", PATIENCE)
        self._processes = processes
        self._deaths: deque[Death] = deque()
        self._stores: dict[str, Store] = {}
        self._told: set[int] = set()
        self._look_at: dict[int, float] = {}

    def bury(self, death: Death) -> None:
        """Give back what a process held that has ended; at once, and until it is done."""
        self._deaths.append(death)
        self.wake()

    @property
    def has_buried_all(self) -> bool:
        return not self._deaths

    def once(self) -> float:
        try:
            self._bury_all()
        finally:
            self._look()
        if self._deaths:
            return AGAIN_AFTER
        next_look = min(self._look_at.values(), default=float("inf"))
        return max(min(next_look - time.monotonic(), TICK), 0.01)

    def close(self) -> None:
        for store in self._stores.values():
            store.close()

    def _bury(self, death: Death) -> int:
        """How many of its jobs could not be given back yet."""
        store = self._store(death.url)
        if store is None:
            return 0
        bury = Bury(
            death.worker_id,
            death.why,
            death.blameless,
            death.culprits,
            death.begun,
            seed=time.monotonic_ns(),
        )
        buried: Buried = store.run(bury)
        for job in buried.jobs:
            log.warning(
                "job %d (%s) was taken back: %s%s",
                job.id,
                job.type,
                death.why,
                "" if job.counted else ", which uses up no attempt",
                extra={"event": "taken back", "job": job.id, "type": job.type},
            )
        return buried.left

    def _bury_all(self) -> None:
        for death in list(self._deaths):
            if self._bury(death) == 0:
                self._deaths.remove(death)

    def _look(self) -> None:
        """After every process that holds something: a sixth of a lease apart, or when silent."""
        before, self._look_at = self._look_at, {}
        for process in self._processes():
            hello, now = process.hello, time.monotonic()
            if hello is None or process.child.ended or process.is_stopped:
                # What is stopped does not work: its jobs are for others.
                continue
            look_at = before.get(process.pid, 0.0)
            if now >= look_at or not process.answers:
                look_at = now + min(hello.lease_for / 6, LONGEST_PAUSE)
                self._keep(process, hello)
            self._look_at[process.pid] = look_at

    def _keep(self, process: Process, hello: Hello) -> None:
        store = self._store(hello.url)
        if store is None:
            return
        held = store.run(Watch(hello.worker_id))
        if not process.answers and self._is_lost(process, hello, held):
            return
        # What never began, others can begin as well.
        wanted = held if process.answers else _begun(held, process)
        late = [one.held for one in wanted if _is_late(one)]
        if late:
            store.run(Sustain(hello.worker_id, late))

    def _is_lost(self, process: Process, hello: Hello, held: list[Watched]) -> bool:
        """It does not answer: is it to be killed, and was it?"""
        overdue = [one for one in held if _is_overdue(one)]
        if overdue:
            jobs = ", ".join(str(one.id) for one in overdue)
            log.error("%s does not answer, and job %s is past its time limit", process, jobs)
            process.kill(NO_ANSWER, tuple(one.held for one in overdue))
        elif not _begun(held, process) and process.silent_for > max(hello.lease_for, LOST_AFTER):
            log.error("%s does not answer, and holds no job any more: killed", process)
            process.kill(NO_ANSWER)
        elif process.pid not in self._told:
            self._told.add(process.pid)
            log.warning("%s does not answer; its leases are kept", process)
        return process.killed_because is not None

    def _store(self, url: str) -> Store | None:
        """None for a database that is private to the process which has it."""
        if url not in self._stores:
            store = open_store(url)
            if isinstance(store, SQLiteStore) and place.parse(url).path is None:
                return None
            self._stores[url] = store
        return self._stores[url]


def _begun(held: list[Watched], process: Process) -> list[Watched]:
    begun = process.begun
    return [one for one in held if one.ran_for is not None or one.id in begun]


def _is_late(one: Watched) -> bool:
    """Has its own worker failed to renew it when it should have, with two thirds left?"""
    return one.left < 0.6 * one.lease_for


def _is_overdue(one: Watched) -> bool:
    if one.ran_for is None or one.timeout is None:
        return False
    return one.ran_for > one.timeout + OVERTIME
