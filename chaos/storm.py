"""Lets everything go wrong at its moment, and writes down what did."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from signal import SIGCONT, SIGSTOP, SIGTERM

from chaos.databases import Database
from chaos.fleet import Fleet
from chaos.plan import LEASE, Event
from chaos.troubles import Trouble

UNNOTICED = 0.25 * LEASE
"""Seconds without a database that nothing may come of."""

WORKING_WITHIN = 20.0
"""Seconds after which some worker runs jobs again, whatever has happened to them."""

DUE = "SELECT count(*) FROM yaoki.jobs WHERE status = 'pending'"


class Storm:
    """The events of a plan, one after the other."""

    def __init__(
        self, events: Sequence[Event], fleet: Fleet, database: Database, company: int
    ) -> None:
        """So many processes are at work before the next thing happens to one."""
        self.troubles: list[Trouble] = []
        self.happened: dict[str, int] = {}
        self.problems: list[str] = []
        self._events, self._fleet, self._database = events, fleet, database
        self._company = company
        self._stopped: set[int] = set()
        self._threads: list[threading.Thread] = []
        self._began = time.monotonic()
        self._waits_since: float | None = None
        self._over = threading.Event()
        self._pulse = threading.Thread(target=self._feel, name="chaos-pulse", daemon=True)

    @property
    def kills(self) -> int:
        """How many times SIGKILL was sent."""
        return sum(self.happened.get(what, 0) for what in ("kill", "kill-parent", "kill-all"))

    def begin(self) -> None:
        self._began = time.monotonic()
        self._pulse.start()

    def now(self) -> float:
        """Seconds since the beginning, by the clock of the plan: it stands while we wait."""
        since = self._waits_since
        return (time.monotonic() if since is None else since) - self._began

    def run(self) -> None:
        """Until the last of them is over."""
        for event in self._events:
            time.sleep(max(event.at - self.now(), 0))
            self._gather()
            self._happen(event)
        for thread in self._threads:
            thread.join()

    def end(self) -> None:
        """No longer look whether the database can be written to."""
        self._over.set()
        self._pulse.join(30)

    def _happen(self, event: Event) -> None:
        if event.what in ("restart", "hang-up", "lock", "hold"):
            self._of_the_database(event)
        elif event.what.startswith("kill"):
            self._kill(event)
        elif event.what in ("end", "hurry"):
            self._end(event)
        else:
            self._stop(event)
        self.happened[event.what] = self.happened.get(event.what, 0) + 1

    def _gather(self) -> None:
        """Wait until some processes are at work again: who kills each at once sees nothing."""
        began = looked = time.monotonic()
        self._waits_since = began
        while len(self._at_work()) < self._company:
            now = time.monotonic()
            if now - looked > 0.5:
                looked = now
                if not self._is_due():
                    break
            if now - began > WORKING_WITHIN:
                if not self._at_work():
                    self.problems.append(f"no worker has begun a job for {WORKING_WITHIN:g} s")
                break
            time.sleep(0.02)
        # What comes later comes as much later: on a busy machine all takes its time.
        self._began += time.monotonic() - began
        self._waits_since = None

    def _at_work(self) -> list[int]:
        return [pid for pid in self._fleet.workers() if pid not in self._stopped]

    def _worker(self, event: Event) -> int:
        """The process that runs handlers and is chosen."""
        workers = self._fleet.workers()
        return workers[event.pick % len(workers)] if workers else self._parent(event)

    def _is_due(self) -> bool:
        try:
            return self._database.ask(self._database.of(DUE)) != [(0,)]
        except Exception:
            return True

    def _parent(self, event: Event) -> int:
        """The process that was started and is chosen, in whose tree handlers run, or will."""
        # Each that ends is replaced at once, so there is always one.
        while not (parents := self._fleet.parents):
            time.sleep(0.02)
        return parents[event.pick % len(parents)].pid

    def _note(self, what: str, pid: int | None, length: float = 0.0) -> Trouble:
        now = time.monotonic()
        trouble = Trouble(what, pid, now, now + length)
        self.troubles.append(trouble)
        return trouble

    def _kill(self, event: Event) -> None:
        if event.what == "kill":
            victims = [self._worker(event)]
        else:
            parent = self._parent(event)
            victims = self._fleet.tree(parent) if event.what == "kill-all" else [parent]
        for pid in victims:
            self._note("killed", pid, 0.1)
            self._fleet.kill(pid)

    def _stop(self, event: Event) -> None:
        if event.what == "stop-all":
            victims = self._fleet.tree(self._parent(event))
        else:
            victims = [self._worker(event)]
        notes = []
        for pid in victims:
            if event.what != "pause":
                notes.append(self._note("stopped", pid, math.inf))
            self._stopped.add(pid)
            self._fleet.send(pid, SIGSTOP)

        def go_on() -> None:
            time.sleep(event.length)
            for pid in victims:
                self._fleet.send(pid, SIGCONT)
                self._stopped.discard(pid)
            for note in notes:
                note.end = time.monotonic()

        self._beside(go_on)

    def _end(self, event: Event) -> None:
        parent = self._parent(event)
        self._tell(parent)
        if event.what == "hurry":

            def hurry() -> None:
                time.sleep(event.length)
                self._tell(parent)

            self._beside(hurry)

    def _tell(self, parent: int) -> None:
        """SIGTERM; for one that was told before, a second one that hurries it."""
        for member in self._fleet.parents:
            if member.pid == parent:
                for pid in self._fleet.tree(parent) if member.told else ():
                    self._note("hurried", pid, 5.0)
                member.told = True
        self._fleet.send(parent, SIGTERM)

    def _of_the_database(self, event: Event) -> None:
        def suffer() -> None:
            try:
                self._database.suffer(event.what, event.length)
            except Exception as error:
                self.problems.append(f"{event.what} did not work: {error}")
            cut.end = time.monotonic() + 1.0

        # What is so short that it is no outage, may still end a transaction.
        cut = self._note("cut", None, math.inf)
        self._beside(suffer)

    def _beside(self, what: Callable[[], None]) -> None:
        """While the next events come."""
        thread = threading.Thread(target=what, name="chaos-trouble")
        thread.start()
        self._threads.append(thread)

    def _feel(self) -> None:
        """Note when nobody could write: for whatever reason, this machine's load included."""
        well = time.monotonic()
        for possible in self._database.beats():
            now = time.monotonic()
            if possible:
                if now - well > UNNOTICED:
                    self.troubles.append(Trouble("outage", None, well, now))
                well = now
            if self._over.wait(0.05):
                break
