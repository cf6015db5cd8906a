"""Where jobs are kept: the table of database URLs."""

from yaoki.core.errors import InvalidOption, UnsupportedStore
from yaoki.store.base import Store
from yaoki.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore", "Store", "open_store"]


def open_store(url: str) -> Store:
    """The store of a URL; nothing is opened before it is used."""
    scheme, found, _ = url.partition(":")
    if found and scheme == "sqlite":
        return SQLiteStore(url)
    if scheme in ("postgresql", "postgres"):
        raise UnsupportedStore(
            "PostgreSQL is not supported by this version of yaoki yet; use sqlite:///jobs.db"
        )
    raise InvalidOption(
        f"{scheme[:20]!r} is no database that yaoki knows; write sqlite:///jobs.db (a file "
        "here) or sqlite:////var/lib/jobs.db (a file elsewhere)"
    )
