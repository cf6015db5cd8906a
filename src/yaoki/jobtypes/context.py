"""What a handler knows about the attempt that it is, and what it may do in it."""

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import msgspec

from yaoki.core import payloads
from yaoki.core.errors import (
    InvalidOption,
    InvalidPayload,
    LeaseLost,
    NotHere,
    StoreBusy,
    StoreUnavailable,
)
from yaoki.core.failures import text
from yaoki.core.job import Job, Progress
from yaoki.core.log_lines import LEVELS, LINES_KEPT, LONGEST_LINE
from yaoki.core.outcomes import Completed, settle
from yaoki.core.states import Status
from yaoki.store import scope
from yaoki.store.base import Run, Store, Transaction
from yaoki.store.op import Op
from yaoki.store.ops.logs import Line, Lines
from yaoki.store.ops.settling import Held, Report, Settlement, SettleOne, StillHeld
from yaoki.store.patience import within

log = logging.getLogger("yaoki.worker")

T = TypeVar("T")

PROGRESS_EVERY = 0.25
"""Seconds between two writes of a job's progress; the newest in between is kept, not lost."""

PROGRESS_PATIENCE = 2.0
"""Seconds that a handler waits for a database which is silent, and until it is asked again."""

# One lock for all attempts: it is held for a few instructions, and most attempts never need it.
_bookkeeping = threading.Lock()

_running: ContextVar["JobContext | None"] = ContextVar("yaoki_running", default=None)


def running() -> "JobContext | None":
    """The context of the attempt that this code runs in, None outside handlers."""
    return _running.get()


class _Line(NamedTuple):
    number: int
    at: float
    level: str
    text: str


class JobContext:
    """Given to a handler that has a parameter of this type.

    `job` is the job as it was claimed.
    """

    # Most attempts need none of these, and a worker makes one of us for each attempt.
    settled_by_handler = False
    completing = False
    """Its handler is committing, or has committed, the completion: the lease ends by that."""
    _in_transaction = False
    _cut: Callable[[], None] | None = None
    _reason: str | None = None
    _told: threading.Event | None = None
    _began = 0.0
    _unwritten: Progress | None = None
    _written_at = float("-inf")
    _secrets: Callable[[dict[str, Any]], Collection[str]] | None = None
    _lines: deque[_Line] | None = None
    """Those that are not in the database yet."""
    _line_number = 0
    _lines_at = float("-inf")

    def __init__(self, store: Store, job: Job, lease_for: float = 60.0) -> None:
        self.job = job
        self._store = store
        self._lease_for = lease_for

    @property
    def attempt(self) -> int:
        """The number of this attempt, 1 the first."""
        return self.job.attempt

    @property
    def _held(self) -> Held:
        return Held(self.job.id, self.job.lease or 0)

    @property
    def stopping(self) -> str | None:
        """Why this attempt should end soon, or None.

        "shutdown": the worker drains, and gives its grace period; "cancelled", "timeout" and
        "lease lost": nothing that the attempt does is recorded any more.
        """
        return self._reason

    def wait_stopping(self, seconds: float) -> bool:
        """Sleep, but wake up when the attempt should end: True then, False after `seconds`."""
        with _bookkeeping:
            told = self._told = self._told or threading.Event()
            if self._reason is not None:
                told.set()
        return told.wait(seconds)

    def stop(self, reason: str) -> None:
        """For the worker: tell the handler. The first reason stays, unless it was a shutdown."""
        with _bookkeeping:
            if self._reason in (None, "shutdown"):
                self._reason = reason
            if self._told is not None:
                self._told.set()

    def break_off(self) -> None:
        """For the worker: end the transaction that a handler which is not listened to is in."""
        cut = self._cut
        if cut is not None:
            cut()

    def began(self, now: float) -> None:
        """For the worker: the attempt begins."""
        self._began = now

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the job is; written at most four times a second, the last always.

        Raises LeaseLost when the job is not this attempt's any more. An outage of the database is
        no matter: the newest is written when it is over.
        """
        if self._put(done, total, message):
            with within(PROGRESS_PATIENCE), self._outages_are_no_matter(self._unwritten):
                self.write_progress()

    async def aprogress(
        self, done: float, total: float | None = None, message: str | None = None
    ) -> None:
        """The same, awaiting."""
        if self._put(done, total, message):
            newest = self._unwritten
            report, run = self._report(), scope.current(self._store)
            if report is None:
                return
            if run is not None:
                await scope.awaited(run, report)
            else:
                with within(PROGRESS_PATIENCE), self._outages_are_no_matter(newest):
                    await self._store.arun(report)

    def write_progress(self) -> None:
        """Write the newest progress, if there is any that was not."""
        newest = self._unwritten
        report = self._report()
        if report is not None:
            try:
                self._run(report)
            except (StoreBusy, StoreUnavailable):
                self._keep_unwritten(newest)
                raise

    def take_progress(self) -> str | None:
        """For the worker: the progress that was never written, to be recorded with the outcome."""
        if self._unwritten is None:
            return None
        with _bookkeeping:
            newest, self._unwritten = self._unwritten, None
        return None if newest is None else _encoded(newest)

    @property
    def progress_is_due(self) -> bool:
        """There is progress to write, and the last write was long enough ago."""
        return self._unwritten is not None and time.monotonic() - self._written_at >= PROGRESS_EVERY

    def log(self, message: object, level: str = "info") -> None:
        """Keep a line with the job, for people: `yaoki job` shows it, and `app.logs`.

        `level` is debug, info, warning or error. Waits for nothing, so async handlers call it as
        it is: lines are written a moment later, and with the outcome at the latest. What is said
        after the attempt has ended, or has lost its job, is not kept.
        """
        if level not in LEVELS:
            raise InvalidOption(f"there is no level {level!r}; there are {', '.join(LEVELS)}")
        self.add_line(level, text(message, LONGEST_LINE, self._hidden()), time.monotonic())

    def add_line(self, level: str, said: str, at: float) -> None:
        """For the worker: a line that was said at `at` (monotonic), fit to be stored."""
        with _bookkeeping:
            if self._lines is None:
                self._lines = deque(maxlen=LINES_KEPT)
            self._line_number += 1
            self._lines.append(_Line(self._line_number, at, level, said))

    @property
    def lines_are_due(self) -> bool:
        """For the worker: there are lines to write, and the last time was long enough ago.

        None while a transaction is open: at its end they are part of it.
        """
        if not self._lines or self._in_transaction:
            return False
        return time.monotonic() - self._lines_at >= PROGRESS_EVERY

    def lines_to_write(self) -> Lines | None:
        """For the worker: those that are not known to be in the database."""
        if not self._lines:
            return None
        now = self._lines_at = time.monotonic()
        # Of the row as it was claimed: 1 when it was made, 2 by its first claim.
        crowded = self._line_number > LINES_KEPT or self.job.revision > 2
        with _bookkeeping:
            each = [
                Line(number, max(round((now - at) * 1_000_000), 0), level, said)
                for number, at, level, said in self._lines
            ]
        return Lines(each, crowded) if each else None

    def lines_written(self, written: Lines) -> None:
        """For the worker: these lines are in the database."""
        last = written.each[-1].number
        with _bookkeeping:
            while self._lines and self._lines[0].number <= last:
                self._lines.popleft()

    def hide(self, secrets: Callable[[dict[str, Any]], Collection[str]]) -> None:
        """For the worker: which values of a payload are not to be shown."""
        self._secrets = secrets

    @contextmanager
    def transaction(self, connection: Any = None) -> Iterator["HandlerTransaction"]:
        """Commit the handler's effect and the job's completion together, or neither.

        With `connection`, on the caller's own connection (as for app.on), which is committed at
        the end of the block. Without, on one of yaoki's, in the queue's own database. An
        exception inside rolls back, and the attempt fails by the rules. After the block the job
        is completed: what the handler raises then is only logged.

        On SQLite the block holds the only write lock. One that holds it for longer than the
        lesser of the timeout and a third of the lease is interrupted: TransactionLost. (A
        connection of the caller's own can only be interrupted, not closed, from outside: it
        keeps the lock until the block ends, and is then rolled back.)
        """
        if connection is not None:
            with self._only_one(), self._borrowed_transaction(connection) as run:
                yield from self._inside(HandlerTransaction(connection), run)
                self.completing = True
        else:
            with self._only_one(), self._own_transaction(self._store.transaction()) as shared:
                yield from self._inside(HandlerTransaction(shared.connection), shared.run)
        self.settled_by_handler = True

    @asynccontextmanager
    async def atransaction(self, connection: Any = None) -> AsyncIterator["HandlerTransaction"]:
        """The same for handlers that await: waiting for the lock does not block the loop.

        The statements themselves do, for as long as they take, unless `connection` is one that has
        to be awaited (of asyncpg, psycopg's async or SQLAlchemy's async).
        """
        if connection is not None:
            tx = HandlerTransaction(connection)
            with self._only_one():
                async with self._store.ablock(connection) as (run, interrupt):
                    with self._limited(interrupt):
                        async with asynccontextmanager(self._ainside)(tx, run):
                            yield tx
                        self.completing = True
            self.settled_by_handler = True
            return
        with self._only_one(), self._own_transaction(await _begun(self._store)) as shared:
            tx = HandlerTransaction(shared.connection)
            with contextmanager(self._inside)(tx, shared.run):
                yield tx
        self.settled_by_handler = True

    def enter(self) -> None:
        """For the worker: what runs in this contextvars.Context is this attempt."""
        _running.set(self)

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """One at a time, and none after one: a second would wait for the first for ever."""
        if self.settled_by_handler:
            raise NotHere("this job has been completed by an earlier ctx.transaction() already")
        if self._in_transaction:
            raise NotHere("this attempt is in a ctx.transaction() already; use that one")
        self._in_transaction = True
        try:
            yield
        except BaseException:
            self.completing = False
            raise
        finally:
            self._in_transaction = False

    @contextmanager
    def _own_transaction(self, shared: Transaction) -> Iterator[Transaction]:
        try:
            with self._limited(shared.interrupt):
                yield shared
                self.completing = True
                shared.commit()
        except BaseException:
            self.completing = False
            shared.rollback()
            shared.check()
            raise

    @contextmanager
    def _borrowed_transaction(self, connection: Any) -> Iterator[Run]:
        with self._store.block(connection) as (run, interrupt), self._limited(interrupt):
            yield run

    @contextmanager
    def _limited(self, interrupt: Callable[[], None]) -> Iterator[None]:
        timer = threading.Timer(self._longest_lock(), interrupt)
        timer.daemon = True
        timer.start()
        self._cut = interrupt
        try:
            yield
        finally:
            self._cut = None
            timer.cancel()

    def _inside(self, tx: "HandlerTransaction", run: Run) -> Iterator["HandlerTransaction"]:
        if not run(StillHeld(self._held)):
            raise LeaseLost(self.job.id)
        with scope.entered(self._store, run):
            yield tx
        self._check_completed(run(self._completion(tx.result)))

    async def _ainside(
        self, tx: "HandlerTransaction", run: Run
    ) -> AsyncIterator["HandlerTransaction"]:
        if not await scope.awaited(run, StillHeld(self._held)):
            raise LeaseLost(self.job.id)
        with scope.entered(self._store, run):
            yield tx
        self._check_completed(await scope.awaited(run, self._completion(tx.result)))

    def _longest_lock(self) -> float:
        timeout = self.job.timeout
        if not self._store.one_writer:
            return threading.TIMEOUT_MAX if timeout is None else timeout
        third = self._lease_for / 3
        return third if timeout is None else min(timeout, third)

    def _completion(self, result: object) -> SettleOne:
        encoded, problem = payloads.encode_result(result)
        if problem is not None:
            log.warning("job %d: its result cannot be stored: %s", self.job.id, problem)
        change = settle(Completed(encoded))
        ran_for = round((time.monotonic() - self._began) * 1_000_000)
        progress, lines = self.take_progress(), self.lines_to_write()
        return SettleOne(Settlement(self._held, change, ran_for, progress, lines=lines))

    def _check_completed(self, job: Job) -> None:
        if job.status is Status.CANCELLED:
            raise LeaseLost(job.id, "it was cancelled, so the transaction is rolled back")

    def _hidden(self) -> Collection[str]:
        if self._secrets is None:
            return ()
        try:
            return self._secrets(self.job.payload)
        except InvalidPayload:
            return ()

    def _put(self, done: float, total: float | None, message: str | None) -> bool:
        progress = Progress(
            _number(done, "done"),
            None if total is None else _number(total, "total"),
            None if message is None else text(message, 500),
        )
        if self._reason in ("cancelled", "timeout", "lease lost"):
            raise LeaseLost(self.job.id, f"this attempt was stopped ({self._reason})")
        with _bookkeeping:
            self._unwritten = progress
        return self.progress_is_due

    @contextmanager
    def _outages_are_no_matter(self, newest: Progress | None) -> Iterator[None]:
        """Progress is for people: no handler fails because it could not be written."""
        try:
            yield
        except (StoreBusy, StoreUnavailable):
            if scope.current(self._store) is not None:
                raise
            self._keep_unwritten(newest)

    def _keep_unwritten(self, progress: Progress | None) -> None:
        with _bookkeeping:
            self._unwritten = self._unwritten or progress
            self._written_at = time.monotonic() + PROGRESS_PATIENCE - PROGRESS_EVERY

    def newest_progress(self) -> Progress | None:
        """For the worker: the progress that is to be written now, if there is any."""
        with _bookkeeping:
            newest, self._unwritten = self._unwritten, None
            if newest is not None:
                self._written_at = time.monotonic()
        return newest

    def heard(self, progress: Progress) -> None:
        """For the worker: what the handler says, elsewhere, of how far it is."""
        with _bookkeeping:
            self._unwritten = progress

    def _report(self) -> Op[None] | None:
        newest = self.newest_progress()
        return None if newest is None else Report(self._held, _encoded(newest))

    def _run(self, op: Op[T]) -> T:
        run = scope.current(self._store) or self._store.run
        value: T = run(op)
        return value


async def _begun(store: Store) -> Transaction:
    """A transaction, awaited on a thread of its own: there may be many who wait for the lock.

    Who is cancelled meanwhile does not leave the lock taken.
    """
    loop = asyncio.get_running_loop()
    beginning: concurrent.futures.Future[Transaction] = concurrent.futures.Future()
    threading.Thread(
        target=_begin, args=(store, beginning), name="yaoki-begin", daemon=True
    ).start()
    try:
        return await asyncio.shield(asyncio.wrap_future(beginning, loop=loop))
    except asyncio.CancelledError:
        beginning.add_done_callback(_give_up)
        raise


def _begin(store: Store, beginning: "concurrent.futures.Future[Transaction]") -> None:
    try:
        beginning.set_result(store.transaction())
    except BaseException as error:
        beginning.set_exception(error)


def _give_up(beginning: "concurrent.futures.Future[Transaction]") -> None:
    if beginning.exception() is None:
        beginning.result().rollback()


class HandlerTransaction:
    """The open transaction of a handler; `result` becomes the job's result."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.result: object = None

    def execute(self, statement: str, parameters: Any = ()) -> Any:
        """Run one statement on the connection; its cursor."""
        # Without parameters, a % in a statement is no placeholder to psycopg.
        given = (parameters,) if parameters else ()
        return self.connection.execute(statement, *given)

    def executemany(self, statement: str, parameters: Any) -> Any:
        """Run one statement for each of the parameters; its cursor."""
        cursor = self.connection.cursor()
        cursor.executemany(statement, parameters)
        return cursor


def _encoded(progress: Progress) -> str:
    return msgspec.json.encode(progress).decode()


def _number(value: float, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidOption(f"{what} of a progress is a number, not {type(value).__name__}")
    if not -1e15 < value < 1e15:
        raise InvalidOption(f"{what} of a progress is a finite number below 10^15")
    return value
