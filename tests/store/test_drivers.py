"""One description of an operation, two ways to run it."""

import asyncio
from pathlib import Path

import pytest

from yaoki.core.errors import KeyConflict
from yaoki.core.said import NewJob
from yaoki.store.base import drive, drive_async
from yaoki.store.op import Answer, Statement
from yaoki.store.ops.jobs import Enqueue, Get
from yaoki.store.sqlite.connection import connect, executor, host_clock
from yaoki.store.sqlite.migrate import migrate
from yaoki.store.sqlite.place import parse


def test_the_awaiting_driver_does_what_the_blocking_one_does(tmp_path: Path) -> None:
    place = parse(f"sqlite:///{tmp_path}/jobs.db")
    connection = connect(tmp_path / "jobs.db", place)
    migrate(connection, 1.0)
    execute = executor(connection, host_clock)

    async def awaited(statement: Statement) -> Answer:
        await asyncio.sleep(0)
        return execute(statement)

    made = asyncio.run(drive_async(Enqueue(NewJob("a", "{}", idempotency_key="k")), awaited))

    assert drive(Get(made.id), execute) == made
    assert asyncio.run(drive_async(Get(made.id), awaited)) == made
    with pytest.raises(KeyConflict):
        asyncio.run(drive_async(Enqueue(NewJob("b", "{}", idempotency_key="k")), awaited))
    connection.close()


def test_an_operation_can_be_run_again(tmp_path: Path) -> None:
    """It is a description, not a generator that is used up: so a whole transaction is retried."""
    place = parse(f"sqlite:///{tmp_path}/jobs.db")
    connection = connect(tmp_path / "jobs.db", place)
    migrate(connection, 1.0)
    enqueue = Enqueue(NewJob("a", "{}"))

    first = drive(enqueue, executor(connection, host_clock))
    second = drive(enqueue, executor(connection, host_clock))

    assert second.id == first.id + 1
    connection.close()
