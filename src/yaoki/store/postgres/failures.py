"""What an error of PostgreSQL, or of the way to it, means to a user of yaoki."""

import re

import psycopg

from yaoki.core.errors import (
    NotInTransaction,
    StoreBusy,
    StoreError,
    StoreUnavailable,
    UnsupportedStore,
    YaokiError,
)

TO_BE_RUN_AGAIN = ("40001", "40P01")
"""Serialization failure and deadlock: the transaction was undone, and may well succeed now."""


class AnswerLost(psycopg.OperationalError):
    """The connection broke when something may have been committed already."""


def translated(error: BaseException, shown: str, *, writes: bool = True) -> Exception:
    """The error as one of yaoki's, with what can be done; `shown` names the database."""
    said = _first_line(error)
    if isinstance(error, AnswerLost) and writes and _WAITED_IN_VAIN not in said:
        return StoreUnavailable(f"{shown}: {said}; {_UNKNOWN}")
    return told(getattr(error, "sqlstate", None), said, shown, error)


def told(state: str | None, said: str, shown: str, error: BaseException | None = None) -> Exception:
    """The same from an SQLSTATE, for drivers of which psycopg knows nothing."""
    if state in _ADVICE:
        kind, advice = _ADVICE[state]
        return kind(f"{shown}: {said}; {advice}")
    if state is not None and state[:2] in ("08", "57", "53", "58"):
        return StoreUnavailable(f"{shown}: {said}{_by_words(said)}")
    if state is None and isinstance(
        error, psycopg.OperationalError | psycopg.InterfaceError | OSError
    ):
        return StoreUnavailable(f"{shown}: {said or 'the connection broke'}{_by_words(said)}")
    return StoreError(f"{shown}: {said}")


def runs_again(error: BaseException) -> bool:
    """Was the transaction undone for the sake of another one?"""
    return getattr(error, "sqlstate", None) in TO_BE_RUN_AGAIN


def _first_line(error: BaseException) -> str:
    lines = [" ".join(line.split()) for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    # Which call of libpq failed is of no use to anybody.
    return re.sub(r"^(consuming input failed|flushing failed|connection failed): ", "", lines[0])


def _by_words(said: str) -> str:
    """Advice on an error whose SQLSTATE is hidden (by libpq, while it connects) or says nothing."""
    for words, advice in _BY_WORDS.items():
        if re.search(words, said):
            return f"; {advice}"
    return ""


_AGAIN = "nothing was changed, try again"
_UNKNOWN = (
    "whether it was done is not known: look before you do it again, or do it with an idempotency "
    "key, which makes that safe"
)
_LOGIN = "check user and password in the URL, and pg_hba.conf"
_MAKE_IT = "make it first (createdb), or check the name in the URL"
_ONLY_READS = (
    "this server or role only reads (a standby? default_transaction_read_only?); connect to the "
    "primary, or name all hosts and target_session_attrs=read-write in the URL"
)
_TOO_MANY = (
    "the server has no more connections; lower pool= in the URL or the number of processes, "
    "raise max_connections, or put PgBouncer in between"
)
_TOO_SLOW = f"it took longer than the server or its owner allows (statement_timeout?); {_AGAIN}"
_KEPT_WAITING = (
    f"the server gave up a transaction that was idle for longer than it allows; {_AGAIN}, and "
    "raise that limit for this role"
)

_SHARED = (
    "sessions are shared by a connection pooler, which does not go with prepared=on: leave it out "
    "of the URL, or write prepared=off"
)

_ADVICE: dict[str | None, tuple[type[YaokiError], str]] = {
    "40001": (StoreBusy, _AGAIN),
    "40P01": (StoreBusy, _AGAIN),
    "55P03": (StoreBusy, f"another transaction has it locked; {_AGAIN}"),
    "57014": (StoreBusy, _TOO_SLOW),
    "25P03": (StoreUnavailable, _KEPT_WAITING),
    "25P04": (StoreUnavailable, _KEPT_WAITING),
    "25006": (StoreUnavailable, _ONLY_READS),
    "25P02": (
        NotInTransaction,
        "an earlier statement of this transaction failed; roll it back first",
    ),
    "28P01": (StoreUnavailable, _LOGIN),
    "28000": (StoreUnavailable, _LOGIN),
    "3D000": (StoreUnavailable, _MAKE_IT),
    "42501": (StoreError, "the role of the URL may not do that; grant it, or use another role"),
    "42P01": (StoreError, "make the tables with: yaoki migrate"),
    "3F000": (StoreError, "make the tables with: yaoki migrate"),
    "26000": (StoreError, _SHARED),
    "42P05": (StoreError, _SHARED),
    "53100": (StoreUnavailable, "the server's disk is full; free some space"),
    "53300": (StoreUnavailable, _TOO_MANY),
    "22021": (UnsupportedStore, "the database must have the encoding UTF8"),
    "22P05": (UnsupportedStore, "the database must have the encoding UTF8"),
}

_WAITED_IN_VAIN = "query_wait_timeout"
"""PgBouncer's word for it."""

_BY_WORDS = {
    r'password authentication failed|no password supplied|role ".*" does not exist'
    r"|pg_hba|authentication failed": _LOGIN,
    r'database ".*" does not exist|no such database': _MAKE_IT,
    r"too many (clients|connections)|remaining connection slots"
    r"|no more connections allowed": _TOO_MANY,
    r"permission denied for database": "grant CONNECT on it to the role of the URL",
    r"session is read-only|hot standby": _ONLY_READS,
    r"(startup|start-up) parameter.*options": (
        "PgBouncer passes options= on only when its ignore_startup_parameters names it; give the "
        "role its settings with ALTER ROLE instead"
    ),
    _WAITED_IN_VAIN: (
        "nothing was done, because PgBouncer had no session free; raise its default_pool_size: "
        "each open ctx.transaction() holds one"
    ),
    r"refused|timeout expired|No such file|resolve host|could not translate|unreachable"
    r"|No route": "check host and port in the URL, and whether the server runs",
}
"""By words of the server's or libpq's, which may be in another language: then without advice."""
