"""Where two clients meet: one database, a clock that stands still, and every order of theirs."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from typing import Any, NamedTuple

import psycopg

from tests.interleaving.clients import PATIENCE, Client
from tests.support.databases import BROKEN_PROMISES
from yaoki.core.job import Job
from yaoki.store.op import Op
from yaoki.store.ops.claims import Claimed
from yaoki.store.postgres.statements import Dialect

NOW = 1_800_000_000_000_000

Pick = Callable[[int], int]
"""Which of so many clients goes on; the first is 0."""

EMPTY = """
TRUNCATE yaoki.jobs, yaoki.attempts, yaoki.definitions, yaoki.paused, yaoki.workers
RESTART IDENTITY
"""


class Deadlock(AssertionError):
    """Each waits for a lock of the other's."""


class Outcome(NamedTuple):
    """What both were answered and what is in the tables afterwards, in terms that compare.

    Ids are numbered anew, because a number that was drawn in vain is no difference.
    """

    answers: tuple[object, ...]
    jobs: list[tuple[object, ...]]
    attempts: list[tuple[object, ...]]


class Arena:
    """A database with two clients, and a hand that prepares it."""

    def __init__(self, url: str) -> None:
        self.now = NOW
        self._url = url
        self.clients = [self._client(), self._client()]
        self._hand = self._client()
        self._watch = psycopg.connect(url, autocommit=True)

    def close(self) -> None:
        for client in (*self.clients, self._hand):
            client.close()
        self._watch.close()

    def _client(self) -> Client:
        return Client(self._url, Dialect("yaoki", lambda: self.now))

    def empty(self) -> None:
        self.now = NOW
        self._watch.execute(EMPTY)

    def run(self, op: Op[Any]) -> Any:
        """Alone, before the two or after them."""
        self._hand.start(op)
        while not self._hand.ended:
            wait([self._hand.step()], PATIENCE)
            assert not self._hand.waits
        if isinstance(self._hand.answer, Exception):
            raise self._hand.answer
        return self._hand.answer

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        return self._watch.execute(statement.encode()).fetchall()

    def meet(self, ops: Sequence[Op[Any]], pick: Pick) -> tuple[object, ...]:
        """Run both, message by message, in the order that `pick` says; their answers."""
        for client, op in zip(self.clients, ops, strict=True):
            client.start(op)
        try:
            while not all(client.ended for client in self.clients):
                free = [one for one in self.clients if not (one.ended or one.waits)]
                if not free:
                    raise Deadlock(f"{ops[0]} and {ops[1]} wait for each other")
                free[pick(len(free)) if len(free) > 1 else 0].step()
                self._until_answered_or_blocked()
        except BaseException:
            self._part()
            raise
        return tuple(client.answer for client in self.clients)

    def assert_intact(self) -> None:
        for promise, broken in BROKEN_PROMISES.items():
            assert self.rows(broken) == [], promise

    def outcome(self, answers: Sequence[object]) -> Outcome:
        found = self.rows("SELECT * FROM yaoki.jobs ORDER BY id")
        places = {row[0]: place for place, row in enumerate(found)}
        jobs = [(places[job_id], *row) for job_id, *row in found]
        kept = self.rows("SELECT * FROM yaoki.attempts ORDER BY job_id, lease")
        attempts = [(places[job_id], *row) for job_id, *row in kept]
        return Outcome(tuple(_told(one, places) for one in answers), jobs, attempts)

    def _until_answered_or_blocked(self) -> None:
        """Then nothing changes any more by itself: who is blocked, is so by the other's locks."""
        while True:
            under_way = [client for client in self.clients if client.waits_for(0.002)]
            if all(self._is_blocked(client) for client in under_way):
                return

    def _is_blocked(self, client: Client) -> bool:
        [(blocked,)] = self.rows(f"SELECT cardinality(pg_blocking_pids({client.pid})) > 0")
        return bool(blocked)

    def _part(self) -> None:
        """End whatever the two are doing, and let two others be the next ones."""
        for client in self.clients:
            self.rows(f"SELECT pg_terminate_backend({client.pid})")
            client.close()
        self.clients = [self._client(), self._client()]


def every_order(most: int) -> Iterator[Pick]:
    """Until all have been tried, the next way to pick; an error after so many.

    The first two are those where one client goes on until it ends or has to wait.
    """
    path: list[tuple[int, int]] = []
    for _ in range(most):
        place = -1

        def pick(count: int) -> int:
            nonlocal place
            place += 1
            if place == len(path):
                path.append((0, count))
            return path[place][0]

        yield pick
        while path and path[-1][0] == path[-1][1] - 1:
            path.pop()
        if not path:
            return
        path[-1] = (path[-1][0] + 1, path[-1][1])
    raise AssertionError(f"there are more than {most} orders")


def first(count: int) -> int:
    return 0


def last(count: int) -> int:
    return count - 1


def by_turns(turns: Sequence[bool]) -> Pick:
    """As these say; the first when they are used up."""
    left = iter(turns)
    return lambda count: count - 1 if next(left, False) else 0


def _told(answer: object, places: dict[int, int]) -> object:
    """An answer without what may differ: new ids, the history, which is compared by itself."""
    match answer:
        case Exception():
            return re.sub(r"\d+", "#", f"{type(answer).__name__}: {answer}")
        case Job():
            return ("job", places.get(answer.id), *answer._row[1:], answer.created)
        case Claimed():
            return [_told(job, places) for job in answer.jobs]
        case frozenset() | set():
            return sorted(map(repr, answer))
        case tuple() | list():
            return [_told(value, places) for value in answer]
    return answer
