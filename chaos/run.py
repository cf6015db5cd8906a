"""One run: workers, producers and troubles on one database, and the evidence afterwards."""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from chaos import ledger
from chaos.databases import Database, open_database
from chaos.fleet import ROOT, Fleet
from chaos.jobs import build
from chaos.plan import GRACE, LEASE, Plan
from chaos.producers import Producers
from chaos.storm import Storm
from chaos.troubles import Trouble, Troubles
from chaos.verdict import Evidence, Move, Row, Verdict, judge

JOBS = "SELECT id, type, payload, status, attempt, lease, result, error FROM yaoki.jobs"

UNFINISHED = """
SELECT count(*), coalesce(sum(lease), 0) FROM yaoki.jobs WHERE status IN ('pending', 'running')
"""
"""Not the revision: a lease that is renewed for ever is no progress."""

LOGGED = "SELECT DISTINCT job_id, lease FROM yaoki.logs"

MOVES = "SELECT job, old, new, held, lease FROM chaos_moves ORDER BY number"

PATIENCE = 40.0
"""Seconds without any progress after which what is left is stuck."""


@dataclass(frozen=True)
class How:
    """The workers: which app they serve, and in how many processes each."""

    app: str = "chaos.app:app"
    processes: int = 2


def run(store: str, plan: Plan, how: How, folder: Path, say: Callable[[str], None]) -> Verdict:
    """Everything, in this folder; its logs and its ledger stay there."""
    books = folder / "ledger"
    books.mkdir()
    with open_database(store, folder) as database:
        database.prepare()
        env = {
            "CHAOS_URL": database.url,
            "CHAOS_LEDGER": str(books),
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        isolates = any(spec.kind.startswith("isolated") for spec in plan.jobs)
        fleet = Fleet(_command(plan, how), env, folder, books, isolates=isolates)
        try:
            fleet.start(plan.size.workers)
            fleet.wait_until_ready(how.processes)
            company = max(plan.size.workers * how.processes // 2, 1)
            storm = Storm(plan.events, fleet, database, company)
            return _run(plan, database, fleet, storm, books, say)
        finally:
            fleet.end(0)


def _command(plan: Plan, how: How) -> list[str]:
    command = [sys.executable, "-m", "yaoki", "--app", how.app, "worker"]
    command += ["--concurrency", str(plan.size.concurrency)]
    command += ["--processes", str(how.processes)]
    return [*command, "--lease-for", f"{LEASE:g}", "--grace", f"{GRACE:g}"]


def _run(
    plan: Plan,
    database: Database,
    fleet: Fleet,
    storm: Storm,
    books: Path,
    say: Callable[[str], None],
) -> Verdict:
    began = time.monotonic()
    app = build(database.url)
    producers = Producers(app, plan.jobs, storm.now)
    storm.begin()
    producers.start()
    say(f"{len(plan.jobs):,} jobs and {len(plan.events)} troubles in {plan.size.seconds:.0f} s …")
    storm.run()
    producers.join(30)
    say("no more troubles; what is left is done …")
    rest = _drain(database)
    storm.end()
    problems = [*fleet.end(GRACE + 10), *producers.problems, *storm.problems]
    app.close()
    entries = ledger.read(books)
    suicides = [
        Trouble("killed", life.pid, life.died, life.died + 0.5)
        for life in entries.lives
        if life.died is not None
    ]
    outages = [one for one in storm.troubles if one.what == "outage"]
    verdict = judge(
        Evidence(
            plan.jobs,
            producers.promises,
            _rows(database),
            [Move(*row) for row in database.ask(MOVES)],
            [name for (name,) in database.ask("SELECT name FROM chaos_effects")],
            {(job, lease) for job, lease in database.ask(database.of(LOGGED))},
            entries,
            Troubles([*storm.troubles, *suicides]),
            [*database.damage(), *database.inconsistencies()],
            fleet.ended_by_themselves,
            problems,
        )
    )
    verdict.figures |= {
        "kills (SIGKILL)": storm.kills,
        "other troubles": ", ".join(
            f"{what} {times}"
            for what, times in sorted(storm.happened.items())
            if not what.startswith("kill")
        ),
        "workers killed by a job": len(suicides),
        "worker processes started": fleet.started,
        "outages noticed": len(outages),
        "of them together, in seconds": round(sum(one.end - one.begin for one in outages), 1),
        "tracebacks in the logs": fleet.tracebacks(),
        "seconds": round(time.monotonic() - began),
        "of them after the last trouble": round(rest, 1),
    }
    return verdict


def _drain(database: Database) -> float:
    """Wait until all is done, or nothing moves any more; the seconds that it took."""
    began = moved = time.monotonic()
    seen: object = None
    while True:
        [row] = database.ask(database.of(UNFINISHED))
        now = time.monotonic()
        if row[0] == 0:
            return now - began
        if row != seen:
            seen, moved = row, now
        if now - moved > PATIENCE:
            return now - began
        time.sleep(0.1)


def _rows(database: Database) -> list[Row]:
    rows = database.ask(database.of(JOBS))
    return [
        Row(
            *(job_id, kind, json.loads(payload)["name"], status, attempt, lease),
            result=(json.loads(result or "null") or {}).get("lease"),
            error=error,
        )
        for job_id, kind, payload, status, attempt, lease, result, error in rows
    ]
