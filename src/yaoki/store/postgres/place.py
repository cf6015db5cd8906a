"""Which database, and how it is to be used: the URL of a PostgreSQL store."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import unquote

import psycopg

from yaoki.core.errors import InvalidOption

SCHEMES = ("postgresql", "postgres")

LEAST_POOL = 2
"""One that waits for somebody else's transaction must not keep all others waiting."""


@dataclass(frozen=True, slots=True)
class Place:
    """A parsed `postgresql://user:password@host:port/database?schema=yaoki&…`.

    `conninfo` is what libpq is given: the URL without our own options. `listen` is the same of a
    direct connection, for a queue behind PgBouncer. `pool` is how many connections the threads of
    this process use at most for what is short, and each of its event loops; a worker has up to
    five more, and one to listen, and each open `ctx.transaction()` has one more. `shown` is the
    URL for people: without passwords.
    """

    conninfo: str = field(repr=False)
    shown: str
    schema: str = "yaoki"
    wake: str = "notify"
    listen: str | None = field(default=None, repr=False)
    pool: int = 10
    prepared: str = "auto"
    durability: str = "full"


def parse(url: str) -> Place:
    """The place that a URL names; InvalidOption says what is wrong with it, and no password."""
    parts = _split(url)
    ours = {name: _OURS[name](name, value) for name, value in parts.options if name in _OURS}
    theirs = parts._replace(
        options=[(name, _encoded(value)) for name, value in parts.options if name not in _OURS]
    )
    return replace(Place(_for_libpq(theirs), theirs.shown), **ours)


def without_password(url: str) -> str:
    """A URL with *** for its passwords; for messages and logs."""
    try:
        return _split(url).shown
    except InvalidOption:
        return "postgresql://***"


class _Parts(NamedTuple):
    """The parts of a URL, percent-encoded as they were."""

    user: str
    password: str | None
    hosts: str
    path: str
    options: list[tuple[str, str]]

    @property
    def url(self) -> str:
        return self._joined(self.password, self.options)

    @property
    def shown(self) -> str:
        hidden = [(name, _hidden(name, value)) for name, value in self.options]
        return self._joined(None if self.password is None else "***", hidden)

    def _joined(self, password: str | None, options: list[tuple[str, str]]) -> str:
        user = self.user if password is None else f"{self.user}:{password}"
        at = "@" if user else ""
        query = "&".join(f"{name}={value}" for name, value in options)
        return f"postgresql://{user}{at}{self.hosts}{self.path}{'?' if query else ''}{query}"


def _split(url: str) -> _Parts:
    """The parts of a URL; whatever is refused is not shown, since it may be a password."""
    found = _URL.fullmatch(url.strip())
    if found is None or re.search("[\ud800-\udfff]", url):
        raise InvalidOption(_WRONG)
    if "#" in url:
        raise InvalidOption("there is a # in the database URL; in a password it is written %23")
    if re.search(r"%(?![0-9A-Fa-f]{2})", url):
        raise InvalidOption("there is a % in the database URL; in a password it is written %25")
    if "%00" in url:
        raise InvalidOption("there is a %00 in the database URL, which PostgreSQL cannot take")
    user, colon, password = (found["login"] or "").partition(":")
    pairs = [pair.partition("=") for pair in (found["query"] or "").split("&") if pair]
    if not all(equals and _NAME.fullmatch(name) for name, equals, _ in pairs):
        raise InvalidOption(
            f"behind the ? of a database URL there is name=value&name=value; {_TIP}"
        )
    return _Parts(
        _encoded(user),
        _encoded(password) if colon else None,
        found["hosts"],
        _encoded(found["path"]),
        [(name, value) for name, _, value in pairs],
    )


def _for_libpq(parts: _Parts) -> str:
    """The URL, once libpq has said that it can read it."""
    try:
        psycopg.conninfo.conninfo_to_dict(parts.url)
    except psycopg.ProgrammingError as error:
        # Its words may quote the password, but not where they are about a name.
        unknown = re.match(r'invalid URI query parameter: "(\w+)"', str(error))
    else:
        return parts.url
    if unknown is None:
        raise InvalidOption(_WRONG)
    raise InvalidOption(
        f"{unknown[1][:50]!a} in the database URL is nothing that yaoki or PostgreSQL knows; "
        f"yaoki's own are {', '.join(_OURS)}"
    )


def _encoded(text: str) -> str:
    """What people leave as it is and libpq takes amiss."""
    return text.replace(" ", "%20").replace("=", "%3D")


def _decoded(value: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise InvalidOption("in the database URL, %-encoded text must be UTF-8") from None


def _hidden(name: str, value: str) -> str:
    if name == "listen":
        return without_password(_unwrapped(value))
    return "***" if name in _SECRET else value


def _unwrapped(value: str) -> str:
    """A URL within a URL; one that was put in as it is has its own % signs only."""
    return value if "://" in value else _decoded(value)


def _one_of(*values: str) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        value = _decoded(value)
        if value not in values:
            raise InvalidOption(
                f"{name}={value[:50]!a} in the database URL: there are "
                f"{' and '.join(f'{name}={each}' for each in values)}"
            )
        return value

    return check


def _schema(name: str, value: str) -> str:
    value = _decoded(value)
    if not re.fullmatch(r"[^\W\d][\w$-]*", value) or len(value.encode()) > 63:
        raise InvalidOption(
            f"schema={value[:70]!a} in the database URL: a schema is named by letters, digits, _, "
            "- and $, at most 63 bytes, and begins with a letter or _"
        )
    if value.startswith("pg_") or value == "information_schema":
        raise InvalidOption(f"schema={value!a} in the database URL: that is PostgreSQL's own")
    return value


def _pool(name: str, value: str) -> int:
    value = _decoded(value)
    if not re.fullmatch(r"[0-9]{1,4}", value) or int(value) < LEAST_POOL:
        raise InvalidOption(
            f"pool={value[:50]!a} in the database URL: a whole number from {LEAST_POOL} to 9999, "
            "so that one which waits for somebody's transaction does not keep all others waiting"
        )
    return int(value)


def _listen(name: str, value: str) -> str:
    parts = _split(_unwrapped(value))
    if any(option in _OURS for option, _ in parts.options):
        raise InvalidOption(
            "the URL in listen= is only for LISTEN: leave yaoki's own options out of it"
        )
    return _for_libpq(
        parts._replace(options=[(name, _encoded(value)) for name, value in parts.options])
    )


_SECRET = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")

_TIP = "a password with @, :, /, ? or % in it is percent-encoded"
_WRONG = (
    "that is no PostgreSQL URL: write postgresql://user:password@host:5432/database; "
    f"{_TIP} (@ is %40)"
)

_HOST = r"(?: \[[^\]\s@/]*\] | [^:@/?\[\]\s,]* ) (?: :[0-9]* )?"
_URL = re.compile(
    rf"""
    (?: {"|".join(SCHEMES)} ) ://
    (?: (?P<login> [^@/?\x00-\x1f]* ) @ )?
    (?P<hosts> {_HOST} (?: ,{_HOST} )* )
    (?P<path> (?: / [^@?\x00-\x1f]* )? )
    (?: \? (?P<query> [^\x00-\x1f]* ) )?
    """,
    re.VERBOSE,
)
_NAME = re.compile(r"\w+")

_OURS: dict[str, Callable[[str, str], Any]] = {
    "schema": _schema,
    "wake": _one_of("notify", "poll"),
    "listen": _listen,
    "pool": _pool,
    "prepared": _one_of("auto", "on", "off"),
    "durability": _one_of("full", "normal"),
}
