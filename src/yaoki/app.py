"""The app: what a program makes one of, and hangs its job types on."""

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Unpack

from yaoki.client import Client
from yaoki.core.errors import InvalidOption
from yaoki.jobtypes import AnyJobType, JobSet
from yaoki.jobtypes.job_set import AboutOptions, Decorator
from yaoki.worker import Ending, Worker, worker_settings

DEFAULT_URL = "sqlite:///yaoki.db"


class Yaoki(Client):
    """A queue: job types, the verbs, and the worker.

    `url` is sqlite:///jobs.db (relative), sqlite:////var/lib/jobs.db (absolute), or
    sqlite:///:memory: (a private temporary file); unless given, YAOKI_URL, else
    sqlite:///yaoki.db. `?durability=normal` trades the last moments before a loss of power for
    speed. Making one opens nothing; it is safe to use from any thread.
    """

    def __init__(self, url: str | None = None) -> None:
        super().__init__(url or os.environ.get("YAOKI_URL") or DEFAULT_URL)

    def job(self, name: str | None = None, /, **about: Unpack[AboutOptions]) -> Decorator:
        """Make a job type of the function below; see JobSet.job."""
        declare = self.types.job(name, **about)

        def decorate(function: object) -> AnyJobType:
            kind: AnyJobType = declare(function)  # type: ignore[call-overload]
            kind.owner = self
            return kind

        return decorate

    def include(self, jobs: JobSet) -> None:
        """Register every job type of a JobSet, or none; each belongs to one app."""
        new = [kind for kind in jobs if kind.owner is not self]
        for kind in new:
            if kind.owner is not None:
                raise InvalidOption(f"job type {kind.name!r} belongs to another app already")
            self.types.check_new(kind.name)
        for kind in new:
            self.types.add(kind)
            kind.owner = self

    def run_worker(
        self,
        queues: Sequence[str] | Mapping[str, int | None] | None = None,
        *,
        concurrency: int = 10,
        lease_for: float | timedelta = 60,
        grace: float | timedelta = 30,
        until_empty: bool = False,
        max_wait: float | timedelta | None = None,
        worker_id: str | None = None,
    ) -> Ending:
        """Run jobs in this process until SIGTERM or SIGINT; blocks until the worker has ended.

        `queues` are those to serve (None: all), as a mapping with a limit for each. `concurrency`
        counts plain and async handlers together. After the signal nothing more is claimed, and
        what has begun gets `grace` seconds; a second signal stops at once. `until_empty` ends
        when nothing is running, due, or waiting for a retry (within `max_wait`, if given).
        `worker_id` is a label for people; a random part is added, so it need not be unique.
        """
        return self.worker(
            queues,
            concurrency=concurrency,
            lease_for=lease_for,
            grace=grace,
            until_empty=until_empty,
            max_wait=max_wait,
            worker_id=worker_id,
        ).run()

    def worker(
        self,
        queues: Sequence[str] | Mapping[str, int | None] | None = None,
        *,
        concurrency: int = 10,
        lease_for: float | timedelta = 60,
        grace: float | timedelta = 30,
        until_empty: bool = False,
        max_wait: float | timedelta | None = None,
        worker_id: str | None = None,
    ) -> Worker:
        """A worker that does not run yet: `run()` it, on a thread if need be; `drain()` ends it."""
        settings = worker_settings(
            queues=queues,
            concurrency=concurrency,
            lease_for=lease_for,
            grace=grace,
            until_empty=until_empty,
            max_wait=max_wait,
            worker_id=worker_id,
        )
        if not len(self.types):
            raise InvalidOption(
                "this app has no job types, so a worker could run nothing; import the modules "
                "that declare them first, or app.include() their JobSets"
            )
        return Worker(self.store, self.types, settings)
