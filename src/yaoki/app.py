"""The app: what a program makes one of, and hangs its job types on."""

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Unpack

from yaoki.client import Client
from yaoki.core.errors import InvalidOption
from yaoki.jobtypes import AnyJobType, Hooks, JobSet
from yaoki.jobtypes.hooks import H, M, add_hook, add_middleware
from yaoki.jobtypes.job_set import AboutOptions, Decorator
from yaoki.worker import Ending, Worker, WorkerBeside, worker_settings

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
        self.hooks = Hooks()
        # One list: what stands around the job types of the app is what stands around all.
        self.types.middlewares = self.hooks.around

    def job(self, name: str | None = None, /, **about: Unpack[AboutOptions]) -> Decorator:
        """Make a job type of the function below; see JobSet.job."""
        declare = self.types.job(name, **about)

        def decorate(function: object) -> AnyJobType:
            kind: AnyJobType = declare(function)  # type: ignore[call-overload]
            kind.owner = self
            return kind

        return decorate

    def around(self, middleware: M | None = None, /) -> M:
        """Have `middleware(ctx, run)` called around every attempt; it calls `run()`.

        `run()` gives what the handler returns, and raises what it raises; what the middleware
        returns or raises counts. A plain function or an async one (`await run()`), whatever the
        handler is. The first one registered is the outermost.
        """
        add_middleware(self.hooks.around, middleware)
        assert middleware is not None
        return middleware

    def on_startup(self, hook: H | None = None, /) -> H:
        """Have this called in each worker before it claims anything; async ones on its loop.

        If it raises, the worker does not start: HookFailed.
        """
        add_hook(self.hooks.startup, hook, "on_startup")
        assert hook is not None
        return hook

    def on_shutdown(self, hook: H | None = None, /) -> H:
        """Have this called in each worker after its last handler; the last registered first.

        Together they get what is left of the grace period, 2 s at least. A second signal skips
        them.
        """
        add_hook(self.hooks.shutdown, hook, "on_shutdown")
        assert hook is not None
        return hook

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

        NotHere while a child process imports this program, which would start a second worker.
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

    def worker_beside(
        self,
        queues: Sequence[str] | Mapping[str, int | None] | None = None,
        *,
        concurrency: int = 10,
        lease_for: float | timedelta = 60,
        grace: float | timedelta = 30,
        worker_id: str | None = None,
    ) -> WorkerBeside:
        """A block beside which a worker runs on threads of this process: `async with`, or `with`.

        For the lifespan of a web app. It listens to no signals; the end of the block drains it,
        and waits for that. A database that is not there does not keep the block from beginning.
        """

        def make() -> Worker:
            return self.worker(
                queues,
                concurrency=concurrency,
                lease_for=lease_for,
                grace=grace,
                worker_id=worker_id,
            )

        worker_settings(
            queues=queues,
            concurrency=concurrency,
            lease_for=lease_for,
            grace=grace,
            worker_id=worker_id,
        )
        self._check_types()
        return WorkerBeside(make)

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
        self._check_types()
        return Worker(self.store, self.types, settings, self.hooks)

    def _check_types(self) -> None:
        if not len(self.types):
            raise InvalidOption(
                "this app has no job types, so a worker could run nothing; import the modules "
                "that declare them first, or app.include() their JobSets"
            )
