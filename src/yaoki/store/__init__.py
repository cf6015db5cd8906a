"""Where jobs are kept: the table of database URLs."""

from yaoki.core.errors import InvalidOption, UnsupportedStore
from yaoki.store.base import Store
from yaoki.store.sqlite.store import SQLiteStore

__all__ = ["SQLiteStore", "Store", "open_store", "without_password"]


def open_store(url: str) -> Store:
    """The store of a URL; nothing is opened before it is used."""
    scheme, found, _ = url.partition(":")
    if found and scheme == "sqlite":
        return SQLiteStore(url)
    if found and scheme in ("postgresql", "postgres"):
        return _postgres(url)
    raise InvalidOption(
        f"{scheme[:20]!r} is no database that yaoki knows; write sqlite:///jobs.db (a file "
        "here), sqlite:////var/lib/jobs.db (a file elsewhere) or "
        "postgresql://user:password@host/database"
    )


def without_password(url: str) -> str:
    """A database URL as it may be shown and logged."""
    if not url.startswith("postgres"):
        return url
    try:
        from yaoki.store.postgres import place
    except ImportError:
        return "postgresql://***"
    return place.without_password(url)


def _postgres(url: str) -> Store:
    try:
        from yaoki.store.postgres.store import PostgresStore
    except ImportError as error:
        raise UnsupportedStore(
            "PostgreSQL needs psycopg, which is not installed: pip install 'yaoki[postgres]' "
            f"({error})"
        ) from error
    return PostgresStore(url)
