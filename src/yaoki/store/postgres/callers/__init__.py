"""The caller's own connection: psycopg, asyncpg, psycopg2, SQLAlchemy or Django."""

from yaoki.store.postgres.callers.blocks import ablock, block, joined, on
from yaoki.store.postgres.callers.home import Home
from yaoki.store.postgres.callers.whole import Manner

__all__ = ["Home", "Manner", "ablock", "block", "joined", "on"]
