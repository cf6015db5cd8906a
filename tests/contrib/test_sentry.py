"""The recipe of the guide's page on health, with Sentry's own transport for tests."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import page

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "health.md"

BEGIN = """
import asyncio, json, logging, sys, threading
import sentry_sdk
from sentry_sdk.transport import Transport
from yaoki import *

class ToFile(Transport):
    def capture_envelope(self, envelope):
        for item in envelope.items:
            if item.type == "event":
                with open("events.jsonl", "a") as told:
                    told.write(json.dumps(item.payload.json, default=str) + "\\n")

sentry_sdk.init(dsn="https://key@sentry.invalid/1", transport=ToFile)
logging.basicConfig()
app = Yaoki("sqlite:///jobs.db?durability=normal")
NOW = dict(retry=RetryPolicy(max_attempts=2, backoff=fixed(0)))
ONCE = dict(retry=RetryPolicy(max_attempts=1))
"""

END = """
app.run_worker(until_empty=True, max_wait=5, concurrency=1)
"""

Events = list[dict[str, Any]]
Report = Callable[[str], Events]


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """Runs a program with the recipe in it to its end; the events that Sentry would get."""
    [recipe] = [
        block.text for block in page.blocks(GUIDE.read_text("utf-8")) if "acall" in block.text
    ]

    def run(program: str) -> Events:
        (tmp_path / "program.py").write_text(BEGIN + recipe + program + END, "utf-8")
        ran = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            capture_output=True,
            encoding="utf-8",
            timeout=60,
        )
        assert ran.returncode == 0, ran.stderr
        told = tmp_path / "events.jsonl"
        return [json.loads(line) for line in told.read_text().splitlines()] if told.exists() else []

    return run


def brief(event: dict[str, Any]) -> tuple[Any, ...]:
    """What it is about: the error, its job, and how it ended."""
    error = event["exception"]["values"][-1] if "exception" in event else event["logentry"]
    tags = event.get("tags", {})
    told = error.get("value", error.get("message"))
    return (told, tags.get("job.type"), tags.get("job.attempt"), tags.get("job.outcome"))


def test_each_failed_attempt_is_one_event_and_the_last_one_is_told_apart(report: Report) -> None:
    events = report(
        """
@app.job("plain", **NOW)
def plain():
    raise ValueError("plain failed")

@app.job("async", **NOW)
async def coroutine():
    await asyncio.sleep(0)
    raise ValueError("async failed")

plain.enqueue()
coroutine.enqueue()
"""
    )

    assert sorted(map(brief, events)) == [
        ("async failed", "async", 1, "retried"),
        ("async failed", "async", 2, "failed"),
        ("plain failed", "plain", 1, "retried"),
        ("plain failed", "plain", 2, "failed"),
    ]
    assert {event["tags"]["job.id"] for event in events} == {1, 2}
    levels = {event["tags"]["job.outcome"]: event["level"] for event in events}
    assert levels == {"retried": "warning", "failed": "error"}
    frames = events[0]["exception"]["values"][-1]["stacktrace"]["frames"]
    assert frames[-1]["function"] in ("plain", "coroutine")


def test_what_is_no_failure_is_no_event(report: Report) -> None:
    events = report(
        """
@app.job("ends", **NOW)
def ends(ctx: JobContext, how: str):
    if how == "snoozes" and not ctx.job.snoozes:
        raise Snooze(0)
    if how == "cancels":
        raise Cancel
    if how == "gives up":
        raise GiveUp("enough")
    if how == "asks for time" and ctx.attempt == 1:
        raise RetryAfter(0, "slow down")

for how in ("works", "snoozes", "cancels", "gives up", "asks for time"):
    ends.enqueue(how=how)
"""
    )

    assert sorted(map(brief, events)) == [
        ("enough", "ends", 1, "failed"),
        ("slow down", "ends", 1, "retried"),
    ]


def test_a_time_limit_is_an_event(report: Report) -> None:
    events = report(
        """
@app.job("slow", timeout=0.1, **ONCE)
async def slow():
    await asyncio.sleep(30)

@app.job("slow plain", timeout=0.1, **ONCE)
def slow_plain(ctx: JobContext):
    ctx.wait_stopping(30)

slow.enqueue()
slow_plain.enqueue()
"""
    )

    assert {(event[0], event[3]) for event in map(brief, events)} == {
        ("slow ran longer than its time limit", "failed"),
        ("slow plain ran longer than its time limit", "failed"),
    }
    assert len(events) == 2


def test_nothing_that_a_job_sets_is_seen_by_the_next(report: Report) -> None:
    events = report(
        """
@app.job("tags", **ONCE)
def tags(number: int):
    if number % 2:
        sentry_sdk.set_tag("customer", number)
        sentry_sdk.add_breadcrumb(message=f"crumb {number}")
    raise ValueError(f"job {number}")

@app.job("tags async", **ONCE)
async def tags_async(number: int):
    if number % 2:
        sentry_sdk.set_tag("customer", number)
        sentry_sdk.add_breadcrumb(message=f"crumb {number}")
    raise ValueError(f"job {number}")

for number in range(1, 5):
    tags.enqueue(number=number)
    tags_async.enqueue(number=number + 10)
"""
    )

    assert len(events) == 8
    for event in events:
        number = int(brief(event)[0].removeprefix("job "))
        crumbs = [crumb["message"] for crumb in event.get("breadcrumbs", {}).get("values", [])]
        own = [crumb for crumb in crumbs if crumb.startswith("crumb")]
        assert own == ([f"crumb {number}"] if number % 2 else [])
        assert event["tags"].get("customer") == (number if number % 2 else None)


def test_a_thread_of_a_handler_reports_with_the_tags_of_its_job_and_health_by_itself(
    report: Report,
) -> None:
    events = report(
        """
@app.job("begins a thread", **ONCE)
def begins_a_thread():
    def fail():
        raise ValueError("in a thread")

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()

begins_a_thread.enqueue()
logging.getLogger("yaoki.health").error("worker w1 is not well")
"""
    )

    assert [(told, job) for told, job, _, _ in map(brief, events)] == [
        ("worker w1 is not well", None),
        ("in a thread", "begins a thread"),
    ]
