"""Eight processes on one file: each job once, and no "database is locked" for anybody."""

import subprocess
import sys
from pathlib import Path

from tests.support.databases import ask, assert_intact
from tests.support.processes import ROOT
from yaoki import Yaoki

PROCESSES = 8
JOBS = 5_000


def test_eight_processes_claim_five_thousand_jobs_once_each(app: Yaoki, path: Path) -> None:
    """Four threads in each, while follow-up jobs come in beside them (fault 127)."""
    made = app.enqueue_many("count", [{"n": n} for n in range(JOBS)])
    programs = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.store.sqlite.claimer", app.url, f"p{number}"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(PROCESSES)
    ]
    try:
        for program in programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
        outputs = [program.communicate("go\n", timeout=100)[0] for program in programs]
    finally:
        for program in programs:
            program.kill()
            program.wait()

    assert [program.returncode for program in programs] == [0] * PROCESSES, outputs
    taken = [int(job_id) for output in outputs for job_id in output.split()[1:]]
    assert sorted(taken) == [job.id for job in made]
    assert_intact(path)
    counted = "SELECT count(*), min(attempt), max(attempt) FROM yaoki_jobs WHERE type = 'count'"
    assert ask(path, f"{counted} AND status = 'completed'") == [(JOBS, 1, 1)]
    assert ask(path, "SELECT count(*) FROM yaoki_jobs WHERE type = 'follow-up'") == [(JOBS // 50,)]
    wrong = "SELECT id FROM yaoki_jobs WHERE type = 'count' AND result <> payload"
    assert ask(path, wrong) == []
