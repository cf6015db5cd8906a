"""The database as it was found: what the server is, and the connections to it."""

import asyncio
import logging
import math
import threading
import weakref
from collections.abc import Callable
from typing import NamedTuple

import psycopg

from yaoki.core.errors import StoreUnavailable, UnsupportedStore
from yaoki.store.postgres.connection import Line, aconnect, connect
from yaoki.store.postgres.failures import translated
from yaoki.store.postgres.migrate import migrate, not_applied, version
from yaoki.store.postgres.place import Place
from yaoki.store.postgres.pool import AsyncLent, AsyncPool, Lent, Pool
from yaoki.store.postgres.statements import Dialect
from yaoki.store.postgres.wire import Wire

log = logging.getLogger("yaoki.store")

OLDEST = 130_000
"""PostgreSQL 13, as server_version_num has it."""

UPKEEP = 5
"""All that a worker's threads do at once: exchanging, recording, renewing, rescuing, and what is
done by name."""


class Server(NamedTuple):
    """What was asked of the server when it was first reached."""

    version: int
    pooled: bool
    """PgBouncer, or another of its kind, is in between."""


class Opened:
    """The connections of this process to the database, by who uses them.

    What is short has at most `place.pool` connections for all threads, and as many for each event
    loop. Workers have a few more for their upkeep, and each transaction of a handler has one of
    its own: so whatever handlers do, leases are renewed and outcomes are recorded. Nobody waits for
    one for upkeep: a worker's threads are few, and some may wait for a server that is silent.
    `doubted` is called when no connection can be relied on any more.
    """

    def __init__(
        self,
        place: Place,
        dialect: Dialect,
        server: Server,
        doubted: Callable[[], None] = lambda: None,
    ) -> None:
        self.place, self.dialect, self.server = place, dialect, server
        self.prepared = place.prepared == "on" or (place.prepared == "auto" and not server.pooled)
        # Whoever says prepared=off may have a pooler that nobody notices.
        self._ours = self.prepared and not server.pooled
        self.doubted = doubted
        self.pool = Pool(place.pool, self._lent, self.doubt)
        self.upkeep = Pool(UPKEEP, self._lent, self.doubt, waits=False)
        self.transactions = Pool(place.pool, self._lent_to_a_handler, self.doubt, waits=False)
        self._loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncPool] = (
            weakref.WeakKeyDictionary()
        )
        self._lock = threading.Lock()

    @property
    def listens(self) -> bool:
        """Can this process be woken by NOTIFY? Not through a pooler that shares sessions."""
        if self.place.wake == "poll":
            return False
        return self.place.listen is not None or not self.server.pooled

    def listener(self) -> Line:
        """A connection for LISTEN, with nobody in between."""
        return connect(self.place, listening=True)

    def async_pool(self) -> AsyncPool:
        """The pool of the running event loop."""
        loop = asyncio.get_running_loop()
        found = self._loops.get(loop)
        if found is not None:
            return found
        self._hang_up_after_loops()
        with self._lock:
            self._loops[loop] = AsyncPool(self.place.pool, self._alent, self.doubt)
            return self._loops[loop]

    def doubt(self) -> None:
        """Keep no connection that nobody uses: it may lead nowhere."""
        for pool in self._all():
            pool.forget()
        self.doubted()

    def close(self) -> None:
        for pool in self._all():
            pool.close()

    def _all(self) -> list[Pool | AsyncPool]:
        with self._lock:
            return [self.pool, self.upkeep, self.transactions, *self._loops.values()]

    def _hang_up_after_loops(self) -> None:
        """Nobody says so when an event loop ends, so it is looked at now and then."""
        with self._lock:
            for loop, pool in list(self._loops.items()):
                if loop.is_closed():
                    pool.close()
                    del self._loops[loop]

    def _lent(self) -> Lent:
        self._hang_up_after_loops()
        line = connect(self.place, plans=self._ours, direct=self._ours)
        return Lent(line, Wire(line, self.dialect, self.prepared))

    def _lent_to_a_handler(self) -> Lent:
        # Nothing is prepared on it: it is wiped clean after each use. And how long a handler's own
        # statements may take is not for us to say.
        line = connect(self.place, lent=True, direct=self._ours)
        line.patience = math.inf
        return Lent(line, Wire(line, self.dialect, prepared=False))

    async def _alent(self) -> AsyncLent:
        line = await aconnect(self.place, plans=self._ours, direct=self._ours)
        return AsyncLent(line, Wire(line, self.dialect, self.prepared))


def open_database(
    place: Place, dialect: Dialect, doubted: Callable[[], None] = lambda: None
) -> tuple[Opened, list[str]]:
    """Reach the server, see that it is fit, and make the tables; the migrations applied."""
    line = connect(place)
    try:
        server = _asked(line, place)
        applied = []
        if not_applied(line, dialect):
            # A big table takes its time, and so does whoever is at it already.
            line.patience = math.inf
            applied = migrate(line, dialect)
    except psycopg.Error as error:
        raise translated(error, place.shown) from error
    finally:
        line.close()
    for name in applied:
        log.info("schema migration %s applied to %s", name, place.shown)
    if server.pooled and place.wake == "notify" and place.listen is None:
        log.info(
            "%s is reached through a connection pooler, which passes no notifications on: workers "
            "look once a second; with listen=URL of a direct connection they are woken at once",
            place.shown,
        )
    return Opened(place, dialect, server, doubted), applied


def has_tables(place: Place, dialect: Dialect) -> bool:
    """Are there tables of ours, of whatever version? Changes nothing."""
    line = connect(place)
    try:
        return version(line, dialect) > 0
    except psycopg.Error as error:
        raise translated(error, place.shown) from error
    finally:
        line.close()


def _asked(line: Line, place: Place) -> Server:
    [(number, encoding, only_reads, pid)] = line.execute(
        "SELECT current_setting('server_version_num')::int, "
        "current_setting('server_encoding'), pg_is_in_recovery(), pg_backend_pid()"
    ).fetchall()
    if number < OLDEST:
        raise UnsupportedStore(
            f"{place.shown} is PostgreSQL {number // 10_000}; yaoki needs 13 or newer"
        )
    if encoding != "UTF8":
        raise UnsupportedStore(
            f"{place.shown} has the encoding {encoding}, which cannot hold every text; make the "
            "database with ENCODING 'UTF8'"
        )
    if only_reads:
        raise StoreUnavailable(
            f"{place.shown} only reads (a standby?); connect to the primary, or name all hosts "
            "and target_session_attrs=read-write in the URL"
        )
    return Server(number, pid != line.info.backend_pid)
