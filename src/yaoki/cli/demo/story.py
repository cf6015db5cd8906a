"""The demo from beginning to end."""

import time
from collections.abc import Sequence

import click

from yaoki.cli.demo import scenes
from yaoki.cli.demo.scenes import Told
from yaoki.cli.demo.stage import Stage, stage
from yaoki.cli.demo.words import Words, words
from yaoki.cli.show.table import Column, show_table
from yaoki.core.times import in_words


def tell(language: str | None) -> None:
    """Tell the story; CommandFailed as soon as something it tells is not so."""
    began = time.monotonic()
    texts = words(language)
    with stage(texts) as set_up:
        count = _play(set_up)
    took = in_words(round(time.monotonic() - began, 1))
    click.echo(texts("all done", count=count, took=took))


def _play(stage: Stage) -> int:
    click.echo(stage.words("begin", file=stage.folder / "jobs.db"))
    worker = stage.start_worker()
    stage.tell("worker", pid=worker.pid)
    told = [
        *scenes.bulk_sign_up(stage),
        *scenes.moody_server(stage),
        *scenes.no_image(stage),
        *scenes.same_event_twice(stage),
        *scenes.reminder_and_priorities(stage),
        *scenes.killed_worker(stage, worker),
    ]
    stage.stop_workers()
    stage.title("end")
    _show(told, stage.words)
    return _counted(stage, told)


def _show(told: Sequence[Told], words: Words) -> None:
    titles = ("column job", "column type", "column status", "column story")
    columns = [Column(words(title), gives=title == "column story") for title in titles]
    rows = sorted(told, key=lambda each: each.jobs[0].id)
    show_table(
        columns, [[_ids(each), _type(each), words("completed"), each.story] for each in rows]
    )
    click.echo()


def _ids(told: Told) -> str:
    first, last = told.jobs[0].id, told.jobs[-1].id
    return str(first) if first == last else f"{first}–{last}"


def _type(told: Told) -> str:
    count = len(told.jobs)
    return told.jobs[0].type if count == 1 else f"{told.jobs[0].type} × {count}"


def _counted(stage: Stage, told: Sequence[Told]) -> int:
    """How many jobs there were; the table must have told of every one, and all completed."""
    there = {job.id for job in stage.app.jobs(status="completed", limit=1_000)}
    every = {job.id for job in stage.app.jobs(limit=1_000)}
    stage.check(there == every, "every job to be completed")
    stage.check(every == {job.id for each in told for job in each.jobs}, "every job to be told of")
    return len(every)
