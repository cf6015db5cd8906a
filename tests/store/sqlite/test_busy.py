"""Another process has the write lock: wait for it, and then say so (faults 127, 128)."""

import asyncio
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.processes import Processes
from yaoki import StoreBusy, StoreError, Yaoki


def hold(processes: Processes, path: Path, seconds: float) -> None:
    process = processes.python("-m", "tests.store.sqlite.hold_the_lock", str(path), str(seconds))
    process.wait_for_line("holding")


def test_an_enqueue_waits_for_another_process_that_writes(
    app: Yaoki, path: Path, processes: Processes
) -> None:
    hold(processes, path, 0.5)
    began = time.monotonic()

    job = app.enqueue("mail")

    assert time.monotonic() - began > 0.3
    assert app.get(job) == job


def test_reading_does_not_wait_for_a_writer(app: Yaoki, path: Path, processes: Processes) -> None:
    job = app.enqueue("mail")
    hold(processes, path, 60)

    began = time.monotonic()
    assert app.get(job) == job
    assert app.jobs() == [job]
    assert time.monotonic() - began < 2


@pytest.fixture
def impatient(app: Yaoki, path: Path) -> Yaoki:
    app.close()
    return Yaoki(f"sqlite:///{path}?busy_timeout=0.3")


def test_after_the_busy_timeout_the_caller_is_told_in_one_line(
    impatient: Yaoki, path: Path, processes: Processes
) -> None:
    impatient.enqueue("before")
    hold(processes, path, 60)

    began = time.monotonic()
    with pytest.raises(StoreBusy, match="try again") as busy:
        impatient.enqueue("mail")

    assert 0.2 < time.monotonic() - began < 3
    assert isinstance(busy.value, StoreError)
    assert "\n" not in str(busy.value)
    assert [job.type for job in impatient.jobs()] == ["before"]
    impatient.close()


def test_whoever_waited_in_vain_can_try_again(
    impatient: Yaoki, path: Path, processes: Processes
) -> None:
    impatient.enqueue("before")
    hold(processes, path, 0.8)
    with pytest.raises(StoreBusy):
        impatient.enqueue("mail")

    refused = 0
    while True:
        try:
            impatient.enqueue("mail")
            break
        except StoreBusy:
            refused += 1

    assert len(impatient.jobs()) == 2
    impatient.close()


def test_all_who_wait_together_are_told(impatient: Yaoki, path: Path, processes: Processes) -> None:
    """Also those whose writes were to be committed together, and the awaiting ones."""
    impatient.enqueue("before")
    hold(processes, path, 60)

    def attempt(number: int) -> str:
        try:
            if number % 2:
                asyncio.run(impatient.aenqueue("mail"))
            else:
                impatient.enqueue("mail")
        except StoreBusy:
            return "busy"
        return "made"

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(attempt, range(10)))

    assert answers == ["busy"] * 10
    assert len(impatient.jobs()) == 1
    impatient.close()


def test_a_first_use_while_another_process_writes_waits_as_well(
    app: Yaoki, path: Path, processes: Processes
) -> None:
    hold(processes, path, 0.5)

    other = Yaoki(f"sqlite:///{path}")

    assert other.enqueue("mail").id == 1
    other.close()


def test_a_transaction_of_a_handler_waits_and_is_told(
    impatient: Yaoki, path: Path, processes: Processes
) -> None:
    impatient.enqueue("before")
    hold(processes, path, 60)

    with pytest.raises(StoreBusy):
        impatient.store.transaction()

    with pytest.raises(StoreBusy):
        impatient.enqueue("mail")
    impatient.close()


def test_a_migration_waits_and_is_told(tmp_path: Path, processes: Processes) -> None:
    path = tmp_path / "new.db"
    with sqlite3.connect(path) as made:
        made.execute("PRAGMA journal_mode = WAL")
        made.execute("CREATE TABLE mine (x)")
    made.close()
    hold(processes, path, 60)
    app = Yaoki(f"sqlite:///{path}?busy_timeout=0.3")

    with pytest.raises(StoreBusy):
        app.enqueue("mail")

    app.close()


def test_writers_of_our_own_process_wait_for_each_other_and_not_for_the_timeout(
    impatient: Yaoki,
) -> None:
    """A transaction of a handler may last longer than others' patience for the file."""
    impatient.enqueue("before")
    shared = impatient.store.transaction()
    made: list[int] = []
    waiting = threading.Thread(target=lambda: made.append(impatient.enqueue("mail").id))
    waiting.start()
    waiting.join(0.6)
    assert made == []

    shared.commit()

    waiting.join(10)
    assert made == [2]
    impatient.close()
