"""Everything that can be done to jobs from outside a worker: each verb, blocking and awaiting."""

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar, Unpack

from yaoki.core import names, payloads
from yaoki.core.backoff import read_backoff
from yaoki.core.definition import Definition
from yaoki.core.errors import (
    InvalidArguments,
    InvalidOption,
    InvalidPayload,
    JobNotFound,
    LeaseLost,
    NotHere,
    StoreError,
    WaitTimeout,
)
from yaoki.core.failures import Failure, describe, text
from yaoki.core.job import AT, BIGGEST_ID, Job
from yaoki.core.log_lines import LogLine
from yaoki.core.outcomes import Completed, Failed, Outcome, Released, Retried, settle
from yaoki.core.said import NewJob, Unsaid
from yaoki.core.states import Status
from yaoki.core.times import micros
from yaoki.health import LONGEST_WAIT, Health, judged
from yaoki.jobtypes import AnyJobType, JobSet, Options, running
from yaoki.jobtypes.options import new_job, on_existing
from yaoki.jobtypes.tracing import Tracing
from yaoki.store import Store, open_store, scope
from yaoki.store.op import Op
from yaoki.store.ops.claims import Claim
from yaoki.store.ops.health import LookAround
from yaoki.store.ops.jobs import Cancel, Discard, Enqueue, EnqueueMany, Get, Retry, RetryFailed
from yaoki.store.ops.listing import ListJobs, Page
from yaoki.store.ops.logs import Logs
from yaoki.store.ops.queues import Pause, Paused, PausedName, Queue, Queues, Resume
from yaoki.store.ops.settling import Extend, Held, Settlement, SettleOne
from yaoki.store.ops.upkeep import Rescue, Rescued
from yaoki.store.ops.workers import Definitions, Worker, Workers

T = TypeVar("T")

MOST_LISTED = 1_000
MOST_CLAIMED = 10_000


class Client:
    """The verbs. Safe to use from any thread; nothing is opened before it is used."""

    def __init__(self, url: str) -> None:
        self.store: Store = open_store(url)
        self.types = JobSet()
        self.tracing: Tracing | None = None
        """Told of every enqueue (yaoki.contrib.otel)."""

    @property
    def url(self) -> str:
        return self.store.url

    # Making jobs

    def enqueue(
        self, type: str, payload: Mapping[str, Any] | None = None, /, **options: Unpack[Options]
    ) -> Job:
        """Have a job of this type done later; the job, which is stored when this returns.

        The handler may live in another program: what it published decides the options that are
        not given here. With the idempotency key of an existing job that job is returned, and its
        `created` is False. Inside `with app.on(connection):` it is part of that transaction.
        """
        return self._make(self._enqueue(type, {} if payload is None else payload, options))

    async def aenqueue(
        self, type: str, payload: Mapping[str, Any] | None = None, /, **options: Unpack[Options]
    ) -> Job:
        """The same, awaiting. Who is cancelled while waiting does not undo the job."""
        return await self._amake(self._enqueue(type, {} if payload is None else payload, options))

    def enqueue_many(
        self, type: str, payloads: Iterable[Mapping[str, Any]], /, **options: Unpack[Options]
    ) -> list[Job]:
        """A job for each of the payloads, in their order: all of them or none."""
        return self._make_many(self._enqueue_many(type, payloads, options))

    async def aenqueue_many(
        self, type: str, payloads: Iterable[Mapping[str, Any]], /, **options: Unpack[Options]
    ) -> list[Job]:
        """The same, awaiting."""
        return await self._amake_many(self._enqueue_many(type, payloads, options))

    @contextmanager
    def on(self, connection: Any) -> Iterator[None]:
        """Until the block ends, this thread's calls run in the transaction of `connection`.

        A connection of sqlite3, psycopg, asyncpg or psycopg2, a SQLAlchemy Connection, Session,
        AsyncConnection or AsyncSession, or a Django connection, to the queue's own database
        (WrongConnection otherwise). On one that has to be awaited, the awaiting verbs are part of
        its transaction and the others refuse. yaoki neither commits nor rolls back: jobs appear
        when the caller commits. Threads and tasks begun inside are not part of it.
        """
        with self.store.on(connection) as run, scope.entered(self.store, run):
            yield

    # Reading
    def get(self, job: int | Job) -> Job:
        """The job as it is now; JobNotFound when there is none."""
        return self._run(Get(_id(job)))

    async def aget(self, job: int | Job) -> Job:
        """The same, awaiting."""
        return await self._arun(Get(_id(job)))

    def jobs(
        self,
        *,
        status: str | None = None,
        queue: str | None = None,
        type: str | None = None,
        worker_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """The newest jobs that fit every filter, at most 1,000; secret values are hidden.

        `page.cursor`, given back as `cursor`, brings the page behind it.
        """
        listed = _listed(status, queue, type, worker_id, limit, cursor)
        return self._redacted(self._run(listed), self._secrets_of(self._run))

    async def ajobs(
        self,
        *,
        status: str | None = None,
        queue: str | None = None,
        type: str | None = None,
        worker_id: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """The same, awaiting."""
        listed = _listed(status, queue, type, worker_id, limit, cursor)
        page = await self._arun(listed)
        definitions = await self._arun(Definitions())
        return self._redacted(page, self._secrets(definitions))

    def logs(self, job: int | Job) -> list[LogLine]:
        """What the job's handler wrote with ctx.log: its newest 1,000 lines, oldest first."""
        return self._run(Logs(_id(job)))

    async def alogs(self, job: int | Job) -> list[LogLine]:
        """The same, awaiting."""
        return await self._arun(Logs(_id(job)))

    def queues(self) -> list[Queue]:
        """Every queue that has open or dead jobs, or is paused."""
        return self._run(Queues())

    async def aqueues(self) -> list[Queue]:
        """The same, awaiting."""
        return await self._arun(Queues())

    def workers(self) -> list[Worker]:
        """Every worker that announced itself and did not take leave."""
        return self._run(Workers())

    async def aworkers(self) -> list[Worker]:
        """The same, awaiting."""
        return await self._arun(Workers())

    def paused(self) -> list[PausedName]:
        """Every queue and type that is paused."""
        return self._run(Paused())

    async def apaused(self) -> list[PausedName]:
        """The same, awaiting."""
        return await self._arun(Paused())

    def definitions(self) -> dict[str, Definition]:
        """What workers have published about their job types, by type."""
        return self._run(Definitions())

    async def adefinitions(self) -> dict[str, Definition]:
        """The same, awaiting."""
        return await self._arun(Definitions())

    def health(self, *, longest_wait: float | timedelta = LONGEST_WAIT) -> Health:
        """Whether all is well, and what to do if not: the database, the workers, what waits.

        A job that is ready for longer than `longest_wait` (seconds or timedelta) is a warning.
        Changes nothing, and raises nothing when the database cannot be reached: that is a problem.
        """
        patience = micros(longest_wait, "longest_wait") / 1_000_000
        found = self.store.examine()
        if not found.usable:
            return judged(found, None, patience)
        try:
            survey = self.store.run(LookAround())
        except StoreError as error:
            return judged(found.interrupted(error), None, patience)
        return judged(found, survey, patience)

    async def ahealth(self, *, longest_wait: float | timedelta = LONGEST_WAIT) -> Health:
        """The same, awaiting."""
        patience = micros(longest_wait, "longest_wait") / 1_000_000
        found = await asyncio.to_thread(self.store.examine)
        if not found.usable:
            return judged(found, None, patience)
        try:
            survey = await self.store.arun(LookAround())
        except StoreError as error:
            return judged(found.interrupted(error), None, patience)
        return judged(found, survey, patience)

    def wait(self, job: int | Job, timeout: float | timedelta | None = None) -> Job:
        """Wait until the job has ended (completed, failed or cancelled) and give it back.

        WaitTimeout after `timeout` (seconds or timedelta; None: as long as it takes). Raises
        NotHere in a handler, where it could wait for a job that waits for its own slot.
        """
        _not_in_handler()
        end = _end(timeout)
        bell, pause = self.store.watch(), 0.005
        try:
            while True:
                found = self.get(job)
                if found.is_final:
                    return found
                left = end - time.monotonic()
                if left <= 0:
                    raise _too_late(found, timeout)
                bell.wait(min(left, pause))
                pause = min(pause * 1.5, 0.1)
        finally:
            bell.close()

    async def await_(self, job: int | Job, timeout: float | timedelta | None = None) -> Job:
        """The same, awaiting."""
        _not_in_handler()
        end, pause = _end(timeout), 0.005
        while True:
            found = await self.aget(job)
            if found.is_final:
                return found
            left = end - time.monotonic()
            if left <= 0:
                raise _too_late(found, timeout)
            await asyncio.sleep(min(left, pause))
            pause = min(pause * 1.5, 0.1)

    # What operators do

    def cancel(self, job: int | Job) -> Job:
        """End a pending job at once; ask a running one to stop, which then ends `cancelled`.

        A job that completed or failed raises WrongStatus; cancelling twice changes nothing.
        """
        return self._run(Cancel(_id(job)))

    async def acancel(self, job: int | Job) -> Job:
        """The same, awaiting."""
        return await self._arun(Cancel(_id(job)))

    def retry(self, job: int | Job) -> Job:
        """Put a failed or cancelled job back, with no attempts used; let a waiting one run now.

        A job that is running or completed raises WrongStatus.
        """
        return self._run(Retry(_id(job)))

    async def aretry(self, job: int | Job) -> Job:
        """The same, awaiting."""
        return await self._arun(Retry(_id(job)))

    def retry_failed(self, *, type: str | None = None, queue: str | None = None) -> list[int]:
        """Put back every failed job (of a type, of a queue); their ids. In batches of 500."""
        ids: list[int] = []
        while True:
            batch = self._run(RetryFailed(type, queue, ids[-1] if ids else 0))
            if not batch:
                return ids
            ids += batch

    async def aretry_failed(
        self, *, type: str | None = None, queue: str | None = None
    ) -> list[int]:
        """The same, awaiting."""
        ids: list[int] = []
        while True:
            batch = await self._arun(RetryFailed(type, queue, ids[-1] if ids else 0))
            if not batch:
                return ids
            ids += batch

    def discard(self, job: int | Job) -> None:
        """Delete a job that has ended, with its history; its idempotency key is free again.

        A job that is pending or running raises WrongStatus: cancel it first.
        """
        return self._run(Discard(_id(job)))

    async def adiscard(self, job: int | Job) -> None:
        """The same, awaiting."""
        return await self._arun(Discard(_id(job)))

    def pause(self, queue: str | None = None, *, type: str | None = None) -> None:
        """Let nobody claim jobs of this queue, or of this type; running ones go on."""
        return self._run(_pause(queue, type))

    async def apause(self, queue: str | None = None, *, type: str | None = None) -> None:
        """The same, awaiting."""
        return await self._arun(_pause(queue, type))

    def resume(self, queue: str | None = None, *, type: str | None = None) -> None:
        """Let them be claimed again."""
        return self._run(_resume(queue, type))

    async def aresume(self, queue: str | None = None, *, type: str | None = None) -> None:
        """The same, awaiting."""
        return await self._arun(_resume(queue, type))

    def rescue(self) -> list[Rescued]:
        """Take back, now, up to 500 jobs whose lease is over: a failed attempt each.

        Workers do so by themselves, and look twice before they do.
        """
        return self._run(Rescue(seed=time.monotonic_ns()))

    async def arescue(self) -> list[Rescued]:
        """The same, awaiting."""
        return await self._arun(Rescue(seed=time.monotonic_ns()))

    # The four operations, for workers of one's own

    def claim(
        self,
        worker_id: str,
        *,
        queues: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        limit: int = 1,
        lease_for: float | timedelta = 60,
    ) -> list[Job]:
        """Up to `limit` due jobs, running and yours until `lease_for` from now.

        Highest priority first, then first in, first out. Each has a `lease` of its own, which
        complete, fail, release and extend ask for.
        """
        return self._run(self._claim(worker_id, queues, types, limit, lease_for)).jobs

    async def aclaim(
        self,
        worker_id: str,
        *,
        queues: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        limit: int = 1,
        lease_for: float | timedelta = 60,
    ) -> list[Job]:
        """The same, awaiting."""
        claim = self._claim(worker_id, queues, types, limit, lease_for)
        return (await self._arun(claim)).jobs

    def complete(self, job: Job, result: object = None) -> Job:
        """Record that a claimed job is done; LeaseLost when it is not ours any more.

        A result that JSON cannot hold is replaced by a note that says why; the job is completed.
        """
        return self._run(_settled(job, _completed(result)))

    async def acomplete(self, job: Job, result: object = None) -> Job:
        """The same, awaiting."""
        return await self._arun(_settled(job, _completed(result)))

    def fail(
        self,
        job: Job,
        error: str | BaseException,
        *,
        retry: bool = True,
        retry_in: float | timedelta | None = None,
    ) -> Job:
        """Record that an attempt failed; pending again while attempts remain, else failed.

        `retry=False` is final; so is an exception that the rules of the job's type give up on, if
        the type is known here. `retry_in` names the wait; without it the back-off of the type
        decides. LeaseLost when the job is not ours any more.
        """
        return self._run(self._failed(job, error, retry, retry_in))

    async def afail(
        self,
        job: Job,
        error: str | BaseException,
        *,
        retry: bool = True,
        retry_in: float | timedelta | None = None,
    ) -> Job:
        """The same, awaiting."""
        return await self._arun(self._failed(job, error, retry, retry_in))

    def release(self, job: Job) -> Job:
        """Hand a claimed job back unfinished, without using an attempt; LeaseLost otherwise."""
        return self._run(_settled(job, Released("handed back")))

    async def arelease(self, job: Job) -> Job:
        """The same, awaiting."""
        return await self._arun(_settled(job, Released("handed back")))

    def extend(self, job: Job, lease_for: float | timedelta = 60) -> Job:
        """Keep a claimed job until `lease_for` from now; LeaseLost when it is not ours any more."""
        return self._run(Extend(_held(job), _lease(lease_for)))

    async def aextend(self, job: Job, lease_for: float | timedelta = 60) -> Job:
        """The same, awaiting."""
        return await self._arun(Extend(_held(job), _lease(lease_for)))

    # For job types

    def enqueue_type(self, kind: AnyJobType, payload: dict[str, Any], options: Options) -> Job:
        return self._make(_enqueue_type(kind, payload, options))

    async def aenqueue_type(
        self, kind: AnyJobType, payload: dict[str, Any], options: Options
    ) -> Job:
        return await self._amake(_enqueue_type(kind, payload, options))

    def enqueue_many_type(
        self, kind: AnyJobType, payloads: Iterable[Mapping[str, Any]], options: Options
    ) -> list[Job]:
        return self._make_many(_enqueue_many_type(kind, payloads, options))

    async def aenqueue_many_type(
        self, kind: AnyJobType, payloads: Iterable[Mapping[str, Any]], options: Options
    ) -> list[Job]:
        return await self._amake_many(_enqueue_many_type(kind, payloads, options))

    def migrate(self) -> list[str]:
        """Bring the tables up to date; the names of the migrations that were applied."""
        return self.store.migrate()

    def close(self) -> None:
        """Close the connections; the next use opens them again."""
        self.store.close()

    def _run(self, op: Op[T]) -> T:
        run = scope.current(self.store)
        if run is None and (joined := self.store.joined()) is not None:
            # Not only what enqueues: everything else would wait for the lock of its own caller.
            with self.store.on(joined) as run_joined:
                value: T = run_joined(op)
                return value
        value = self.store.run(op) if run is None else run(op)
        return value

    async def _arun(self, op: Op[T]) -> T:
        run = scope.current(self.store)
        if run is None:
            return await self.store.arun(op)
        return await scope.awaited(run, op)

    def _make(self, op: Enqueue) -> Job:
        if self.tracing is None:
            return self._run(op)
        with self.tracing.enqueuing([op.job]) as enqueuing:
            job = self._run(replace(op, job=op.job._replace(trace=enqueuing.trace)))
            enqueuing.made([job])
            return job

    async def _amake(self, op: Enqueue) -> Job:
        if self.tracing is None:
            return await self._arun(op)
        with self.tracing.enqueuing([op.job]) as enqueuing:
            job = await self._arun(replace(op, job=op.job._replace(trace=enqueuing.trace)))
            enqueuing.made([job])
            return job

    def _make_many(self, op: EnqueueMany) -> list[Job]:
        if self.tracing is None or not op.jobs:
            return self._run(op)
        with self.tracing.enqueuing(op.jobs) as enqueuing:
            jobs = self._run(_traced(op, enqueuing.trace))
            enqueuing.made(jobs)
            return jobs

    async def _amake_many(self, op: EnqueueMany) -> list[Job]:
        if self.tracing is None or not op.jobs:
            return await self._arun(op)
        with self.tracing.enqueuing(op.jobs) as enqueuing:
            jobs = await self._arun(_traced(op, enqueuing.trace))
            enqueuing.made(jobs)
            return jobs

    def _enqueue(self, type: str, payload: Mapping[str, Any], options: Options) -> Enqueue:
        kind = self.types.get(names.check_type(type))
        if kind is not None:
            return _enqueue_type(kind, _dict(payload), options)
        job = new_job(type, payloads.encode_payload(payload), options)
        return Enqueue(job, None, on_existing(options))

    def _enqueue_many(
        self, type: str, many: Iterable[Mapping[str, Any]], options: Options
    ) -> EnqueueMany:
        kind = self.types.get(names.check_type(type))
        if kind is not None:
            return _enqueue_many_type(kind, many, options)
        _no_key_for_many(options)
        jobs = _each(many, lambda one: new_job(type, payloads.encode_payload(one), options))
        return EnqueueMany(jobs, {}, on_existing(options))

    def _claim(
        self,
        worker_id: str,
        queues: Sequence[str] | None,
        types: Sequence[str] | None,
        limit: int,
        lease_for: float | timedelta,
    ) -> Claim:
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_CLAIMED:
            raise InvalidOption(f"limit is a whole number from 1 to {MOST_CLAIMED:,}")
        return Claim(
            worker_id=names.check_worker_id(worker_id),
            queues=_names(queues, "queues", names.check_queue),
            types=_names(types, "types", names.check_type),
            policies=self._policies(),
            limit=limit,
            lease_for=_lease(lease_for),
        )

    def _failed(
        self,
        job: Job,
        error: str | BaseException,
        retry: bool,
        retry_in: float | timedelta | None,
    ) -> SettleOne:
        kind = self.types.get(job.type)
        if kind is not None and isinstance(error, BaseException) and retry_in is None:
            retry = retry and not kind.retry.final(error)
        return _settled(job, _failed(job, error, retry, retry_in))

    def _policies(self) -> dict[str, Unsaid]:
        return {kind.name: kind.unsaid for kind in self.types}

    def _secrets_of(self, run: Any) -> dict[str, tuple[str, ...]]:
        return self._secrets(run(Definitions()))

    def _secrets(self, published: Mapping[str, Definition]) -> dict[str, tuple[str, ...]]:
        secrets = {name: definition.secret for name, definition in published.items()}
        return secrets | {kind.name: kind.secret for kind in self.types}

    def _redacted(self, page: Page, secrets: Mapping[str, tuple[str, ...]]) -> Page:
        return Page([job.redacted(secrets.get(job.type, ())) for job in page], page.cursor)


def _traced(op: EnqueueMany, trace: str | None) -> EnqueueMany:
    return replace(op, jobs=[job._replace(trace=trace) for job in op.jobs])


def _enqueue_type(kind: AnyJobType, payload: dict[str, Any], options: Options) -> Enqueue:
    return Enqueue(kind.new_job(payload, options), kind.unsaid, on_existing(options))


def _enqueue_many_type(
    kind: AnyJobType, many: Iterable[Mapping[str, Any]], options: Options
) -> EnqueueMany:
    _no_key_for_many(options)
    jobs = _each(many, lambda one: kind.new_job(_dict(one), options))
    return EnqueueMany(jobs, {kind.name: kind.unsaid}, on_existing(options))


def _each(many: Iterable[Any], make: Callable[[Any], NewJob]) -> list[NewJob]:
    """A job of each payload; what is wrong with one is said with its place in the list."""
    jobs = []
    for place, payload in enumerate(many):
        try:
            jobs.append(make(payload))
        except InvalidPayload as error:
            raise InvalidPayload(f"$[{place}]{error.path[1:]}", error.reason) from None
        except InvalidArguments as error:
            raise InvalidArguments(f"payload {place} of the list: {error}") from None
    return jobs


def _no_key_for_many(options: Options) -> None:
    if options.get("idempotency_key") is not None:
        raise InvalidOption(
            "one idempotency key cannot name many jobs; give the job type a template "
            "(idempotency_key='{order_id}-points')"
        )


def _dict(payload: object) -> dict[str, Any]:
    # Whatever is no mapping is refused by the encoder, which says where.
    return dict(payload) if isinstance(payload, Mapping) else payload  # type: ignore[return-value]


def _id(job: int | Job) -> int:
    if isinstance(job, Job):
        return job.id
    if isinstance(job, bool) or not isinstance(job, int):
        raise InvalidOption(f"a job is named by its id, a whole number, not {type(job).__name__}")
    if not 0 < job <= BIGGEST_ID:
        raise JobNotFound(job)
    return job


def _listed(
    status: str | None,
    queue: str | None,
    type: str | None,
    worker_id: str | None,
    limit: int,
    cursor: str | None,
) -> ListJobs:
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MOST_LISTED:
        raise InvalidOption(f"limit is a whole number from 1 to {MOST_LISTED:,}")
    return ListJobs(
        status=None if status is None else _status(status),
        queue=None if queue is None else names.check_queue(queue),
        type=None if type is None else names.check_type(type),
        worker_id=None if worker_id is None else names.check_worker_id(worker_id),
        limit=limit,
        cursor=cursor,
    )


def _status(status: str) -> Status:
    try:
        return Status(status)
    except ValueError:
        known = ", ".join(Status)
        raise InvalidOption(f"there is no status {status!r}; there are {known}") from None


def _names(given: Sequence[str] | None, what: str, check: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str):
        raise InvalidOption(f"{what} is a list: [{given!r}]")
    return tuple(check(name) for name in given)


def _pause(queue: str | None, type: str | None) -> Pause:
    return Pause(*_queue_or_type(queue, type))


def _resume(queue: str | None, type: str | None) -> Resume:
    return Resume(*_queue_or_type(queue, type))


def _queue_or_type(queue: str | None, type: str | None) -> Any:
    if (queue is None) == (type is None):
        raise InvalidOption("name a queue, or type=…, and not both")
    if queue is not None:
        return "queue", names.check_queue(queue)
    return "type", names.check_type(type)


def _lease(lease_for: float | timedelta) -> int:
    length = micros(lease_for, "lease_for")
    if length < 1_000_000:
        raise InvalidOption("lease_for is at least 1 second")
    return length


def _held(job: Job) -> Held:
    if not isinstance(job, Job):
        raise InvalidOption("pass the Job that claim() gave, not its id: it holds the lease")
    if job.lease is None:
        raise LeaseLost(job.id, "this Job was read, not claimed, so it proves no ownership")
    return Held(job.id, job.lease)


def _settled(job: Job, outcome: Outcome) -> SettleOne:
    return SettleOne(Settlement(_held(job), settle(outcome)))


def _completed(result: object) -> Completed:
    encoded, _ = payloads.encode_result(result)
    return Completed(encoded)


def _failed(
    job: Job, error: str | BaseException, retry: bool, retry_in: float | timedelta | None
) -> Outcome:
    if isinstance(error, BaseException):
        failure = describe(error)
    else:
        failure = Failure(text(error, 2_000), "", "")
    if not retry:
        return Failed(failure)
    if retry_in is not None:
        return Retried(failure, micros(retry_in, "retry_in"))
    backoff = read_backoff(job._row[AT["backoff"]])
    return Retried(failure, round(backoff.wait(job.attempt, random.Random()) * 1_000_000))


def _not_in_handler() -> None:
    if running() is not None:
        raise NotHere(
            "wait() in a handler could wait for ever: the job it waits for may need the very "
            "slot that waits; enqueue a follow-up job instead"
        )


def _end(timeout: float | timedelta | None) -> float:
    if timeout is None:
        return float("inf")
    return time.monotonic() + micros(timeout, "timeout") / 1_000_000


def _too_late(job: Job, timeout: object) -> WaitTimeout:
    return WaitTimeout(f"job {job.id} is still {job.status} after {timeout} s; it goes on")
