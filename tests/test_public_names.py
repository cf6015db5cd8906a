"""What users may rely on: the names, and that each verb has a blocking and an awaiting form."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import yaoki
from yaoki import Client, JobContext, JobType, Yaoki, YaokiError
from yaoki.core import errors
from yaoki.jobtypes.job_type import Prepared

NAMES = [
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

VERBS = [
    "cancel",
    "claim",
    "complete",
    "definitions",
    "discard",
    "enqueue",
    "enqueue_many",
    "extend",
    "fail",
    "get",
    "health",
    "jobs",
    "logs",
    "pause",
    "paused",
    "queues",
    "release",
    "rescue",
    "resume",
    "retry",
    "retry_failed",
    "workers",
]

TWINS = {f"a{verb}": verb for verb in VERBS} | {"await_": "wait"}
"""The awaiting name, and the blocking one."""

SYNC_ONLY = {"close", "migrate", "on", "url"}
"""What is not asked of the database by a program that awaits."""


def test_the_public_names_are_these() -> None:
    """Adding one is a decision; taking one away breaks somebody's program."""
    assert sorted(yaoki.__all__) == sorted(NAMES)
    for name in NAMES:
        assert getattr(yaoki, name).__doc__ or name == "transient"


def test_every_error_that_a_user_may_catch_is_public() -> None:
    raised = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, YaokiError)
    }

    assert raised - set(NAMES) <= {"Ending"}


def public_methods(cls: type) -> set[str]:
    return {name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name))}


def test_every_verb_of_the_client_is_known_here() -> None:
    """So that a new one cannot be forgotten below."""
    for_job_types = {"enqueue_type", "enqueue_many_type", "aenqueue_type", "aenqueue_many_type"}

    assert public_methods(Client) == {
        *VERBS,
        *TWINS,
        *TWINS.values(),
        *SYNC_ONLY,
        *for_job_types,
    } - {"url"}


@pytest.mark.parametrize("name", TWINS)
@pytest.mark.parametrize("owner", [Client, Yaoki])
def test_a_verb_and_its_awaiting_twin_take_the_same(owner: type, name: str) -> None:
    blocking, awaiting = getattr(owner, TWINS[name]), getattr(owner, name)

    assert inspect.iscoroutinefunction(awaiting)
    assert not inspect.iscoroutinefunction(blocking)
    assert inspect.signature(awaiting) == inspect.signature(blocking)
    assert blocking.__doc__
    assert awaiting.__doc__


@pytest.mark.parametrize("owner", [JobType, Prepared])
@pytest.mark.parametrize("name", ["enqueue", "enqueue_many"])
def test_a_job_type_can_be_enqueued_both_ways(owner: type, name: str) -> None:
    blocking, awaiting = getattr(owner, name), getattr(owner, f"a{name}")

    assert inspect.iscoroutinefunction(awaiting)
    assert inspect.signature(awaiting) == inspect.signature(blocking)


@pytest.mark.parametrize("name", ["progress", "transaction"])
def test_a_context_can_be_used_both_ways(name: str) -> None:
    blocking, awaiting = getattr(JobContext, name), getattr(JobContext, f"a{name}")

    assert list(inspect.signature(awaiting).parameters) == list(
        inspect.signature(blocking).parameters
    )


def test_a_job_shows_what_the_design_names() -> None:
    fields = [
        "id",
        "type",
        "payload",
        "queue",
        "priority",
        "status",
        "attempt",
        "max_attempts",
        "retry_count",
        "max_retries",
        "run_at",
        "idempotency_key",
        "worker_id",
        "claimed_at",
        "lease",
        "lease_expires_at",
        "error",
        "errors",
        "result",
        "progress",
        "created_at",
        "updated_at",
        "finished_at",
        "revision",
        "tags",
        "created",
    ]

    for field in fields:
        assert hasattr(yaoki.Job, field), field


def test_importing_yaoki_imports_nothing_that_is_optional() -> None:
    """No framework, no driver of another database, no web server: each only when it is used."""
    heavy = {
        "asyncpg",
        "django",
        "fastapi",
        "opentelemetry",
        "psycopg",
        "psycopg2",
        "rich",
        "sentry_sdk",
        "sqlalchemy",
        "starlette",
        "uvicorn",
    }
    program = "import sys, yaoki; print(*sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )

    assert set(said.stdout.split()) & heavy == set()


def test_the_package_says_that_it_has_types() -> None:
    assert (Path(yaoki.__file__).parent / "py.typed").is_file()


def test_errors_of_ours_are_one_line(app: Any) -> None:
    with pytest.raises(YaokiError) as missing:
        app.get(1)

    assert "\n" not in str(missing.value)
