"""Django, which can be configured only once in a process, for tests of either database."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import django
from django.conf import settings
from django.db import connections


def configure(folder: Path) -> Path:
    """Two databases in files in `folder`, or where they were put before; the folder."""
    if not settings.configured:
        engine = "django.db.backends.sqlite3"
        settings.configure(
            DATABASES={
                "default": {"ENGINE": engine, "NAME": folder / "default.db"},
                "other": {"ENGINE": engine, "NAME": folder / "other.db"},
            },
        )
        django.setup()
    return Path(settings.DATABASES["default"]["NAME"]).parent


@contextmanager
def postgres_connection(alias: str, url: str, **more: Any) -> Iterator[Any]:
    """Django's connection of this name to a PostgreSQL database."""
    parts = urlsplit(url)
    about = {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.removeprefix("/"),
        "HOST": parts.hostname,
        "PORT": parts.port,
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
    }
    configured = connections.configure_settings({"default": {}, alias: about | more})
    connections.settings[alias] = configured[alias]
    try:
        yield connections[alias]
    finally:
        connections[alias].close()
        del connections[alias], connections.settings[alias]
