"""Django's connections, and the open atomic block that calls join by themselves."""

import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

from yaoki.core.errors import WrongConnection
from yaoki.store.postgres.callers import kinds
from yaoki.store.postgres.callers.talk import Driver


def from_django(connection: Any) -> "DjangoCaller":
    vendor = getattr(connection, "vendor", "")
    if vendor != "postgresql":
        raise WrongConnection(
            f"that Django connection is to {vendor or 'nothing'}, and the jobs are in PostgreSQL; "
            f"{kinds.HOW}"
        )
    return DjangoCaller(connection)


class DjangoCaller:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def borrow(self) -> Driver:
        self._connection.ensure_connection()
        driver = kinds.driver_of(self._connection.connection)
        assert driver.awaits is False, "the drivers that Django uses block"
        return driver

    def block(self) -> AbstractContextManager[None]:
        # Durable: in another atomic block, the end of this one would commit nothing.
        transaction = sys.modules["django.db.transaction"]
        block: AbstractContextManager[None] = transaction.atomic(
            using=self._connection.alias, durable=True
        )
        return block


def in_atomic_blocks() -> Iterator[Any]:
    """Django's connections to PostgreSQL that have a transaction open in this thread."""
    django = sys.modules.get("django.db")
    if django is None:
        return
    try:
        connections = django.connections.all(initialized_only=True)
    except Exception:  # settings that are not configured: Django is there, but not in use
        return
    for connection in connections:
        is_open = connection.vendor == "postgresql" and connection.in_atomic_block
        if is_open and connection.connection is not None:
            yield connection
