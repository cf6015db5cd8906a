"""Workers: who is there, and what each of them holds."""

from collections.abc import Iterator, Sequence

import click

from yaoki.app import Yaoki
from yaoki.cli.show.as_json import show_json
from yaoki.cli.show.table import COLOURS, Column, show_table
from yaoki.cli.show.times import ago, moment, now, since
from yaoki.cli.target import Target, pass_target, target_options
from yaoki.core.job import Job
from yaoki.store.ops.workers import Worker

_WORKERS = (
    Column("WORKER", gives=True),
    Column("STATE", colours=COLOURS),
    Column("HEARD OF"),
    Column("HOLDS", right=True),
    Column("QUEUES", gives=True),
    Column("SINCE"),
)
_TROUBLES = (Column("WORKER", gives=True), Column("WHAT IS WRONG", gives=True))
_HELD = (
    Column("WORKER", gives=True),
    Column("JOB", right=True),
    Column("TYPE", gives=True),
    Column("FOR", right=True),
    Column("SINCE"),
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, with the jobs that each holds.")
@target_options
@pass_target
def workers(target: Target, as_json: bool) -> None:
    """List the workers, and the jobs that each of them holds.

    A silent one has not been heard of for longer than its lease; what it held is taken back by
    the others. A degraded one says itself that something in it does not work. A worker that nobody
    announced claimed its jobs by a program of its own.
    """
    client = target.existing()
    found, held = client.workers(), _held(client)
    if as_json:
        announced = {worker.worker_id for worker in found}
        others = [
            {"worker_id": worker_id, "jobs": _jobs(jobs)}
            for worker_id, jobs in held.items()
            if worker_id not in announced
        ]
        workers = [
            worker.to_dict() | {"jobs": _jobs(held.get(worker.worker_id, ()))} for worker in found
        ]
        show_json({"workers": workers, "unannounced": others})
        return
    if found:
        show_table(_WORKERS, [_row(worker, held) for worker in found])
    else:
        click.echo("there are no workers; start one with: yaoki --app module:attribute worker")
    troubles = [
        [worker.worker_id, check.message]
        for worker in found
        if worker.health is not None and not worker.silent
        for check in worker.health.checks
    ]
    if troubles:
        click.echo()
        show_table(_TROUBLES, troubles)
    if held:
        click.echo()
        show_table(_HELD, list(_held_rows(held)))


def _held(client: Yaoki) -> dict[str, list[Job]]:
    """The running jobs by worker, those that have run longest first."""
    held: dict[str, list[Job]] = {}
    cursor = None
    while True:
        page = client.jobs(status="running", limit=1_000, cursor=cursor)
        for job in page:
            held.setdefault(job.worker_id or "", []).append(job)
        cursor = page.cursor
        if cursor is None:
            break
    return {
        worker_id: sorted(jobs, key=lambda job: (job.claimed_at or job.created_at, job.id))
        for worker_id, jobs in sorted(held.items())
    }


def _row(worker: Worker, held: dict[str, list[Job]]) -> list[str]:
    present = now()
    holds = len(held.get(worker.worker_id, ()))
    return [
        worker.worker_id,
        _state(worker),
        ago(worker.seen_at, present),
        f"{holds} of {worker.concurrency}",
        "all" if worker.queues is None else ", ".join(worker.queues),
        moment(worker.started_at, present),
    ]


def _state(worker: Worker) -> str:
    if worker.silent:
        return "silent"
    return worker.state if worker.is_well else "degraded"


def _held_rows(held: dict[str, list[Job]]) -> Iterator[list[str]]:
    present = now()
    for worker_id, jobs in held.items():
        for job in jobs:
            begun = job.claimed_at or job.updated_at
            yield [
                worker_id,
                str(job.id),
                job.type,
                since(begun, present),
                moment(begun, present),
            ]


def _jobs(held: Sequence[Job]) -> list[dict[str, object]]:
    return [
        {"id": job.id, "type": job.type, "claimed_at": job.to_dict()["claimed_at"]} for job in held
    ]
