"""Two clients whose statements are run one at a time, in whatever order a test says."""

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import psycopg

from yaoki import YaokiError
from yaoki.store.op import Answer, Interfered, Op, Statement
from yaoki.store.postgres.failures import runs_again
from yaoki.store.postgres.statements import BEGIN, Call, Dialect, answer

TRIES = 6
"""How often an operation may be begun anew: two clients get in each other's way once or twice."""

PATIENCE = 10.0

Steps = Generator[Call, Answer, None]


class Client:
    """One operation on a connection of its own, as a store runs it: a message at a time."""

    def __init__(self, url: str, dialect: Dialect) -> None:
        self._connection = psycopg.connect(
            url, autocommit=True, cursor_factory=psycopg.RawCursor, prepare_threshold=None
        )
        self._dialect = dialect
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None
        self.pid = self._connection.info.backend_pid

    def start(self, op: Op[Any]) -> None:
        """Nothing is sent yet."""
        self.answer: object = None
        self.tries = 0
        self._ended = False
        self._messages = self._life_of(op)

    @property
    def ended(self) -> bool:
        return not self.waits and self._ended

    def step(self) -> Future[None]:
        """Send the next message; the future ends when the server has answered it."""
        assert self._under_way is None
        self._under_way = self._thread.submit(self._step)
        return self._under_way

    @property
    def waits(self) -> bool:
        """Has a message of its own not been answered?"""
        return self.waits_for(0)

    def waits_for(self, seconds: float) -> bool:
        """The same, but only after it had so long to be answered."""
        if self._under_way is None:
            return False
        if not wait([self._under_way], seconds).done:
            return True
        self._under_way, done = None, self._under_way
        done.result()
        return False

    def close(self) -> None:
        self._thread.shutdown()
        self._connection.close()

    def _step(self) -> None:
        try:
            next(self._messages)
        except StopIteration:
            self._ended = True

    def _life_of(self, op: Op[Any]) -> Generator[None, None, None]:
        """A message is sent between two `next()`; operations are begun anew like the store's."""
        while True:
            self.tries += 1
            assert self.tries <= TRIES, f"{op} was begun anew too often"
            try:
                yield from self._once(op)
                return
            except Interfered:
                pass
            except YaokiError as error:
                self.answer = error
                self._connection.execute("ROLLBACK")
                return
            except psycopg.Error as error:
                if not runs_again(error):
                    raise
            self._connection.execute("ROLLBACK")

    def _once(self, op: Op[Any]) -> Generator[None, None, None]:
        if op.atomic:
            self._connection.execute(BEGIN)
        steps = op.steps()
        try:
            statement = next(steps)
            while True:
                found = yield from self._asked(statement)
                statement = steps.send(found)
        except StopIteration as end:
            if op.atomic:
                self._connection.execute("COMMIT")
            self.answer = end.value

    def _asked(self, statement: Statement) -> Generator[None, None, Answer]:
        calls, now = self._dialect.calls(statement)
        for call in calls:
            cursor = self._connection.execute(call.text, call.values)
            found = _answer(cursor, now)
            yield
        return found


def _answer(cursor: psycopg.Cursor[Any], now: int) -> Answer:
    if cursor.description is None:
        return Answer([], cursor.rowcount, None, now)
    timed = cursor.description[-1].name == "now"
    return answer(cursor.fetchall(), cursor.rowcount, timed, now)
