"""yaoki: a durable background job queue for Python."""

from yaoki.app import Yaoki
from yaoki.client import Client
from yaoki.core.backoff import by_function, exponential, fixed, linear, waits
from yaoki.core.errors import (
    Cancel,
    DuplicateJob,
    GiveUp,
    HookFailed,
    InvalidArguments,
    InvalidOption,
    InvalidPayload,
    JobNotFound,
    KeyConflict,
    LeaseLost,
    NotHere,
    NotInTransaction,
    ProcessDied,
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
from yaoki.core.health import Check, LoopHealth, WorkerHealth
from yaoki.core.job import Attempt, Job, Progress
from yaoki.core.log_lines import LogLine
from yaoki.core.retry import RetryPolicy
from yaoki.core.states import Status
from yaoki.core.transient import transient
from yaoki.health import Health, ReadyJob
from yaoki.jobtypes import JobContext, JobSet, JobType
from yaoki.jobtypes.log_handler import JobLogHandler
from yaoki.jobtypes.once import aonce, once
from yaoki.store.ops.listing import Page
from yaoki.store.ops.queues import Queue
from yaoki.store.ops.workers import Worker

__all__ = [
    "Attempt",
    "Cancel",
    "Check",
    "Client",
    "DuplicateJob",
    "GiveUp",
    "Health",
    "HookFailed",
    "InvalidArguments",
    "InvalidOption",
    "InvalidPayload",
    "Job",
    "JobContext",
    "JobLogHandler",
    "JobNotFound",
    "JobSet",
    "JobType",
    "KeyConflict",
    "LeaseLost",
    "LogLine",
    "LoopHealth",
    "NotHere",
    "NotInTransaction",
    "Page",
    "ProcessDied",
    "Progress",
    "Queue",
    "ReadyJob",
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
    "WorkerHealth",
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
