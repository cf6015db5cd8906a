"""What went wrong, made storable: any exception, any text, of any size."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from reprlib import Repr
from traceback import TracebackException
from types import TracebackType

MAX_ERROR = 2_000
MAX_TRACEBACK = 16_000
MAX_KIND = 500
SHORTEST_SECRET = 4
"""Shorter texts are not hidden: they would be found, and betrayed, all over the place."""

_brief = Repr()
_brief.maxlevel = 4
_brief.maxdict = _brief.maxlist = _brief.maxtuple = _brief.maxset = _brief.maxfrozenset = 12
_brief.maxstring = _brief.maxother = _brief.maxlong = 240


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as it is stored: what it says, where it came from, which class it is."""

    error: str
    traceback: str
    kind: str


def describe(error: BaseException, hide: Collection[str] = ()) -> Failure:
    """The exception as text, with `hide` replaced by ***. Never raises."""
    kind = kind_of(type(error))
    try:
        secrets = _secrets(hide)
        return Failure(
            text(_without(secrets, _headline(error)), MAX_ERROR),
            text(_without(secrets, _traceback(error)), MAX_TRACEBACK),
            kind,
        )
    except BaseException:  # out of memory, or worse: what is left to say is the class
        return Failure(kind, "", kind)


def text(value: object, limit: int, hide: Collection[str] = ()) -> str:
    """What `str` says, fit for every database; the middle goes when it is too long."""
    said = _without(_secrets(hide), _said(value, str, repr))
    room = limit
    while len(fitted := _escaped(_cut(said, room))) > limit:
        room //= 2  # escapes made it longer; cutting after escaping could halve one
    return fitted


def shown(value: object, limit: int = 80) -> str:
    """What `repr` says, abbreviated, for messages and records."""
    said = _escaped(_said(value, _brief.repr))
    return said if len(said) <= limit else said[: limit - 1] + "…"


def kind_of(cls: type) -> str:
    """The class by its full name, `module.Class`, as far as it has one."""
    module = _name(cls, "__module__", "")
    name = _name(cls, "__qualname__", "exception")
    return text(f"{module}.{name}" if module else name, MAX_KIND)


def _said(value: object, *ways: Callable[[object], str]) -> str:
    for way in ways:
        try:
            return str.__str__(way(value))
        except BaseException:  # code of the value's own runs here
            continue
    return f"<{_name(type(value), '__name__', 'object')} that cannot be shown>"


def _escaped(said: str) -> str:
    if "\0" in said:
        said = said.replace("\0", "\\x00")
    return said if said.isascii() else said.encode("utf-8", "backslashreplace").decode("utf-8")


def _cut(said: str, room: int) -> str:
    """The head and the tail of what is longer than `room`, and how much is missing between."""
    if len(said) <= room:
        return said
    longest_mark = len(_mark(len(said)))
    if room <= longest_mark:
        return said[:room]
    tail = (room - longest_mark) // 2
    head = room - longest_mark - tail
    return said[:head] + _mark(len(said) - head - tail) + said[len(said) - tail :]


def _mark(missing: int) -> str:
    return f" … [{missing} characters left out] … "


def _headline(error: BaseException) -> str:
    name = _name(type(error), "__name__", "exception")
    message = _said(error, str, repr)
    return f"{name}: {message}" if message else name


def _traceback(error: BaseException) -> str:
    try:
        tracing = TracebackException(type(error), error, _from_the_handler_on(error.__traceback__))
        return "".join(tracing.format())
    except BaseException as problem:  # an exception whose attributes raise, or are nonsense
        return f"(no traceback: {_headline(problem)})"


def _from_the_handler_on(top: TracebackType | None) -> TracebackType | None:
    """The traceback below our own frames; all of it when there is nothing below them."""
    below = top
    while below is not None and _is_ours(below):
        below = below.tb_next
    return below or top


def _is_ours(entry: TracebackType) -> bool:
    module = entry.tb_frame.f_globals.get("__name__")
    return isinstance(module, str) and module.partition(".")[0] == "yaoki"


def _name(cls: type, attribute: str, otherwise: str) -> str:
    try:
        name = getattr(cls, attribute)
    except BaseException:  # a metaclass may do anything
        return otherwise
    return str.__str__(name) if isinstance(name, str) else otherwise


def _secrets(hide: Collection[str]) -> list[str]:
    """What to look for, longest first, in the forms that str and repr give it."""
    long = [each for each in hide if isinstance(each, str) and len(each) >= SHORTEST_SECRET]
    forms = {form for secret in long for form in (secret, repr(secret)[1:-1], ascii(secret)[1:-1])}
    return sorted(forms, key=len, reverse=True)


def _without(secrets: list[str], said: str) -> str:
    for secret in secrets:
        said = said.replace(secret, "***")
    return said
