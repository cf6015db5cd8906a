"""One worker process, as its supervisor knows it."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from tempfile import mkstemp
from typing import Any

from yaoki.children import Child, Gone, start
from yaoki.store.ops.settling import Held
from yaoki.supervisor.messages import (
    FROM_CHILD,
    Beat,
    Drain,
    Ended,
    FromChild,
    Hello,
    Hurry,
    Ready,
    Refused,
)
from yaoki.supervisor.place import Place
from yaoki.supervisor.settings import SupervisorSettings
from yaoki.supervisor.system import is_stopped
from yaoki.worker.board import BoardReader

SILENT_AFTER = 5.0
"""Seconds without a sign of life after which a process counts as one that does not answer."""


class Process:
    """A worker process from its start until its end is dealt with.

    `hello` None: it has not said yet who it is, and holds nothing.
    """

    def __init__(self, place: Place, target: str, args: Any) -> None:
        self.place, self.started_at = place, time.monotonic()
        self._board: BoardReader | None = None
        self._board_file = _new_file()
        try:
            self.child: Child = start(target, {"board": self._board_file, "order": args})
        except OSError:
            self._remove_file()
            raise
        self.hello: Hello | None = None
        self.ready_at: float | None = None
        self.files: list[str] = []
        self.beat: Beat | None = None
        self.heard_at = self._listened_at = self.started_at
        self.refused: Refused | None = None
        self.ended: Ended | None = None
        self.memory_at_first: int | None = None
        self.replaced = False
        """Another is to take its place."""
        self.draining = False
        self._is_slow = False
        self.deadline: float | None = None
        """When (monotonic) it is to be killed."""
        self._more_if_it_answers = 0.0
        self.killed_because: str | None = None
        """Why it was killed, if that was on purpose."""
        self.culprits: tuple[Held, ...] = ()
        """The jobs for whose sake it was killed."""

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def in_order(self) -> bool:
        """It has said that it ends, and why."""
        return self.ended is not None or self.refused is not None

    @property
    def ended_by_itself(self) -> bool:
        """In order, and nobody had told it to."""
        return self.ended is not None and not self.draining

    @property
    def silent_for(self) -> float:
        """Seconds from its last sign of life to when we last listened.

        Not to now: we may have been stopped ourselves, and what it said waits to be read.
        """
        return self._listened_at - self.heard_at

    @property
    def answers(self) -> bool:
        return self.silent_for < SILENT_AFTER

    @property
    def is_stopped(self) -> bool:
        return is_stopped(self.pid)

    def read(self) -> Iterator[FromChild]:
        """What it has said since; never waits."""
        try:
            while (said := self.child.receive(FROM_CHILD, 0)) is not None:
                self.heard_at = time.monotonic()
                self._note(said)
                yield said
        except Gone:
            return
        self._listened_at = time.monotonic()

    @property
    def begun(self) -> frozenset[int]:
        """Jobs that have begun, also those of which the database does not know it yet."""
        return frozenset() if self._board is None else self._board.begun()

    def close(self) -> None:
        """When it has ended, and what it held is known."""
        self.child.close()
        self._remove_file()

    def _read_board(self) -> None:
        if self._board_file is not None:
            with suppress(OSError, ValueError):
                self._board = BoardReader(self._board_file)
        # Both have it now. On Windows it can be removed at the end only.
        self._remove_file()

    def _remove_file(self) -> None:
        if self._board_file is not None:
            with suppress(OSError):
                os.unlink(self._board_file)
                self._board_file = None

    def drain(self, grace: float | None) -> None:
        """Let it finish; None: whatever that takes. One that holds nothing yet is ended."""
        self.draining = True
        if self.hello is None:
            self.kill("it was not needed any more")
        else:
            self.child.send(Drain(grace))

    def is_slow_to_begin(self, patience: float) -> bool:
        """Has it been started so long ago (seconds), and is not ready? True once."""
        began = self.ready_at is not None or self.in_order or self._is_slow
        if began or time.monotonic() - self.started_at < patience:
            return False
        self._is_slow = True
        return True

    def end_by(self, moment: float, if_it_answers: float = 0.0) -> None:
        """It is to be killed then (monotonic), or so much later if it answers, or earlier."""
        if self.deadline is None or moment < self.deadline:
            self.deadline, self._more_if_it_answers = moment, if_it_answers

    def comes_due(self) -> bool:
        """Is it to be killed now? Says so once."""
        now = time.monotonic()
        if self.deadline is None or now < self.deadline:
            return False
        if self._more_if_it_answers > 0 and self.answers and self.ended is None:
            self.deadline = now + 1.0
            self._more_if_it_answers -= 1.0
            return False
        self.deadline = None
        return True

    def wants_replacement(self, settings: SupervisorSettings) -> str | None:
        """Why another should take its place, if one should."""
        beat, hello = self.beat, self.hello
        if beat is None or hello is None or self.ready_at is None:
            return None
        if beat.leaked >= hello.concurrency:
            return f"{beat.leaked} handlers that ran past their time limits use it up"
        if settings.recycle_after is not None and beat.done >= settings.recycle_after:
            return f"it has done {beat.done} jobs"
        limit = settings.recycle_above
        if limit is None or beat.memory <= limit or (self.memory_at_first or 0) > limit:
            return None
        return f"it uses {beat.memory // 2**20} MB of memory"

    def hurry(self, number: int) -> None:
        self.draining = True
        self.child.send(Hurry(number))

    def kill(self, because: str, culprits: tuple[Held, ...] = ()) -> None:
        self.killed_because, self.culprits = because, culprits
        self.child.kill()

    def __str__(self) -> str:
        return f"worker process {self.place.number} (pid {self.pid})"

    def _note(self, said: FromChild) -> None:
        match said:
            case Hello():
                self.hello = said
                self._read_board()
            case Ready(files):
                self.ready_at, self.files = time.monotonic(), files
            case Beat(_, _, memory):
                self.beat = said
                if self.memory_at_first is None and self.ready_at is not None:
                    self.memory_at_first = memory
            case Refused():
                self.refused = said
            case Ended():
                self.ended = said


def _new_file() -> str | None:
    """Where the child writes what has begun (worker/board.py); None where no file can be made."""
    with suppress(OSError):
        handle, path = mkstemp(prefix="yaoki-")
        os.close(handle)
        return path
    return None
