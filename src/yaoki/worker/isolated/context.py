"""The context that an isolated handler is given: what it says goes to its worker."""

import threading

from yaoki.core.errors import LeaseLost
from yaoki.core.job import Job
from yaoki.jobtypes import JobContext
from yaoki.store import Store, scope
from yaoki.worker.isolated.messages import Completing, Logged, Settled, Told
from yaoki.worker.isolated.wire import Wire


class IsolatedContext(JobContext):
    """Progress is written by the worker, so that a child needs no connection for it.

    Inside a transaction the handler's own connection has the lock, and writes it itself.
    """

    _completing = _settled = False
    _lines_sent = 0

    def __init__(self, wire: Wire, number: int, store: Store, job: Job, lease_for: float) -> None:
        super().__init__(store, job, lease_for)
        self._wire, self._number = wire, number
        self._sending = threading.Lock()

    # The worker renews the lease and must know when that ends, before it is so: it is asked.

    @property
    def completing(self) -> bool:
        return self._completing

    @completing.setter
    def completing(self, so: bool) -> None:
        if so and not self._wire.may_commit(Completing(self._number, True)):
            raise LeaseLost(self.job.id, "its worker has given it up")
        if self._completing and not so:
            self._wire.send(Completing(self._number, False))
        self._completing = so

    @property
    def settled_by_handler(self) -> bool:
        return self._settled

    @settled_by_handler.setter
    def settled_by_handler(self, so: bool) -> None:
        self._settled = so
        self._wire.send(Settled(self._number))

    def write_progress(self) -> None:
        if scope.current(self._store) is not None:
            super().write_progress()
        elif (newest := self.newest_progress()) is not None:
            self._wire.send(Told(self._number, newest))

    async def aprogress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> None:
        if scope.current(self._store) is None:
            self.progress(done, total, message)
        else:
            await super().aprogress(done, total, message)

    def add_line(self, level: str, said: str, at: float) -> None:
        super().add_line(level, said, at)
        if not self._in_transaction:
            self.send_lines()

    def send_lines(self) -> None:
        """Those that the worker does not know; of a transaction that was committed, it need not."""
        with self._sending:
            for number, at, level, said in list(self._lines or ()):
                if number > self._lines_sent:
                    self._lines_sent = number
                    self._wire.send(Logged(self._number, level, said, at))
