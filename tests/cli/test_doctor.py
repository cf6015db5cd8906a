"""Whether all is well, in words, in JSON, and as an exit code."""

import json
import os
import re

from tests.cli.golden import Golden
from tests.cli.program import Program, Ran, line_with, on_both
from tests.support.databases import locked
from yaoki import WorkerHealth, Yaoki
from yaoki.core.health import LoopHealth
from yaoki.store.ops.upkeep import KeepAlive, WorkerRow

CHANGING = (
    (r"SQLite \d+\.\d+\.\d+", "SQLite VERSION"),
    (r"[\d.,]+ MB", "SIZE MB"),
    (r"schema \d+, up", "schema N, up"),
    (r"\b\d+ (?:d|h|min)(?: \d+ (?:h|min|s))?\b", "SO LONG"),
    (r'"waits": [\d.]+', '"waits": SECONDS'),
)
"""What differs from one day, and one machine, to the next."""


def told(ran: Ran) -> str:
    """What was said, without what changes; the note on a flaw that not every SQLite has."""
    text = ran.told()
    for pattern, word in CHANGING:
        text = re.sub(pattern, word, text)
    text = re.sub(r"(?m)^(?:ok     |warning)(  wal-flaw +).*$", r"either \1…", text)
    # One more or less, by the same flaw.
    return re.sub(r"\d+ warnings?$", "N warnings", text, flags=re.MULTILINE)


def codes(ran: Ran, level: str) -> set[str]:
    checks = json.loads(ran.out)["checks"]
    return {check["code"] for check in checks if check["level"] == level}


def test_what_is_wrong_is_said_with_what_to_do(still: Program, golden: Golden) -> None:
    ran = still("doctor")

    golden("doctor", told(ran))


@on_both
def test_the_same_is_said_as_json(still: Program) -> None:
    ran = still("doctor", "--json")

    assert ran.code == 1
    assert codes(ran, "problem") == {"leases", "unknown-types"}
    assert {"paused", "silent-workers", "waiting"} <= codes(ran, "warning")
    assert {"database", "tables", "workers", "unserved-queues"} <= codes(ran, "ok")
    waiting = {job["queue"]: job["type"] for job in json.loads(ran.out)["ready"]}
    assert waiting == {"default": "請求書を送る", "mail": "mail", "slow": "report"}


@on_both
def test_a_queue_that_works_has_the_exit_code_0(yaoki: Program) -> None:
    worker = yaoki.start("--app", "shop:app", "worker")
    line_with(worker.stderr, "is ready")

    ran = yaoki("doctor", "--json")

    assert (ran.code, codes(ran, "problem")) == (0, set())
    assert {"workers", "cannot-claim", "leases"} <= codes(ran, "ok")


def test_a_worker_in_trouble_is_shown_by_doctor_and_among_the_workers(
    yaoki: Program, app: Yaoki
) -> None:
    said = WorkerHealth((LoopHealth("exchange", failures=3, error="the disk is full\x1b[2J"),))
    row = WorkerRow("w1", "h", 1, "0.1.0", None, '["mail"]', 4, "working", 60_000_000)
    app.store.run(KeepAlive(row._replace(health=said.to_json()), []))

    doctor, workers = yaoki("doctor"), yaoki("workers")
    as_json = json.loads(yaoki("workers", "--json").out)["workers"][0]

    assert doctor.code == 1
    assert "problem  cannot-claim" in doctor.out
    assert r"exchange has failed 3 times in a row: the disk is full\x1b[2J" in doctor.out
    assert "degraded" in workers.out
    assert "it cannot claim jobs: its loop exchange has failed" in workers.out
    assert (as_json["health"]["ok"], as_json["health"]["can_claim"]) == (False, False)


def test_a_database_that_is_not_there_is_not_made(yaoki: Program, golden: Golden) -> None:
    before = sorted(os.listdir(yaoki.folder))

    ran = yaoki("doctor")

    golden("doctor-no-file", told(ran))
    assert sorted(os.listdir(yaoki.folder)) == before


def test_a_server_that_is_not_there_is_a_problem_and_no_password_is_shown(
    yaoki: Program, golden: Golden
) -> None:
    ran = yaoki("doctor", "--url", "postgresql://me:secret@127.0.0.1:1/shop")

    golden("doctor-no-server", told(ran))
    assert "secret" not in ran.out + ran.err


def test_a_worker_that_cannot_write_says_so_in_its_log_and_when_it_can_again(
    yaoki: Program, app: Yaoki
) -> None:
    url = f"{yaoki.url}?busy_timeout=0.3"
    worker = yaoki.start(
        *("--app", "shop:app", "--url", url, "worker", "--log", "json", "--lease-for", "3s")
    )
    line_with(worker.stderr, "is ready")
    with locked(app.store):
        degraded = json.loads(line_with(worker.stderr, '"logger": "yaoki.health"'))
    recovered = json.loads(line_with(worker.stderr, '"logger": "yaoki.health"'))

    assert (degraded["event"], recovered["event"]) == ("degraded", "recovered")
    assert degraded["level"] == "error"
    assert "its loop keeper has failed" in degraded["message"]
    assert degraded["checks"][0]["code"] == "worker-trouble"
    assert recovered["worker"] == degraded["worker"] == app.workers()[0].worker_id
