"""Databases and roles on the tests' server, for those that a page of the documentation names."""

import re
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from urllib.parse import urlsplit

import psycopg

from tests.support import page
from tests.support.postgres import database_of, fresh_database, with_database

NAMED = re.compile(r"postgres(?:ql)?(?:\+\w+)?://((?:([\w.]+)(:\w+)?@)?[\w.:,-]+/(\w+))")
"""Who, with which password, and which database."""

ROLE = re.compile(r"^CREATE ROLE (\w+)", re.MULTILINE)
DATABASE = re.compile(r"^CREATE DATABASE (\w+)", re.MULTILINE)

ADMINISTRATION = "postgres"
"""The database of this name is the server's own."""


@contextmanager
def stand_ins(markdown: str) -> Iterator[page.StandIns]:
    """For each database that the code of a page names, an empty one until the block ends.

    Roles that the page makes have the tests' own names too, and are dropped; whoever else it logs
    in as is the tests' user.
    """
    code = "\n".join(one.text for one in page.blocks(markdown) if one.language in page.RUN)
    found = {_Named(*named) for named in NAMED.findall(code)}
    if not found:
        yield page.StandIns()
        return
    with ExitStack() as held:
        names = {name for one in found if (name := one.database) != ADMINISTRATION}
        urls = {name: held.enter_context(fresh_database(migrated=False)) for name in sorted(names)}
        admin = with_database(next(iter(urls.values())), ADMINISTRATION)
        urls[ADMINISTRATION] = admin
        for name in DATABASE.findall(code):
            _execute(admin, f"DROP DATABASE {database_of(urls[name])} WITH (FORCE)")
        roles = {role: f"{role}_{secrets.token_hex(4)}" for role in ROLE.findall(code)}
        into = {one.place: _stand_in(one, urls[one.database], roles) for one in found}
        back = {_shown(ours): _shown(said) for said, ours in into.items()}
        into |= {f"DATABASE {name}": f"DATABASE {database_of(url)}" for name, url in urls.items()}
        try:
            yield page.StandIns(into | roles, back | {ours: role for role, ours in roles.items()})
        finally:
            for url in urls.values() if roles else ():
                if url != admin:
                    _execute(admin, f"DROP DATABASE IF EXISTS {database_of(url)} WITH (FORCE)")
            for role in roles.values():
                _execute(admin, f"DROP ROLE IF EXISTS {role}")


class _Named(NamedTuple):
    place: str
    user: str
    password: str
    database: str


def _stand_in(one: _Named, url: str, roles: dict[str, str]) -> str:
    parts = urlsplit(url)
    login, _, server = parts.netloc.rpartition("@")
    if one.user in roles:
        login = f"{roles[one.user]}{one.password}"
    return f"{login}@{server}{parts.path}"


def _shown(place: str) -> str:
    """As yaoki shows it: without a password."""
    return re.sub(r":\w+@", ":***@", place)


def _execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())
