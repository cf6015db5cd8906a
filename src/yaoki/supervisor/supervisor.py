"""The supervisor: starts worker processes, listens to them, replaces and ends them."""

import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from yaoki.children import pipe, wait_for
from yaoki.supervisor.keeper import Death, Keeper
from yaoki.supervisor.messages import Beat, Ended, Hello, Ready, Refused
from yaoki.supervisor.place import Place
from yaoki.supervisor.process import Process
from yaoki.supervisor.reload import Sources
from yaoki.supervisor.settings import SupervisorSettings
from yaoki.supervisor.system import reap_orphans
from yaoki.worker.signals import listening

log = logging.getLogger("yaoki.supervisor")

TICK = 1.0
"""Seconds between two looks at everything, when nothing happens."""

TICK_WITHOUT_WATCHES = 0.1
"""The same where the system does not tell at once that a process has ended."""

RELOAD_EVERY = 0.5

KILL_AFTER_GRACE = 5.0
"""Seconds that a process gets beyond the grace of its jobs, if it does not answer."""

RECORDING_PATIENCE = 30.0
"""Seconds more for one that answers: a database that does not may keep it from ending."""

SLOW_TO_BEGIN = 30.0
"""Seconds after which it is said that a process has not begun to work."""

HURRIED_PATIENCE = 1.0
"""Seconds that a process gets after a second signal."""

EXIT_PATIENCE = 10.0
"""Seconds from a worker's end to that of its process: threads of the app's may hold it up."""

BURIAL_PATIENCE = 5.0
"""Seconds that a supervisor which ends tries to give back what dead processes held."""

SHUT_DOWN = "stopped when its worker shut down"


class Supervisor:
    """Runs `target`, which serves a worker (see child.py), in so many processes. Used once.

    `say` gets the one line that tells why nothing could be begun.
    """

    def __init__(
        self,
        settings: SupervisorSettings,
        target: str,
        args: Any,
        say: Callable[[str], None],
    ) -> None:
        self._settings, self._target, self._args, self._say = settings, target, args, say
        self._places = [Place(number) for number in range(1, settings.processes + 1)]
        self._processes: list[Process] = []
        self._keeper = Keeper(lambda: list(self._processes))
        self._sources = Sources(os.getcwd()) if settings.reload else None
        self._look_at_sources_at = 0.0
        self._was_ready = self._draining = self._has_warned = False
        self._code = 0
        self._signals: list[int] = []
        self._obeyed = 0
        self._waker, self._woken = pipe(duplex=False)

    def run(self) -> int:
        """Until it is told to drain, or nothing is left to do; the exit code."""
        with listening(self._heard):
            self._start_due()
            self._keeper.start()
            try:
                while self._processes or any(map(self._is_vacant, self._places)):
                    self._wait()
                    self._look()
            finally:
                self._end()
        hurried_by = self._signals[-1] if len(self._signals) > 1 else None
        return self._code if hurried_by is None else 128 + hurried_by

    def _look(self) -> None:
        self._obey_signals()
        for process in list(self._processes):
            self._listen_to(process)
            if process.child.ended:
                self._bury(process)
            elif process.is_slow_to_begin(SLOW_TO_BEGIN):
                log.warning(
                    "%s has not begun after %.0f s: the import of the app, or a start-up function, "
                    "takes long",
                    process,
                    SLOW_TO_BEGIN,
                    extra={"event": "slow to begin"},
                )
        self._enforce_deadlines()
        self._reload()
        self._start_due()
        if os.getpid() == 1:
            reap_orphans([process.pid for process in self._processes])

    def _wait(self) -> None:
        """Until a process says something or ends, a signal comes, or something is due."""
        things: list[Any] = [self._woken]
        tick = TICK
        for process in self._processes:
            things += [process.child.line.end, *process.child.watches]
            if not process.child.watches:
                tick = TICK_WITHOUT_WATCHES
        dues = [process.deadline for process in self._processes]
        dues += [place.due_at for place in self._places if self._is_vacant(place)]
        now = time.monotonic()
        waits = [max(due - now, 0.0) for due in dues if due is not None]
        wait_for(things, min([tick if self._sources is None else RELOAD_EVERY, *waits]))
        while self._woken.poll():
            self._woken.recv_bytes()

    # Starting

    def _is_vacant(self, place: Place) -> bool:
        """Nobody works in it, or begins to, and somebody should."""
        if self._draining or place.is_done:
            return False
        here = (process for process in self._processes if process.place is place)
        return all(process.draining or process.replaced for process in here)

    def _start_due(self) -> None:
        for place in self._places:
            if self._is_vacant(place) and time.monotonic() >= place.due_at:
                try:
                    self._processes.append(Process(place, self._target, self._args))
                except OSError as error:
                    log.error("no worker process can be started: %s", error)
                    self._failed(place, 0.0, counts=True)

    # What they say

    def _listen_to(self, process: Process) -> None:
        for said in process.read():
            match said:
                case Ready():
                    self._was_ready = True
                    process.place.never_ready = 0
                    self._let_go_of_others(process)
                case Beat(0, _, memory) if memory > (
                    limit := self._settings.recycle_above or memory
                ):
                    self._warn_of(process, memory, limit)
                case Refused():
                    self._refused(process, said)
                case Ended():
                    process.end_by(time.monotonic() + EXIT_PATIENCE)
        if not (self._draining or process.draining or process.replaced):
            why = process.wants_replacement(self._settings)
            if why is not None:
                log.info("%s is replaced: %s", process, why, extra={"event": "recycled"})
                process.replaced = True
                process.place.free()

    def _let_go_of_others(self, process: Process) -> None:
        """One that was to be replaced has been: it may end as soon as its jobs have."""
        for other in self._processes:
            if other.place is process.place and other.replaced and not other.draining:
                other.drain(None)

    def _warn_of(self, process: Process, memory: int, limit: int) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "%s needs %d MB before its first job, which is more than --recycle-above %d",
                process,
                memory // 2**20,
                limit // 2**20,
            )

    def _refused(self, process: Process, said: Refused) -> None:
        if self._draining or process.draining:
            return
        if self._was_ready:
            log.error("%s cannot begin: %s", process, said.why)
        else:
            self._say(said.why)
            self._give_up(said.code)

    # When they end

    def _bury(self, process: Process) -> None:
        """Give back what it held, and see to it that another takes its place."""
        self._listen_to(process)
        self._processes.remove(process)
        how = process.child.how_it_ended
        if not process.in_order and process.killed_because is None:
            log.error("%s: %s", process, how, extra={"event": "process died"})
        began = process.refused is None or process.ready_at is not None
        if process.hello is not None and began:
            # Who said why it could not begin holds nothing.
            self._keeper.bury(_death(process, process.hello, how))
        process.close()
        if self._draining:
            self._code = max(self._code, _code_of(process))
        elif process.ended is not None and process.ended_by_itself and self._settings.until_empty:
            process.place.is_done = True
            self._code = max(self._code, process.ended.code)
        elif process.draining or (process.ended is not None and process.ended.code == 0):
            process.place.free()
        elif not process.replaced:
            lived = 0.0 if process.ready_at is None else time.monotonic() - process.ready_at
            passing = process.refused is not None and process.refused.passing
            counts = process.ready_at is None and not passing
            self._failed(process.place, lived, counts=counts, passing=passing)

    def _failed(self, place: Place, lived: float, *, counts: bool, passing: bool = False) -> None:
        pause = place.failed(lived, counts=counts, passing=passing)
        if self._sources is not None and counts:
            log.info("the next starts when a file has changed")
            place.due_at = float("inf")
        elif not place.gives_up or any(process.place is place for process in self._processes):
            log.info("the next starts in %.1f s", pause)
        else:
            log.critical(
                "%d worker processes in a row did not begin: giving up",
                place.never_ready,
                extra={"event": "gives up"},
            )
            self._give_up(1)

    def _give_up(self, code: int) -> None:
        self._code = max(self._code, code)
        self._drain()

    # Ending them

    def _heard(self, number: int) -> None:
        """In a signal handler."""
        self._signals.append(number)
        with suppress(OSError):
            self._waker.send_bytes(b"!")

    def _obey_signals(self) -> None:
        while self._obeyed < len(self._signals):
            number = self._signals[self._obeyed]
            self._obeyed += 1
            if self._obeyed == 1:
                log.info("draining (worker processes: %d)", len(self._processes))
                self._drain()
            else:
                self._hurry(number)

    def _drain(self) -> None:
        self._draining = True
        for process in self._processes:
            process.drain(self._settings.grace)
            process.end_by(
                time.monotonic() + self._settings.grace + KILL_AFTER_GRACE, RECORDING_PATIENCE
            )

    def _hurry(self, number: int) -> None:
        for process in self._processes:
            process.hurry(number)
            process.end_by(time.monotonic() + HURRIED_PATIENCE)

    def _enforce_deadlines(self) -> None:
        for process in self._processes:
            if process.comes_due():
                if process.ended is None:
                    log.error("%s did not end in time: killed", process)
                process.kill(SHUT_DOWN)

    def _reload(self) -> None:
        now = time.monotonic()
        if self._sources is None or now < self._look_at_sources_at or self._draining:
            return
        self._look_at_sources_at = now + RELOAD_EVERY
        files = {file for process in self._processes for file in process.files}
        changed = self._sources.changed(files)
        if not changed:
            return
        log.info("%s has changed: its worker processes are replaced", os.path.relpath(changed[0]))
        for place in self._places:
            place.free()
        for process in self._processes:
            process.drain(None)

    def _end(self) -> None:
        patience = HURRIED_PATIENCE if len(self._signals) > 1 else BURIAL_PATIENCE
        end = time.monotonic() + patience
        while not self._keeper.has_buried_all and time.monotonic() < end:
            time.sleep(0.005)
        if not self._keeper.has_buried_all:
            log.error("not all that was held could be given back; those leases will run out")
        self._keeper.stop(HURRIED_PATIENCE)
        self._keeper.close()


def _death(process: Process, hello: Hello, how: str) -> Death:
    if process.in_order:
        return Death(hello.url, hello.worker_id, "its worker process has ended", blameless=True)
    begun = process.begun
    if process.killed_because is None:
        why = f"worker process {how}"
        return Death(hello.url, hello.worker_id, why, blameless=False, begun=begun)
    why, culprits = process.killed_because, process.culprits
    return Death(hello.url, hello.worker_id, why, not culprits, culprits, begun)


def _code_of(process: Process) -> int:
    """What the end of a process, when all are to end, means for the exit code."""
    if process.ended is not None:
        return min(process.ended.code, 1)
    return 0 if process.hello is None else 1
