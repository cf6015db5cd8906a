"""Who enqueues while it goes on, and notes what it was promised."""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from chaos.plan import Spec
from yaoki import Job, StoreError, WrongStatus, Yaoki


class Promises:
    """What producers were told: a job that is in `ids` is there, whatever happens."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}
        self.again: dict[str, int] = {}
        """The answer when the same key was enqueued a second time."""
        self.unanswered: set[str] = set()
        """Enqueued without an answer and without a key: it may be there, or not."""
        self.batches: list[list[str]] = []
        """Batches without an answer: each is there whole, or not at all."""
        self.cancelled: set[str] = set()


class Producers:
    """Three threads: one enqueues one by one, one in batches, one awaiting; and one cancels."""

    def __init__(self, app: Yaoki, specs: Sequence[Spec], now: Callable[[], float]) -> None:
        """`now`: seconds since the beginning, as the plan counts them."""
        self.promises = Promises()
        self._app, self._now = app, now
        self._threads = [
            threading.Thread(target=self._guarded, args=(run, work), daemon=True)
            for run, work in (
                (self._one_by_one, _of("one", specs)),
                (self._in_batches, _of("many", specs)),
                (self._awaiting, _of("awaiting", specs)),
                (self._cancel, sorted(specs, key=_cancelled_at)),
            )
        ]
        self.problems: list[str] = []

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self, within: float) -> None:
        """Until all is enqueued."""
        end = time.monotonic() + within
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0))
        if any(thread.is_alive() for thread in self._threads):
            self.problems.append(f"a producer was not done after {within:g} s more")

    def _guarded(self, run: Callable[[Sequence[Spec]], None], work: Sequence[Spec]) -> None:
        try:
            run(work)
        except Exception as error:
            self.problems.append(f"a producer failed: {type(error).__name__}: {error}")

    def _sleep_until(self, at: float) -> None:
        while (left := at - self._now()) > 0:
            time.sleep(min(left, 0.1))

    def _one_by_one(self, specs: Sequence[Spec]) -> None:
        for spec in specs:
            self._sleep_until(spec.at)
            for _ in range(1 + spec.twice):
                self._note(spec, self._enqueue(spec))

    def _enqueue(self, spec: Spec) -> Job | None:
        """What has a key is enqueued until there is an answer."""
        while True:
            try:
                return self._app.enqueue(spec.kind, _payload(spec), **_options(spec))
            except StoreError:
                if spec.key is None:
                    return None
                time.sleep(0.1)

    def _note(self, spec: Spec, job: Job | None) -> None:
        promises = self.promises
        if job is None:
            promises.unanswered.add(spec.name)
        elif spec.name in promises.ids:
            promises.again[spec.name] = job.id
        else:
            promises.ids[spec.name] = job.id

    def _in_batches(self, specs: Sequence[Spec]) -> None:
        """What falls into the same half of a second and is of one kind goes together."""
        for moment, some in groupby(specs, lambda spec: spec.at // 0.5):
            self._sleep_until(moment * 0.5)
            for kind, each in groupby(sorted(some, key=_kind), _kind):
                batch = list(each)
                try:
                    jobs = self._app.enqueue_many(kind, [_payload(spec) for spec in batch])
                except StoreError:
                    self.promises.batches.append([spec.name for spec in batch])
                else:
                    for spec, job in zip(batch, jobs, strict=True):
                        self._note(spec, job)

    def _awaiting(self, specs: Sequence[Spec]) -> None:
        asyncio.run(self._all_awaiting(specs))

    async def _all_awaiting(self, specs: Sequence[Spec]) -> None:
        async with asyncio.TaskGroup() as group:
            for spec in specs:
                while (left := spec.at - self._now()) > 0:
                    await asyncio.sleep(min(left, 0.1))
                group.create_task(self._aenqueue(spec))

    async def _aenqueue(self, spec: Spec) -> None:
        for _ in range(1 + spec.twice):
            job = None
            while job is None:
                try:
                    job = await self._app.aenqueue(spec.kind, _payload(spec), **_options(spec))
                except StoreError:
                    if spec.key is None:
                        break
                    await asyncio.sleep(0.1)
            self._note(spec, job)

    def _cancel(self, specs: Sequence[Spec]) -> None:
        for spec in specs:
            if spec.cancel_after is None:
                continue
            self._sleep_until(_cancelled_at(spec))
            job_id = self.promises.ids.get(spec.name)
            while job_id is not None:
                try:
                    self._app.cancel(job_id)
                    self.promises.cancelled.add(spec.name)
                except StoreError:
                    time.sleep(0.1)
                    continue
                except WrongStatus:
                    pass
                break


def _of(how: str, specs: Sequence[Spec]) -> list[Spec]:
    return sorted((spec for spec in specs if spec.how == how), key=lambda spec: spec.at)


def _kind(spec: Spec) -> str:
    return spec.kind


def _cancelled_at(spec: Spec) -> float:
    return spec.at + (spec.cancel_after or 0.0)


def _payload(spec: Spec) -> dict[str, Any]:
    return {"name": spec.name, **spec.arguments}


def _options(spec: Spec) -> Any:
    said = {"priority": spec.priority, "delay": spec.delay, "idempotency_key": spec.key}
    return {name: value for name, value in said.items() if value is not None}
