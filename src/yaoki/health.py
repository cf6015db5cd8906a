"""Is all well with the queue? What was seen, judged, with what to do about it."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from yaoki.core.health import Check, of_level
from yaoki.core.times import in_words
from yaoki.store.examined import Examined
from yaoki.store.ops.health import Ready, Survey
from yaoki.store.ops.workers import Worker

LONGEST_WAIT = 300.0
"""Seconds that a ready job may wait before it is worth a warning."""

SOON = 5.0
"""Seconds that a job may be ready before somebody should be there for it."""

SHOWN = 5
"""So many names are shown of a list that may be long."""


class ReadyJob(msgspec.Struct, frozen=True):
    """The job of a queue that has been ready for the longest time, `waits` seconds."""

    queue: str
    type: str
    job_id: int
    waits: float


class Health(msgspec.Struct, frozen=True):
    """How the queue is: everything that was checked, and the longest waiting job of each queue.

    `ok` while there is no problem; there may be warnings.
    """

    checks: tuple[Check, ...]
    ready: tuple[ReadyJob, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.problems

    @property
    def problems(self) -> tuple[Check, ...]:
        return of_level(self.checks, "problem")

    @property
    def warnings(self) -> tuple[Check, ...]:
        return of_level(self.checks, "warning")

    def to_dict(self) -> dict[str, object]:
        """The same as JSON shows it."""
        built: dict[str, object] = msgspec.to_builtins(self)
        return {"ok": self.ok} | built


def judged(found: Examined, survey: Survey | None, longest_wait: float) -> Health:
    """The health by what was found of the database, and of the work if that could be seen."""
    if survey is None:
        return Health(tuple(found.checks))
    checks = [*found.checks, *_of_workers(survey), *_of_jobs(survey, longest_wait)]
    return Health(tuple(checks), _oldest_by_queue(survey.ready))


def _oldest_by_queue(ready: Iterable[Ready]) -> tuple[ReadyJob, ...]:
    """They come with the longest waiting first."""
    oldest: dict[str, ReadyJob] = {}
    for one in ready:
        oldest.setdefault(one.queue, ReadyJob(one.queue, one.type, one.job_id, one.waits))
    return tuple(oldest.values())


# Workers


def _of_workers(survey: Survey) -> Iterator[Check]:
    heard_of = [worker for worker in survey.workers if not worker.silent]
    silent = [worker for worker in survey.workers if worker.silent]
    yield _there_are_workers(survey, heard_of)
    if silent:
        yield Check(
            "silent-workers",
            "warning",
            f"{_count(silent, 'worker')} fell silent: "
            f"{_some(worker.worker_id for worker in silent)}",
            "they were killed, or cannot reach the database; what they held is taken back by the "
            "others, and a day later they are forgotten",
        )
    else:
        yield Check("silent-workers", "ok", "no worker is silent")
    troubles = [
        Check(
            check.code,
            check.level,
            f"worker {worker.worker_id}: {check.message}",
            check.advice or "see its log; if it stays so, restart it",
        )
        for worker in heard_of
        if worker.health is not None
        for check in worker.health.checks
    ]
    yield from troubles
    if heard_of and not any(one.code == "cannot-claim" for one in troubles):
        yield Check(
            "cannot-claim", "ok", f"every worker can claim jobs{_last_look(survey, heard_of)}"
        )


def _last_look(survey: Survey, heard_of: Iterable[Worker]) -> str:
    """How long ago one of them looked, as far as their last beats tell."""
    ages = [
        worker.health.looked_ago + (survey.now - worker.seen_at).total_seconds()
        for worker in heard_of
        if worker.health is not None and worker.health.looked_ago is not None
    ]
    return f"; one looked {in_words(round(max(min(ages), 0.0), 1))} ago" if ages else ""


def _there_are_workers(survey: Survey, heard_of: Sequence[Worker]) -> Check:
    advice = "start one: yaoki --app module:attribute worker"
    working = [worker for worker in heard_of if worker.state == "working"]
    late = [one for one in _claimable(survey) if one.waits >= SOON]
    if working:
        return Check("workers", "ok", f"{_count(working, 'worker')} at work")
    if late:
        queues = _some(dict.fromkeys(one.queue for one in late))
        return Check(
            "workers", "problem", f"no worker is at work, and jobs are ready in {queues}", advice
        )
    return Check("workers", "warning", "no worker is at work", advice)


# Jobs


def _of_jobs(survey: Survey, longest_wait: float) -> Iterator[Check]:
    yield _of_leases(survey)
    claimable = _claimable(survey)
    unknown, unserved, served = _by_who_takes_them(claimable, survey.workers)
    yield _alarm(
        "unknown-types",
        unknown,
        "jobs of {what} are ready, and no worker knows {what_they}",
        "every type with ready jobs is known to a worker",
        "start a worker whose app has a handler of that name (is its module imported?)",
        lambda one: one.type,
    )
    yield _alarm(
        "unserved-queues",
        unserved,
        "jobs are ready in {what}, and no worker that knows their type serves {what_they}",
        "every queue with ready jobs is served",
        "start a worker that serves it: yaoki worker --queue NAME",
        lambda one: one.queue,
    )
    yield _of_waiting(served, longest_wait)
    yield from _of_pauses(survey)
    if not survey.complete:
        yield Check(
            "many-queues",
            "warning",
            "there are more queues and types than were looked at",
            "use fewer queues: thousands of them make claims slow",
        )


def _of_leases(survey: Survey) -> Check:
    if not survey.overdue:
        return Check("leases", "ok", "every running job has a worker that renews its lease")
    many = "job is" if survey.overdue == 1 else "jobs are"
    return Check(
        "leases",
        "problem",
        f"{survey.overdue:,} {many} running whose lease is long over, and nobody takes them back "
        f"(the first is job {survey.first_overdue})",
        "workers do so by themselves: start one, or see their logs; app.rescue() does it now",
    )


def _claimable(survey: Survey) -> list[Ready]:
    """What nobody has paused."""
    queues = {one.name for one in survey.paused if one.kind == "queue"}
    types = {one.name for one in survey.paused if one.kind == "type"}
    return [one for one in survey.ready if one.queue not in queues and one.type not in types]


def _by_who_takes_them(
    ready: Iterable[Ready], workers: Iterable[Worker]
) -> tuple[list[Ready], list[Ready], list[Ready]]:
    """Those whose type no worker knows, those whose queue none serves, and the others.

    Those that have only just become ready, and all while there is no worker, are among the others.
    """
    working = [worker for worker in workers if not worker.silent and worker.state == "working"]
    unknown, unserved, others = [], [], []
    for one in ready:
        know_it = [worker for worker in working if one.type in worker.types]
        serve_it = [w for w in know_it if w.queues is None or one.queue in w.queues]
        if not working or serve_it or one.waits < SOON:
            others.append(one)
        elif know_it:
            unserved.append(one)
        else:
            unknown.append(one)
    return unknown, unserved, others


def _alarm(
    code: str,
    late: Sequence[Ready],
    message: str,
    fine: str,
    advice: str,
    name: Callable[[Ready], str],
) -> Check:
    if not late:
        return Check(code, "ok", fine)
    names = list(dict.fromkeys(name(one) for one in late))
    said = message.format(what=_some(names), what_they="it" if len(names) == 1 else "them")
    since = f" (job {late[0].job_id} for {in_words(round(late[0].waits))})"
    return Check(code, "problem", said + since, advice)


def _of_waiting(served: Sequence[Ready], longest_wait: float) -> Check:
    late = [one for one in _oldest_by_queue(served) if one.waits > longest_wait]
    if late:
        said = _some(
            f"{one.queue} (job {one.job_id}, type {one.type}, for {in_words(round(one.waits))})"
            for one in late
        )
        return Check(
            "waiting",
            "warning",
            f"jobs wait for long in {said}",
            "more workers, or more --concurrency, do more at once",
        )
    if not served:
        return Check("waiting", "ok", "no job is waiting for a worker")
    first = served[0]
    return Check(
        "waiting", "ok", f"the longest waiting job has been ready for {in_words(first.waits)}"
    )


def _of_pauses(survey: Survey) -> Iterator[Check]:
    for one in survey.paused:
        held = [ready for ready in survey.ready if getattr(ready, one.kind) == one.name]
        if held:
            flag = "" if one.kind == "queue" else "--type "
            yield Check(
                "paused",
                "warning",
                f"{one.kind} {one.name} is paused, and jobs are ready in it "
                f"(job {held[0].job_id} for {in_words(round(held[0].waits))})",
                f"let it go on: yaoki resume {flag}{one.name}",
            )


def _count(workers: Sequence[Worker], what: str) -> str:
    return f"{len(workers)} {what}{'' if len(workers) == 1 else 's'}"


def _some(names: Iterable[str]) -> str:
    """The first few, and how many more there are."""
    every = list(names)
    shown = ", ".join(every[:SHOWN])
    return shown if len(every) <= SHOWN else f"{shown} and {len(every) - SHOWN} more"
