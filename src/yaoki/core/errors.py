"""Everything that yaoki raises on purpose.

YaokiError
├── InvalidOption (ValueError)         a name, number, time or policy that cannot be
├── InvalidPayload (ValueError)        arguments that cannot be stored; says where
├── InvalidArguments (TypeError)       arguments that do not fit the handler's signature
├── JobNotFound (LookupError)          no job has this id
├── WrongStatus                        the job's status does not allow this
├── KeyConflict                        the idempotency key belongs to a job of another type
├── DuplicateJob                       the key is known and on_existing="raise" was said
├── LeaseLost                          the job is not (or no longer) held under this lease
├── WaitTimeout (TimeoutError)         the job had not ended when the patience of wait() had
├── TimeLimitExceeded (TimeoutError)   an attempt ran longer than its timeout
├── ProcessDied                        the process of an isolated handler ended before it did
├── HookFailed                         an on_startup function failed, so nothing was started
├── NotInTransaction                   once() outside a transaction
├── TransactionLost                    a ctx.transaction() that was interrupted from outside
├── NotHere                            asked for in a place where it would block or deceive
├── WrongConnection                    a connection that app.on() or once() cannot use
├── StoreError                         the database did not do it
│   ├── StoreBusy                      locked by somebody else for too long; try again
│   ├── StoreUnavailable               cannot be opened, read or written
│   ├── UnsupportedStore               a database that yaoki cannot be safe on
│   └── SchemaTooNew                   made by a newer yaoki
└── Ending                             raised by a handler to end its attempt
    ├── GiveUp                         failed for good, no retry
    ├── RetryAfter                     failed; the wait is named
    ├── Snooze                         not now; does not use up an attempt
    └── Cancel                         no longer wanted
"""

from datetime import timedelta


class YaokiError(Exception):
    """The base of every exception that yaoki raises on purpose."""


class InvalidOption(YaokiError, ValueError):
    """A name, number, time or policy that cannot be used; the message says what can."""


class InvalidPayload(YaokiError, ValueError):
    """A payload that both stores cannot keep exactly; `path` says where it is wrong."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"payload at {path}: {reason}")
        self.path, self.reason = path, reason


class InvalidArguments(YaokiError, TypeError):
    """Arguments that do not fit the signature of the job type's handler."""


class JobNotFound(YaokiError, LookupError):
    """No job has this id: it never existed, was discarded, or was pruned."""

    def __init__(self, job_id: int) -> None:
        super().__init__(f"there is no job {job_id}: it was discarded or pruned, or never existed")
        self.job_id = job_id


class WrongStatus(YaokiError):
    """The job's status does not allow what was asked."""

    def __init__(self, job_id: int, status: str, message: str) -> None:
        super().__init__(f"job {job_id} is {status}: {message}")
        self.job_id, self.status = job_id, status


class KeyConflict(YaokiError):
    """The idempotency key belongs to a job of another type."""

    def __init__(self, key: str, wanted: str, existing_type: str, existing_id: int) -> None:
        super().__init__(
            f"idempotency key {key!r} belongs to job {existing_id} of type {existing_type!r}, "
            f"so no {wanted!r} was made; put the type's name into the key"
        )
        self.key, self.existing_id, self.existing_type = key, existing_id, existing_type


class DuplicateJob(YaokiError):
    """A job with this idempotency key exists, and the caller asked to be told so."""

    def __init__(self, key: str, existing_id: int, status: str) -> None:
        super().__init__(f"idempotency key {key!r} belongs to job {existing_id} ({status})")
        self.key, self.existing_id, self.status = key, existing_id, status


class LeaseLost(YaokiError):
    """The job is not, or no longer, held under this lease; nothing was changed."""

    def __init__(self, job_id: int, why: str = "another worker may have it now") -> None:
        super().__init__(f"job {job_id} is not held under this lease any more: {why}")
        self.job_id = job_id


class WaitTimeout(YaokiError, TimeoutError):
    """The job had not ended within the time that wait() was given; it goes on."""


class TimeLimitExceeded(YaokiError, TimeoutError):
    """An attempt ran longer than the timeout of its job type; retried unless a rule says no."""


class ProcessDied(YaokiError):
    """The process of an isolated handler crashed, exited or was killed before the handler ended.

    Retried unless a rule says no.
    """


class HookFailed(YaokiError):
    """An on_startup function failed, so the worker did not start; the message says which."""


class NotInTransaction(YaokiError):
    """once() was called outside a transaction, where it could not protect anything."""


class TransactionLost(YaokiError):
    """ctx.transaction() held the write lock for too long and was rolled back from outside."""


class NotHere(YaokiError):
    """Asked for in a place where it would block for ever or deceive; the message says where to."""


class WrongConnection(YaokiError):
    """A connection to another database, or of a kind that cannot be used safely."""


class StoreError(YaokiError):
    """The database did not do it; nothing was changed unless the message says otherwise."""


class StoreBusy(StoreError):
    """Somebody else held the write lock for longer than the busy timeout; try again."""


class StoreUnavailable(StoreError):
    """The database cannot be opened, read or written."""


class UnsupportedStore(StoreError):
    """A database, file system or URL on which yaoki cannot keep its promises."""


class SchemaTooNew(StoreError):
    """The tables were made by a newer yaoki than this one."""


class Ending(YaokiError):
    """The base of what a handler raises to say how its attempt ends.

    What the classes below it have are defaults for subclasses with an __init__ of their own.
    """


class GiveUp(Ending):
    """Fail for good: no retry, whatever the policy says."""

    reason = "gave up"

    def __init__(self, reason: str = "gave up") -> None:
        super().__init__(reason)
        self.reason = reason


class RetryAfter(Ending):
    """Fail this attempt, and name the wait (an HTTP Retry-After); counts as an attempt.

    The next attempt never starts earlier than `wait` (seconds or timedelta) from now.
    """

    wait: float | timedelta = 10
    reason = "asked to be retried"

    def __init__(self, wait: float | timedelta, reason: str = "asked to be retried") -> None:
        super().__init__(reason)
        self.wait, self.reason = wait, reason


class Snooze(Ending):
    """Not now: run again after `wait` (seconds or timedelta). Uses up no attempt."""

    wait: float | timedelta = 10
    reason = "snoozed"

    def __init__(self, wait: float | timedelta, reason: str = "snoozed") -> None:
        super().__init__(reason)
        self.wait, self.reason = wait, reason


class Cancel(Ending):
    """The job is no longer wanted: it ends `cancelled`, is not retried, and is no failure."""

    reason = "cancelled by its handler"

    def __init__(self, reason: str = "cancelled by its handler") -> None:
        super().__init__(reason)
        self.reason = reason
