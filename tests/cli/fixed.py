"""A database in which every situation of a job is found, at an instant that stands still."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from tests.support.dialects import store_with_clock
from yaoki import Yaoki
from yaoki.core.definition import Definition
from yaoki.core.job import Job
from yaoki.store.ops.settling import Held, Report
from yaoki.store.ops.upkeep import KeepAlive, WorkerRow
from yaoki.store.ops.workers import Publish

SECOND = 1_000_000
YEARS = 100 * 365 * 86_400 * SECOND


class Clock:
    """The time, in microseconds; moved by hand."""

    def __init__(self, now: str) -> None:
        self.now = round(datetime.fromisoformat(now).timestamp()) * SECOND

    def __call__(self) -> int:
        return self.now

    def on(self, seconds: float) -> None:
        self.now += round(seconds * SECOND)


def fill(url: str, now: str) -> None:
    """Make the database as it is at `now`."""
    clock = Clock(now)
    app = Yaoki(url)
    app.store = store_with_clock(url, clock)
    present = clock.now
    clock.on(-3_600)
    _announce(app, "web-1:101:aaaa", "working", YEARS, ["mail", "import", "resize", "report"])
    _announce(app, "web-2:202:bbbb", "working", 60 * SECOND, ["mail"], queues=["mail"])
    app.store.run(Publish([Definition("mail", queue="mail", secret=("card",))], "web-1:101:aaaa"))
    _jobs(app, clock, present)
    app.close()


def _jobs(app: Yaoki, clock: Clock, present: int) -> None:
    app.enqueue("mail", {"to": "a@example.com", "card": "4111111111111111"}, tags=["vip", "新規"])
    _completed(app, clock)
    _failed(app, clock)
    cancelled = app.enqueue("report", {"month": "2025-12"}, idempotency_key="report-2025-12")
    app.cancel(cancelled)
    _being_cancelled(app, clock)
    _running(app, clock)
    _retrying(app, clock, present)
    clock.now = present - 5 * SECOND
    app.enqueue("mail", {"to": "later"}, delay=305)
    app.enqueue("report", {"month": "2026-01"}, queue="slow", priority=15)
    app.pause("slow")
    app.pause(type="resize")
    app.enqueue("請求書を送る", {"宛先": "山田太郎", "金額": 10**30}, priority="critical")


def _completed(app: Yaoki, clock: Clock) -> None:
    made = app.enqueue("import", {"orders": 3})
    for error in ("ConnectionError: refused", "TimeoutError: timed out"):
        [job] = app.claim("web-1:101:aaaa", types=["import"])
        clock.on(2.5)
        app.fail(job, error, retry_in=0)
    [job] = app.claim("web-1:101:aaaa", types=["import"])
    clock.on(60)
    assert job.id == made.id
    app.complete(job, {"imported": 3})


def _failed(app: Yaoki, clock: Clock) -> None:
    app.enqueue("resize", {"file": "logo.png"}, max_attempts=1)
    [job] = app.claim("web-1:101:aaaa", types=["resize"])
    clock.on(0.25)
    app.fail(job, ValueError("not an image\r\n\x1b[2J\u2028it begins with <html>"), retry=False)


def _being_cancelled(app: Yaoki, clock: Clock) -> None:
    made = app.enqueue("import", {"orders": 9})
    app.claim("web-1:101:aaaa", types=["import"])
    clock.on(30)
    app.cancel(made)


def _running(app: Yaoki, clock: Clock) -> None:
    app.enqueue("report", {"month": "2025-11"}, timeout=None)
    [job] = app.claim("own-worker", types=["report"], lease_for=300)
    clock.on(10)
    progress = msgspec.json.encode({"done": 3.0, "total": 8.0, "message": "summing up"}).decode()
    app.store.run(Report(Held(job.id, job.lease or 0), progress))


def _retrying(app: Yaoki, clock: Clock, present: int) -> None:
    app.enqueue("resize", {"file": "photo.jpg"})
    [job] = app.claim("web-2:202:bbbb", types=["resize"])
    clock.on(1)
    app.fail(job, "OSError: disk full", retry_in=(present - clock.now) / SECOND + 10)


def _announce(
    app: Yaoki,
    worker_id: str,
    state: str,
    lease_for: int,
    types: Sequence[str],
    queues: Sequence[str] | None = None,
) -> None:
    row = WorkerRow(
        worker_id,
        worker_id.partition(":")[0],
        int(worker_id.split(":")[1]),
        "0.1.0",
        None if queues is None else msgspec.json.encode(queues).decode(),
        msgspec.json.encode(types).decode(),
        10,
        state,
        lease_for,
    )
    app.store.run(KeepAlive(row, []))


def job_of(url: str, kind: str, status: str) -> Job:
    """The job of this type and status."""
    app = Yaoki(url)
    [job] = app.jobs(type=kind, status=status)
    app.close()
    return job
