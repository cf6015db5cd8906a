"""Statements on their way to the server and back, in as few journeys as possible.

A round trip costs as much as the work of a small statement, so what needs no answer travels with
what does: BEGIN with the first statement, COMMIT with the last writes, and behind the COMMIT the
look for sleepers (libpq's pipeline mode; docs/decisions/0018-postgres-connections.md).
"""

from collections.abc import Generator, Sequence
from hashlib import blake2s
from typing import Any

import psycopg
from psycopg import errors, pq
from psycopg.abc import PQGen
from psycopg.adapt import Transformer
from psycopg.waiting import Ready, Wait

from yaoki.store.op import Answer, Statement
from yaoki.store.postgres.binary import binary
from yaoki.store.postgres.connection import PLAIN
from yaoki.store.postgres.failures import AnswerLost
from yaoki.store.postgres.statements import Call, Dialect, answer

Results = list[pq.abc.PGresult]

BINARY = pq.Format.BINARY


class Wire:
    """The statements of one connection, which nobody else uses meanwhile.

    What waits is a generator in psycopg's protocol: a connection's `wait` runs it to its end,
    blocking or awaiting.
    """

    def __init__(
        self,
        line: psycopg.Connection[Any] | psycopg.AsyncConnection[Any],
        dialect: Dialect,
        prepared: bool,
    ) -> None:
        self._pgconn, self._dialect, self._prepared = line.pgconn, dialect, prepared
        self._names: dict[str, bytes] = {}
        self._transformer = Transformer(PLAIN)
        self._waiting: list[Call] = []

    def begin(self, texts: Sequence[str]) -> None:
        """These go with the first statement, before it."""
        self._waiting = [Call(text, ()) for text in texts]

    def later(self, statement: Statement) -> Answer:
        """Goes with the next one; its answer is not looked at, but its errors are."""
        calls, now = self._dialect.calls(statement)
        self._waiting += calls
        return Answer([], 0, None, now)

    def drop(self) -> None:
        """What has not been sent is not sent any more."""
        self._waiting = []

    def ask(self, statement: Statement) -> PQGen[Answer]:
        """The answer to a statement."""
        return self._answer(statement)

    def ask_alone(
        self, statement: Statement, begin: Sequence[str], then: Statement | None
    ) -> PQGen[Answer]:
        """The same for one that is a transaction of its own; `then` is run after its commit.

        With `begin`, these texts begin the transaction; else it needs no words.
        """
        self.begin(begin)
        return self._answer(statement, (_COMMIT,) if begin else (), then, commits=True)

    def _answer(
        self,
        statement: Statement,
        end: Sequence[Call] = (),
        then: Statement | None = None,
        *,
        commits: bool = False,
    ) -> PQGen[Answer]:
        calls, now = self._dialect.calls(statement)
        results = yield from self._sent([*calls, *end], then, commits=commits)
        last = results[len(calls) - 1]
        changed, columns = last.command_tuples or 0, last.nfields
        if not columns:
            return Answer([], changed, None, now)
        self._transformer.set_pgresult(last, format=BINARY)
        rows = self._transformer.load_rows(0, last.ntuples, tuple)
        return answer(rows, changed, last.fname(columns - 1) == b"now", now)

    def commit(self, then: Statement | None = None) -> PQGen[None]:
        """End the transaction; `then` is run after it."""
        [result] = yield from self._sent([_COMMIT], then, commits=True)
        if result.command_status != b"COMMIT":
            raise errors.InFailedSqlTransaction("the transaction was rolled back instead")

    def _sent(
        self, calls: Sequence[Call], then: Statement | None, *, commits: bool
    ) -> PQGen[Results]:
        """The results of `calls`, which are sent with what waits; raises the first error.

        AnswerLost when the connection breaks and the server may have committed.
        """
        waiting, self._waiting = self._waiting, []
        behind = () if then is None else self._dialect.calls(then)[0]
        pgconn = self._pgconn
        pgconn.enter_pipeline_mode()
        sent = [self._send(call) for call in (*waiting, *calls)]
        pgconn.pipeline_sync()
        if behind:
            sent_behind = [self._send(call) for call in behind]
            pgconn.pipeline_sync()
        arrived: list[Results] = [[]]
        try:
            yield from _fetch(pgconn, arrived, 2 if behind else 1)
            pgconn.exit_pipeline_mode()
        except errors.OperationalError as error:
            # With the answer to what came behind, nothing is lost that was asked for.
            if len(arrived) == 1:
                cut_off = _problem(arrived[0]) or _last_words(pgconn) or error
                raise (AnswerLost(str(cut_off)) if commits else cut_off) from error
        if len(arrived) > 1:
            self._own(arrived[1], sent_behind)
        own = self._own(arrived[0], sent)[len(waiting) :]
        if (problem := _problem(arrived[0])) is not None:
            raise problem
        return own

    def _own(self, results: Results, sent: Sequence[str | None]) -> Results:
        """The results of the statements, without those of preparing them.

        What could not be prepared is prepared the next time. Of what came behind a commit some is
        missing when the connection broke.
        """
        each = iter(results)
        own = []
        for text in sent:
            if text is not None:
                made = next(each, None)
                if made is None or made.status != pq.ExecStatus.COMMAND_OK:
                    del self._names[text]
            own += [one for one in (next(each, None),) if one is not None]
        return own

    def _send(self, call: Call) -> str | None:
        """Put a statement into libpq's buffer; its text when it is prepared by the way.

        It is named by its text: in a session that others use too (a pooler's, by mistake) a name
        must never stand for something else.
        """
        values = [binary(value) for value in call.values]
        formats = [BINARY] * len(values)
        if not self._prepared:
            self._pgconn.send_query_params(call.text.encode(), values, None, formats, BINARY)
            return None
        name = self._names.get(call.text)
        if name is not None:
            self._pgconn.send_query_prepared(name, values, formats, BINARY)
            return None
        text = call.text.encode()
        name = self._names[call.text] = (
            b"yaoki_" + blake2s(text, digest_size=12).hexdigest().encode()
        )
        self._pgconn.send_prepare(name, text)
        self._pgconn.send_query_prepared(name, values, formats, BINARY)
        return call.text


_COMMIT = Call("COMMIT", ())


def _fetch(
    pgconn: pq.abc.PGconn, groups: list[Results], syncs: int
) -> Generator[Wait, Ready, None]:
    """Send what is in the buffer, and collect results, as many groups as there are syncs."""
    while True:
        unsent = pgconn.flush()
        ready = yield Wait.RW if unsent else Wait.R
        if not ready & Ready.R:
            continue
        pgconn.consume_input()
        while not pgconn.is_busy():
            result = pgconn.get_result()
            if result is None:
                if pgconn.status == pq.ConnStatus.BAD:
                    raise errors.OperationalError("the server closed the connection")
                # Behind each statement of a pipeline there is one of these.
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                if len(groups) == syncs:
                    return
                groups.append([])
            else:
                groups[-1].append(result)


def _last_words(pgconn: pq.abc.PGconn) -> errors.Error | None:
    """What a server said before it closed the connection, which libpq still has in its buffer."""
    nothing = 0
    while pgconn.status == pq.ConnStatus.BAD and nothing < 2:
        result = pgconn.get_result()
        if result is None:
            nothing += 1
            continue
        nothing = 0
        if result.status in _FAILED and result.error_field(pq.DiagnosticField.SQLSTATE):
            return errors.error_from_result(result)
    return None


def _problem(results: Results) -> errors.Error | None:
    for result in results:
        if result.status in _FAILED:
            return errors.error_from_result(result)
    return None


_FAILED = (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE)
