"""What is done on both stores: odd values wherever a value may stand, and every kind of ending."""

import math
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

from tests.worker.support_workers import let_lease_end, work_off
from yaoki import (
    Cancel,
    GiveUp,
    Job,
    JobContext,
    RetryAfter,
    RetryPolicy,
    Snooze,
    Yaoki,
    YaokiError,
    fixed,
)

TEXTS = {
    "empty": "",
    "blank": " \t\n\r ",
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈🇯🇵1️⃣",
    "combining": "e\u0301 a\u030a\u0301\u0328 Z͑ͫ̓ͪ̂ͫ̽͏̴̙",
    "composed": "é å",
    "right to left": "שָׁלוֹם \u202eمرحبا\u202c \u2067abc\u2069",
    "Japanese": "予約確定メール送信 ①㈱ 𠮷野家 ﾊﾝｶｸ",
    "controls": "".join(map(chr, range(1, 32))) + "\x7f\x80\x9b\u2028\u2029\ufeff",
    "noncharacters": "\ufffd\ufffe\uffff\U0010ffff\ue000",
    "SQL": "'; DROP TABLE jobs; -- %s %(a)s :now ? $1 {} \\ \" yaoki.jobs E'\\x00'",
    "JSON": '{"a": [1, "\\u0000"]}',
    "escapes": "\\u0000 \\0 \\x00 \\ud800 &#0; %00",
    "long": "x" * 1_000_000,
    "long and wide": "界" * 300_000,
}

NUMBERS = {
    "64 bits": [2**63 - 1, -(2**63), 2**63, 2**64, -(2**63) - 1],
    "beyond": [10**30, -(10**30), 10**400, 3**800],
    "floats": [0.1, -0.0, 5e-324, 1.7976931348623157e308, 1e16, 123456789.123456789, 1e-7],
    "small": [0, 1, -1, True, False, None],
}

REFUSED = {
    "NaN": {"a": math.nan},
    "infinity": {"a": [1, {"b": -math.inf}]},
    "NUL": {"a": "x\0y"},
    "NUL in a key": {"a\0": 1},
    "half a character": {"a": "\ud800"},
    "another half, deep down": {"a": [{"b": "\udfff"}]},
    "bytes": {"a": b"x"},
    "a set": {"a": {1}},
    "a key that is no text": {"a": {1: 2}},
    "too long": {"a": "x" * 2_000_000},
    "too deep": {"a": None},
}
deep: Any = None
for _ in range(100):
    deep = [deep]
REFUSED["too deep"] = {"a": deep}


class Unshowable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def odd_errors() -> Iterator[BaseException]:
    for text in TEXTS.values():
        yield ValueError(text)
        yield GiveUp(text)
        yield Cancel(text)
        yield RetryAfter(0, text)
    yield from (ValueError("a\0b"), ValueError("\udc80 half"), ValueError("y" * 5_000_000))
    yield from (GiveUp("a\0b"), Cancel("\udc80"), KeyError("k"), OSError(2, "no such file"))
    yield from (Unshowable(), SystemExit(3), KeyboardInterrupt(), MemoryError(), ValueError())
    yield ExceptionGroup("two 🐉", [ValueError("a\0"), KeyError("b")])


def odd_results() -> Iterator[Any]:
    yield from TEXTS.values()
    yield from NUMBERS.values()
    yield from (None, {}, [], {"a": {"b": [1, 2, {"c": None}]}}, (1, 2), "a\0b", "\udc80")
    yield from (math.nan, {"a": math.inf}, {1: 2}, {3, 4}, b"bytes", object, "z" * 5_000_000)
    yield from (date(2027, 1, 1), datetime(2027, 1, 1, tzinfo=UTC), timedelta(days=1), deep)


class Script:
    """Does everything on one app; `answers` is what it was told, in order."""

    def __init__(self, app: Yaoki) -> None:
        self.app = app
        self.answers: list[object] = []
        self._names: dict[int, str] = {}

    def run(self) -> None:
        for part in (self.payloads, self.names, self.keys, self.endings, self.results):
            part()
        for part in (self.verbs, self.operators, self.lists):
            part()

    def told(self, what: str, act: Callable[[], Any]) -> Any:
        """Do it, and write down the answer or the error, without ids."""
        try:
            answer = act()
            said: object = self.shown(answer)
        except YaokiError as error:
            answer, said = None, f"{type(error).__name__}: {self._named(str(error))}"
        self.answers.append((what, said))
        return answer

    # What is done

    def payloads(self) -> None:
        for name, text in TEXTS.items():
            for payload in ({"a": text}, {text[:500]: [text[:9]]}):
                self.told(name, lambda payload=payload: self.app.enqueue("mail", payload))
        for name, numbers in NUMBERS.items():
            self.told(name, lambda numbers=numbers: self.app.enqueue("mail", {"n": numbers}))
        for name, refused in REFUSED.items():
            self.told(name, lambda refused=refused: self.app.enqueue("mail", refused))
        together = [{"a": text} for text in TEXTS.values() if len(text) < 1_000]
        self.told("together", lambda: self.app.enqueue_many("mail", together))
        self.told("one bad", lambda: self.app.enqueue_many("mail", [{}, {"a": math.nan}]))
        self.told("none", lambda: self.app.enqueue_many("mail", []))

    def names(self) -> None:
        for name, text in TEXTS.items():
            word = text[:100]
            self.told(name, lambda word=word: self.app.enqueue(word, {}))
            self.told(name, lambda word=word: self.app.enqueue("mail", {}, queue=word))
            self.told(name, lambda word=word: self.app.enqueue("mail", {}, tags=[word, "tag"]))
            self.told(name, lambda word=word: self.app.enqueue("mail", {}, idempotency_key=word))
        for priority in (-101, -100, 100, 101, "high", 7):
            self.told(f"{priority}", lambda p=priority: self.app.enqueue("mail", {}, priority=p))
        for wait in (0, 0.000_001, 1e9, -1, timedelta(days=10_000), 10**20):
            self.told(f"{wait}", lambda w=wait: self.app.enqueue("late", {}, delay=w))
        for year in (1, 1969, 9999):
            at = datetime(year, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
            self.told(f"{year}", lambda at=at: self.app.enqueue("late", {}, run_at=at))
        for attempts in (0, 1, 2**31, 2**63 - 1, 2**63):
            self.told(
                f"{attempts}", lambda a=attempts: self.app.enqueue("late", {}, max_attempts=a)
            )

    def keys(self) -> None:
        for kind, key, how in (
            ("mail", "order-1", "return"),
            ("mail", "order-1", "return"),
            ("mail", "order-1", "raise"),
            ("fax", "order-1", "return"),
            ("mail", "ORDER-1", "return"),
            ("mail", "e\u0301", "return"),
            ("mail", "é", "return"),
        ):
            more: Any = {"idempotency_key": key, "on_existing": how}
            self.told(key, lambda kind=kind, more=more: self.app.enqueue(kind, {"k": 1}, **more))

    def endings(self) -> None:
        errors, twice = list(odd_errors()), RetryPolicy(max_attempts=2, backoff=fixed(0))

        @self.app.job("raises", queue="raising", retry=twice)
        def raises(ctx: JobContext, number: int) -> None:
            ctx.progress(number, len(errors), str(list(TEXTS.values())[number % len(TEXTS)])[:700])
            raise errors[number]

        @self.app.job("snoozes", queue="raising")
        def snoozes(ctx: JobContext, text: str) -> None:
            if ctx.job.snoozes < 2:
                raise Snooze(0, text)

        raises.enqueue_many([{"number": number} for number in range(len(errors))])
        snoozes.enqueue_many([{"text": text} for text in TEXTS.values()])
        work_off(self.app, queues=["raising"], concurrency=1, lease_for=30)

    def results(self) -> None:
        results = list(odd_results())

        @self.app.job("returns", queue="returning")
        def returns(number: int) -> Any:
            return results[number]

        @self.app.job("in a transaction", queue="returning")
        def in_a_transaction(ctx: JobContext, number: int) -> None:
            with ctx.transaction() as tx:
                tx.result = results[number]

        for kind in (returns, in_a_transaction):
            kind.enqueue_many([{"number": number} for number in range(len(results))])
        work_off(self.app, queues=["returning"], concurrency=1, lease_for=30)

    def verbs(self) -> None:
        """The four operations by hand."""
        app = self.app
        for text in TEXTS.values():
            app.enqueue("by-hand", {"a": text[:50]}, max_attempts=3)
            [job] = app.claim("a worker", types=["by-hand"])
            self.told("extend", lambda job=job: app.extend(job, 99).status)
            self.told("fail", lambda job=job, text=text: app.fail(job, text, retry_in=0))
            self.told("too late", lambda job=job: app.complete(job, 1))
            [job] = app.claim("a worker", types=["by-hand"])
            self.told("release", lambda job=job: app.release(job))
            [job] = app.claim("a worker", types=["by-hand"])
            self.told("complete", lambda job=job, text=text: app.complete(job, {"r": text}))
        for result in odd_results():
            app.enqueue("by-hand", {})
            [job] = app.claim("a worker", types=["by-hand"])
            self.told("complete", lambda job=job, result=result: app.complete(job, result))
            self.told("again", lambda job=job: app.complete(job))
            self.told("give back", lambda job=job: app.release(job))
        job = app.enqueue("by-hand", {})
        app.claim("silent 🐢", types=["by-hand"])
        let_lease_end(app, job.id)
        self.told("rescue", lambda: [one.counted for one in app.rescue()])
        self.told("rescued", lambda: app.get(job))

    def operators(self) -> None:
        app = self.app
        waiting, running = app.enqueue("op", {}, priority=9), app.enqueue("op", {}, priority=10)
        app.claim("a worker", types=["op"])
        for job in (waiting, running):
            for name in ("retry", "cancel", "cancel", "retry", "discard", "get", "discard"):
                self.told(name, lambda name=name, job=job: getattr(app, name)(job))
        for word in ("mail", "予約", "e\u0301", ""):
            self.told("pause", lambda word=word: app.pause(word))
            self.told("pause", lambda word=word: app.pause(type=word))
        self.told("paused", lambda: app.claim("w", types=["mail"]))
        for word in ("mail", "予約", "e\u0301"):
            self.told("resume", lambda word=word: app.resume(word))
            self.told("resume", lambda word=word: app.resume(type=word))
        self.told("retry all", lambda: len(app.retry_failed(type="raises")))
        for unknown in (0, -1, 2**62, 2**63, 10**30):
            self.told(f"get {unknown}", lambda unknown=unknown: app.get(unknown))

    def lists(self) -> None:
        app = self.app
        for text in TEXTS.values():
            word = text[:100]
            self.told("queue", lambda word=word: list(app.jobs(queue=word)))
            self.told("type", lambda word=word: list(app.jobs(type=word)))
        for status in ("pending", "completed", "failed", "cancelled", "no such"):
            self.told(status, lambda status=status: len(list(app.jobs(status=status, limit=1000))))
        self.told("queues", lambda: [queue.name for queue in app.queues()])
        self.told("counts", lambda: [(one.due, one.delayed, one.failed) for one in app.queues()])
        self.told("paused", lambda: [(one.kind, one.name) for one in app.paused()])

    # How it is compared

    def every_job(self) -> list[Job]:
        jobs: list[Job] = []
        page = self.app.jobs(limit=1000)
        while True:
            jobs += page
            if page.cursor is None:
                return [self.app.get(job) for job in reversed(jobs)]
            page = self.app.jobs(limit=1000, cursor=page.cursor)

    def shown(self, answer: object) -> object:
        """An answer without what may differ: ids, instants, and addresses in memory."""
        if isinstance(answer, Job):
            self._names.setdefault(answer.id, f"the {len(self._names) + 1}.")
            attempts = [attempt.to_dict() for attempt in answer.attempts]
            answer = answer.to_dict() | {
                "id": self._names[answer.id],
                "created": answer.created,
                "attempts": attempts,
            }
        if isinstance(answer, dict):
            return {
                name: value is not None if name in INSTANTS else self.shown(value)
                for name, value in answer.items()
            }
        if isinstance(answer, list | tuple):
            return [self.shown(one) for one in answer]
        return self._named(answer) if isinstance(answer, str) else answer

    def _named(self, text: str) -> str:
        text = re.sub(r"0x[0-9a-f]{6,}", "0x…", text)
        return re.sub(r"\bjob (\d+)\b", lambda found: self._name(int(found[1])), text)

    def _name(self, job_id: int) -> str:
        return f"job {self._names.get(job_id, 'N')}"


INSTANTS = (
    *("run_at", "claimed_at", "lease", "lease_expires_at", "cancel_requested_at", "created_at"),
    *("updated_at", "finished_at", "started_at", "ended_at", "worker_id"),
)
"""It is only compared whether they are there."""
