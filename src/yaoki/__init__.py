"""yaoki: a durable background job queue for Python."""

from yaoki.app import Yaoki
from yaoki.client import Client
from yaoki.core.backoff import by_function, exponential, fixed, linear, waits
from yaoki.core.errors import (
    Cancel,
    DuplicateJob,
    GiveUp,
    InvalidArguments,
    InvalidOption,
    InvalidPayload,
    JobNotFound,
    KeyConflict,
    LeaseLost,
    NotHere,
    NotInTransaction,
    RetryAfter,
    SchemaTooNew,
    Snooze,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    TimeLimitExceeded,
    TransactionLost,
    UnsupportedStore,
    WaitTimeout,
    WrongConnection,
    WrongStatus,
    YaokiError,
)
from yaoki.core.job import Attempt, Job, Progress
from yaoki.core.retry import RetryPolicy
from yaoki.core.states import Status
from yaoki.core.transient import transient
from yaoki.jobtypes import JobContext, JobSet, JobType
from yaoki.jobtypes.once import aonce, once
from yaoki.store.ops.listing import Page
from yaoki.store.ops.queues import Queue
from yaoki.store.ops.workers import Worker

__all__ = [
    "Attempt",
    "Cancel",
    "Client",
    "DuplicateJob",
    "GiveUp",
    "InvalidArguments",
    "InvalidOption",
    "InvalidPayload",
    "Job",
    "JobContext",
    "JobNotFound",
    "JobSet",
    "JobType",
    "KeyConflict",
    "LeaseLost",
    "NotHere",
    "NotInTransaction",
    "Page",
    "Progress",
    "Queue",
    "RetryAfter",
    "RetryPolicy",
    "SchemaTooNew",
    "Snooze",
    "Status",
    "StoreBusy",
    "StoreError",
    "StoreUnavailable",
    "TimeLimitExceeded",
    "TransactionLost",
    "UnsupportedStore",
    "WaitTimeout",
    "Worker",
    "WrongConnection",
    "WrongStatus",
    "Yaoki",
    "YaokiError",
    "aonce",
    "by_function",
    "exponential",
    "fixed",
    "linear",
    "once",
    "transient",
    "waits",
]
