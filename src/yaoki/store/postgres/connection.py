"""Connections of our own: how they are opened, and how statements run on them."""

import math
import os
import select
import socket
import time
import weakref
from collections.abc import Generator
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.adapt import AdaptersMap
from psycopg.postgres import register_default_adapters
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.waiting import Ready

from yaoki.core.errors import StoreUnavailable
from yaoki.store.patience import patience
from yaoki.store.postgres.failures import translated
from yaoki.store.postgres.place import Place

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds that a server may take to answer before it is taken for dead; less for whoever says so
(store/patience.py)."""

CONNECT_WITHIN = 10
SOON = range(2, 5)
"""Seconds that connecting may take, for each host of the URL. For those who try again anyway it is
less, by their patience: so soon they go on when a server that said nothing says something again."""

_DEFAULTS: dict[str, Any] = {
    "application_name": "yaoki",
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Unless the URL says otherwise: a dead network is noticed within half a minute."""


def _as_psycopg_makes_them() -> AdaptersMap:
    """How values are converted, whatever a program has changed for itself or for everybody."""
    adapters = AdaptersMap(types=psycopg.adapters.types)
    register_default_adapters(adapters)
    # One type for every integer: else each size of a number would be a statement of its own.
    adapters.register_dumper(int, Int8BinaryDumper)
    return adapters


PLAIN = _as_psycopg_makes_them()


CANCEL_PATIENCE = 2.0
"""Seconds that a server which has fallen silent has to take a request to cancel."""


class NoAnswer(psycopg.OperationalError):
    """The server has said nothing for too long."""


class Line(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does not wait for ever for a server which has fallen silent."""

    patience = PATIENCE

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        limit = min(self.patience, patience().seconds)
        try:
            answer: T = super().wait(bounded(gen, limit), *args, **kwargs)
        except psycopg.OperationalError as error:
            if was_not_answered(error):
                # A session that waits for a lock would not notice that nobody waits for it.
                with suppress(psycopg.Error, OSError):
                    self.cancel_safe(timeout=min(CANCEL_PATIENCE, limit))
                hang_up(self)
            raise
        return answer

    def __del__(self, *args: Any) -> None:
        # Quietly: nobody may be left who could have closed it.
        if hasattr(self, "pgconn"):
            hang_up(self)


class AsyncLine(psycopg.AsyncConnection[tuple[Any, ...]]):
    """The same, awaiting."""

    patience = PATIENCE

    async def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        limit = min(self.patience, patience().seconds)
        try:
            answer: T = await super().wait(bounded(gen, limit), *args, **kwargs)
        except psycopg.OperationalError as error:
            if was_not_answered(error):
                with suppress(psycopg.Error, OSError):
                    await self.cancel_safe(timeout=min(CANCEL_PATIENCE, limit))
                hang_up(self)
            raise
        return answer

    def __del__(self, *args: Any) -> None:
        # An event loop ends without a word, and with it those who used its connections.
        if hasattr(self, "pgconn"):
            hang_up(self)


_PLANS = "-c enable_seqscan=off -c enable_bitmapscan=off -c jit=off"
"""A plan that was made while a table was tiny reads all of it, and is kept when it has grown."""

_KEEPALIVES = "-c tcp_keepalives_idle=15 -c tcp_keepalives_interval=5 -c tcp_keepalives_count=3"
"""For the server: a client that has vanished in a transaction keeps its locks for half a minute,
and not for the two hours after which a kernel asks of its own accord."""

IDLE_IN_TRANSACTION = "60s"
"""The same for one that is there and does nothing: a process that was stopped, a machine asleep."""

_BOUND_IDLENESS = """
SELECT set_config('idle_in_transaction_session_timeout', '{}', false)
WHERE current_setting('idle_in_transaction_session_timeout') = '0'
"""


def options(
    conninfo: str, *, plans: bool = False, direct: bool = False, within: float = math.inf
) -> dict[str, Any]:
    """What libpq is told besides the URL."""
    given = psycopg.conninfo.conninfo_to_dict(conninfo)
    connect_within = math.ceil(max(min(within, CONNECT_WITHIN), SOON[0]))
    defaults = _DEFAULTS | {"connect_timeout": connect_within}
    added = {name: value for name, value in defaults.items() if name not in given}
    added["client_encoding"] = "UTF8"
    if "," in str(given.get("host", "")) and "target_session_attrs" not in given:
        added["target_session_attrs"] = "read-write"
    if plans or direct:
        theirs = str(given.get("options", os.environ.get("PGOPTIONS", "")))
        each = (_KEEPALIVES if direct else "", theirs, _PLANS if plans else "")
        added["options"] = " ".join(one for one in each if one)
    return added


def connect(
    place: Place,
    *,
    plans: bool = False,
    direct: bool = False,
    listening: bool = False,
    lent: bool = False,
) -> Line:
    """A connection in autocommit mode; StoreUnavailable when there is none to be had.

    `lent`: to a handler, who expects values to be converted as everywhere in his program.
    `plans`: for statements that are prepared. `direct`: nobody is in between. Both are settings of
    the session, so not through a pooler that shares sessions.
    """
    conninfo = place.listen if listening and place.listen else place.conninfo
    try:
        limit = min(patience().seconds, SOON[-1] if listening or patience().upkeep else math.inf)
        added = options(conninfo, plans=plans, direct=direct, within=limit) | _in_turn(conninfo)
        line = Line.connect(conninfo, autocommit=True, context=None if lent else PLAIN, **added)
        _note_turn(conninfo, line)
        if direct and not lent:
            line.execute(_BOUND_IDLENESS.format(IDLE_IN_TRANSACTION), prepare=False)
    except (psycopg.Error, OSError, UnicodeError) as error:
        raise _unreachable(error, place) from error
    line.prepare_threshold = None
    # Whatever the role's default is: of two migrators the second must see what the first did.
    line.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
    _open.add(line)
    return line


async def aconnect(place: Place, *, plans: bool = False, direct: bool = False) -> AsyncLine:
    """The same, awaiting."""
    added = options(place.conninfo, plans=plans, direct=direct) | _in_turn(place.conninfo)
    try:
        line = await AsyncLine.connect(place.conninfo, autocommit=True, context=PLAIN, **added)
        _note_turn(place.conninfo, line)
        if direct:
            await line.execute(_BOUND_IDLENESS.format(IDLE_IN_TRANSACTION), prepare=False)
    except (psycopg.Error, OSError, UnicodeError) as error:
        raise _unreachable(error, place) from error
    line.prepare_threshold = None
    _open.add(line)
    return line


_first: dict[str, int] = {}
"""Which of the hosts of a URL was the right one the last time."""


def _hosts(conninfo: str) -> list[tuple[str, str]]:
    """Those of a URL with several, and their ports; none when their order is not ours to choose."""
    given = psycopg.conninfo.conninfo_to_dict(conninfo)
    hosts, ports = (str(given.get(name, "")).split(",") for name in ("host", "port"))
    if len(hosts) < 2 or given.get("hostaddr") or given.get("load_balance_hosts"):
        return []
    ports = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
    return list(zip(hosts, ports, strict=True))


def _in_turn(conninfo: str) -> dict[str, str]:
    """The hosts of a URL, beginning with the right one of the last time.

    One that is gone may cost a connect_timeout, and that would be before each connection.
    """
    first, hosts = _first.get(conninfo, 0), _hosts(conninfo) if conninfo in _first else []
    turned = hosts[first:] + hosts[:first]
    if not turned:
        return {}
    hosts_then, ports_then = (",".join(each) for each in zip(*turned, strict=True))
    return {"host": hosts_then} | ({"port": ports_then} if ports_then.strip(",") else {})


def _note_turn(conninfo: str, line: Line | AsyncLine) -> None:
    for place, (host, port) in enumerate(_hosts(conninfo)):
        if (line.info.host, str(line.info.port)) == (host, port or str(line.info.port)):
            _first[conninfo] = place


def leave_to_the_parent() -> None:
    """In a forked child: nothing that is done here to connections of before is heard outside.

    Each gets the end of a dead line in the place of its socket. So the server also notices when
    the parent dies, although this child lives on.
    """
    ours, theirs = socket.socketpair()
    theirs.close()
    for line in list(_open):
        with suppress(psycopg.Error, OSError):
            os.dup2(ours.fileno(), line.pgconn.socket, inheritable=False)
    ours.close()


_open: "weakref.WeakSet[Line | AsyncLine]" = weakref.WeakSet()


def is_fresh(line: Line | AsyncLine) -> bool:
    """Has nothing arrived on an idle connection? What arrives there is a farewell."""
    if line.closed or line.pgconn.transaction_status != psycopg.pq.TransactionStatus.IDLE:
        return False
    if not hasattr(select, "poll"):
        readable, _, _ = select.select([line.pgconn.socket], [], [], 0)
        return not readable
    poll = select.poll()
    poll.register(line.pgconn.socket, select.POLLIN)
    return not poll.poll(0)


def hang_up(line: Line | AsyncLine) -> None:
    """Close without a word that would have to be awaited."""
    line.pgconn.finish()


def _unreachable(error: BaseException, place: Place) -> Exception:
    found = translated(error, place.shown)
    if isinstance(found, StoreUnavailable):
        return found
    return StoreUnavailable(str(found))


def was_not_answered(error: BaseException) -> bool:
    """Was the server given up because it said nothing?"""
    return isinstance(error, NoAnswer) or isinstance(error.__cause__, NoAnswer)


def bounded(gen: Generator[Any, Any, T], patience: float) -> Generator[Any, Any, T]:
    """`gen`, but for an OperationalError when nothing has arrived for `patience` seconds."""
    try:
        wanted = next(gen)
    except StopIteration as end:
        value: T = end.value
        return value
    quiet_since = time.monotonic()
    while True:
        # None: the wait before was interrupted, and this is another one for the same.
        ready = (yield wanted) or Ready.NONE
        if ready:
            quiet_since = time.monotonic()
        try:
            if not ready and time.monotonic() - quiet_since > patience:
                wanted = gen.throw(
                    NoAnswer(f"the server has not answered for {patience:g} s, and was given up")
                )
            else:
                wanted = gen.send(ready)
        except StopIteration as end:
            value = end.value
            return value
