"""Whatever a handler raises can be written down, in any database, at a bounded size."""

import os
import sys
from collections.abc import Callable
from dataclasses import astuple
from types import CodeType
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaoki.core.failures import (
    MAX_ERROR,
    MAX_KIND,
    MAX_TRACEBACK,
    Failure,
    describe,
    kind_of,
    shown,
    text,
)


def caught(raising: Callable[[], object]) -> BaseException:
    try:
        raising()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def thrown(error: BaseException) -> BaseException:
    """The error as it is after it was raised: with a traceback."""

    def throw() -> NoReturn:
        raise error

    return caught(throw)


def assert_storable(failure: Failure) -> None:
    for said, limit in zip(astuple(failure), (MAX_ERROR, MAX_TRACEBACK, MAX_KIND), strict=True):
        assert type(said) is str
        assert "\0" not in said
        assert len(said) <= limit
        said.encode()


# Ordinary errors.


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("no image"), "ValueError: no image"),
        (ValueError(), "ValueError"),
        (ValueError(""), "ValueError"),
        (KeyError("id"), "KeyError: 'id'"),
        (OSError(28, "No space left"), "OSError: [Errno 28] No space left"),
        (ValueError("予約がありません"), "ValueError: 予約がありません"),
        (ValueError(b"bytes"), "ValueError: b'bytes'"),
        (ValueError("two\nlines"), "ValueError: two\nlines"),
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ExceptionGroup("both", [ValueError(1), KeyError(2)]), "both (2 sub-exceptions)"),
    ],
)
def test_an_error_is_its_class_and_its_message(error: BaseException, expected: str) -> None:
    assert describe(error).error.endswith(expected)


def test_the_traceback_shows_the_line_that_raised() -> None:
    failure = describe(thrown(ValueError("no image")))

    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert "raise error\n" in failure.traceback
    assert failure.traceback.endswith("ValueError: no image\n")


def test_causes_groups_and_notes_are_in_the_traceback() -> None:
    def fail() -> NoReturn:
        try:
            raise ExceptionGroup("both", [ValueError("first"), KeyError("second")])
        except ExceptionGroup as error:
            error.add_note("while parsing page 3")
            raise RuntimeError("no report") from error

    traceback = describe(caught(fail)).traceback

    for part in ("ValueError: first", "KeyError: 'second'", "while parsing page 3", "no report"):
        assert part in traceback


class Outer:
    class Inner(Exception):
        pass


@pytest.mark.parametrize(
    ("cls", "kind"),
    [(ValueError, "builtins.ValueError"), (Outer.Inner, f"{__name__}.Outer.Inner")],
)
def test_the_kind_is_the_class_by_its_full_name(cls: type[Exception], kind: str) -> None:
    assert kind_of(cls) == kind
    assert describe(cls()).kind == kind


# Our own frames.


def in_module(name: str, source: str, **names: object) -> Any:
    """The function `run` of a module with this name."""
    code: CodeType = compile(source, f"{name}.py", "exec")
    module: dict[str, Any] = {"__name__": name, **names}
    exec(code, module)
    return module["run"]


CALLS = "def run(): inner()"
FAILS = "def run(): raise ValueError('no image')"


def handled_by(module: str) -> str:
    handler = in_module(module, FAILS)
    attempt = in_module("yaoki.worker.attempt", CALLS, inner=handler)
    worker = in_module("yaoki.worker", CALLS, inner=attempt)
    error = caught(worker)
    assert error.__traceback__ is not None
    return describe(error.with_traceback(error.__traceback__.tb_next)).traceback


@pytest.mark.parametrize("module", ["shop.mails", "yaokita.mails"])
def test_our_own_frames_above_the_handler_are_left_out(module: str) -> None:
    traceback = handled_by(module)

    assert "yaoki.worker" not in traceback
    assert f'File "{module}.py", line 1, in run' in traceback


def test_our_own_frames_are_kept_when_there_are_no_others() -> None:
    assert "yaoki.worker.attempt.py" in handled_by("yaoki.store")


def test_our_own_frames_below_the_handler_are_kept() -> None:
    inner = in_module("yaoki.client", FAILS)
    handler = in_module("shop.mails", CALLS, inner=inner)

    traceback = describe(caught(in_module("yaoki.worker", CALLS, inner=handler))).traceback

    assert "yaoki.client.py" in traceback


# Errors that would break whoever writes them down.


class StrRaises(Exception):
    def __str__(self) -> NoReturn:
        raise RuntimeError("no str")


class StrAndReprRaise(StrRaises):
    def __repr__(self) -> NoReturn:
        raise SystemExit("no repr")


class StrIsNoText(Exception):
    def __str__(self) -> Any:
        return 7


class LyingText(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no str")


class StrIsStrange(Exception):
    def __str__(self) -> str:
        return LyingText("strange")


class NothingCanBeRead(Exception):
    def __getattribute__(self, name: str) -> NoReturn:
        raise KeyboardInterrupt(name)


class NotesRaise(Exception):
    @property
    def __notes__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no notes")


class Secretive(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__name__", "__qualname__", "__module__"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


class NamelessClass(Exception, metaclass=Secretive):
    pass


def without_module() -> BaseException:
    cls: type[Exception] = type("Homeless", (Exception,), {})
    cls.__module__ = None  # type: ignore[assignment]
    return cls("lost")


def with_a_strange_name() -> BaseException:
    cls: type[Exception] = type("Plain", (Exception,), {})
    cls.__qualname__ = "a\0\ud83d" + "x" * 10_000
    return cls("lost")


def its_own_cause() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def with_ten_thousand_causes() -> BaseException:
    error = ValueError(0)
    for number in range(10_000):
        error, cause = ValueError(number), error
        error.__cause__ = cause
    return error


def from_ten_thousand_frames() -> BaseException:
    def fall(depth: int) -> int:
        return 1 // depth if depth == 0 else fall(depth - 1) + 1

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        return caught(lambda: fall(10_000))
    finally:
        sys.setrecursionlimit(limit)


def from_endless_recursion() -> BaseException:
    def fall() -> None:
        fall()

    return caught(fall)


def a_deep_group() -> BaseException:
    error: Exception = ValueError("innermost")
    for _ in range(5_000):
        error = ExceptionGroup("deeper", [error])
    return error


def a_wrong_syntax_error() -> BaseException:
    details: Any = ("file.py", "line", None, 7, b"", {})
    return SyntaxError("bad", details)


STRANGE: dict[str, Callable[[], BaseException]] = {
    "NUL": lambda: ValueError("a\0b"),
    "lone surrogate": lambda: ValueError("a\ud800"),
    "path in another encoding": lambda: ValueError(os.fsdecode(b"caf\xe9.png")),
    "10 MB": lambda: ValueError("x" * 10_000_000),
    "10 MB of NUL": lambda: ValueError("\0" * 10_000_000),
    "bytes": lambda: ValueError(b"\0\xff"),
    "5,000 digits": lambda: ValueError(10**5_000),
    "no text": lambda: ValueError(object(), {"a": [1]}),
    "str raises": StrRaises,
    "str and repr raise": StrAndReprRaise,
    "str is no text": StrIsNoText,
    "str is a strange text": StrIsStrange,
    "nothing can be read": NothingCanBeRead,
    "notes raise": NotesRaise,
    "class without a name": lambda: NamelessClass(),
    "class without a module": without_module,
    "class with a strange name": with_a_strange_name,
    "its own cause": its_own_cause,
    "10,000 causes": with_ten_thousand_causes,
    "10,000 frames": from_ten_thousand_frames,
    "endless recursion": from_endless_recursion,
    "group in a group in a group": a_deep_group,
    "syntax error with wrong details": a_wrong_syntax_error,
    "group of 1,000": lambda: ExceptionGroup("many", [ValueError("x" * 1_000)] * 1_000),
    "group of exits": lambda: BaseExceptionGroup("exits", [SystemExit(1), KeyboardInterrupt()]),
}


@pytest.mark.parametrize("make", STRANGE.values(), ids=STRANGE)
def test_no_error_is_too_strange_to_be_described(make: Callable[[], BaseException]) -> None:
    """An error text that the database refused left its job claimed for ever."""
    error = thrown(make())

    failure = describe(error)

    assert_storable(failure)
    assert failure.error
    assert failure.traceback


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: ValueError("a\0b"), r"ValueError: a\x00b"),
        (lambda: ValueError("a\ud800"), r"ValueError: a\ud800"),
        (lambda: ValueError(os.fsdecode(b"caf\xe9")), r"ValueError: caf\udce9"),
        (StrRaises, "StrRaises: StrRaises()"),
        (StrAndReprRaise, "StrAndReprRaise: <StrAndReprRaise that cannot be shown>"),
        (StrIsStrange, "StrIsStrange: strange"),
        (lambda: NamelessClass(), "exception"),
        (without_module, "Homeless: lost"),
    ],
)
def test_what_can_be_said_about_a_strange_error_is_said(
    make: Callable[[], BaseException], expected: str
) -> None:
    assert describe(make()).error == expected


@given(
    st.builds(
        lambda bases, args: type("Made", bases, {})(*args),
        st.sampled_from(
            [(Exception,), (ValueError,), (OSError,), (SyntaxError,), (BaseException,)]
        ),
        st.lists(st.text() | st.binary() | st.integers() | st.none() | st.floats(), max_size=1),
    )
)
def test_every_exception_object_can_be_described(error: BaseException) -> None:
    assert_storable(describe(thrown(error)))


def test_a_huge_message_keeps_its_head_and_its_tail() -> None:
    failure = describe(thrown(ValueError("head" + "x" * 10_000_000 + "tail")))

    assert failure.error.startswith("ValueError: headxxx")
    assert failure.error.endswith("xxxtail")
    assert failure.traceback.startswith("Traceback")
    assert failure.traceback.endswith("xxxtail\n")


def test_a_traceback_of_ten_thousand_frames_shows_where_it_began_and_ended() -> None:
    traceback = describe(from_ten_thousand_frames()).traceback

    assert "in caught" in traceback
    assert "more times]" in traceback
    assert "ZeroDivisionError" in traceback


# Secrets.


def fail_with(message: str) -> BaseException:
    return thrown(ValueError(message))


@pytest.mark.parametrize(
    ("message", "hide"),
    [
        ("no card 4111-1111", ["4111-1111"]),
        ("4111-1111 and 4111-1111", ["4111-1111"]),
        (repr({"card": "it's 4111\n"}), ["it's 4111\n"]),
        (ascii("秘密のことば"), ["秘密のことば"]),
        ("4111-1111-2222", ["4111-1111", "4111-1111-2222"]),
        ("x" * 1_990 + "4111-1111" + "x" * 3_000, ["4111-1111"]),
    ],
)
def test_secrets_are_hidden_in_both_texts(message: str, hide: list[str]) -> None:
    failure = describe(fail_with(message), hide)

    for said in (failure.error, failure.traceback):
        assert "4111" not in said
        assert "2222" not in said
        assert "秘密" not in said
        assert r"\u79d8" not in said
    assert "***" in failure.traceback


def test_secrets_of_fewer_than_four_characters_are_not_hidden() -> None:
    assert describe(ValueError("a cat"), ["a", "", "cat"]).error == "ValueError: a cat"


def test_what_is_no_text_among_the_secrets_is_passed_over() -> None:
    hide: Any = [4111, None, "secret"]

    assert describe(ValueError("4111 secret"), hide).error == "ValueError: 4111 ***"


# Texts.


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        ("", ""),
        ("予約", "予約"),
        (7, "7"),
        (None, "None"),
        (b"ab", "b'ab'"),
        ("a\0b", r"a\x00b"),
        ("\ud83d", r"\ud83d"),
        (10**5_000, "<int that cannot be shown>"),
    ],
    ids=lambda value: ascii(value)[:20] if isinstance(value, str) else "",
)
def test_a_text_is_what_str_says_made_storable(value: object, expected: str) -> None:
    assert text(value, 100) == expected


def test_a_long_text_says_how_much_is_missing_from_its_middle() -> None:
    assert text("a" * 500 + "b" * 500, 100) == (
        "a" * 34 + " … [932 characters left out] … " + "b" * 34
    )


@given(st.text(st.characters() | st.sampled_from("\0\ud83d")), st.integers(0, 60))
def test_a_text_is_always_storable_and_never_too_long(value: str, limit: int) -> None:
    said = text(value * 5, limit)

    said.encode()
    assert "\0" not in said
    assert len(said) <= limit


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50))
def test_a_text_that_is_fit_and_short_is_left_as_it_is(value: str) -> None:
    assert text(value, 50) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("a\0b", r"'a\x00b'"),
        ("\ud83d", r"'\ud83d'"),
        ("予約", "'予約'"),
        ([1, 2], "[1, 2]"),
    ],
    ids=lambda value: ascii(value)[:20] if isinstance(value, str) else "",
)
def test_a_value_is_shown_by_its_repr(value: object, expected: str) -> None:
    assert shown(value).startswith(expected)


def test_a_value_whose_repr_raises_is_shown_by_its_class() -> None:
    assert shown(StrAndReprRaise()) == "<StrAndReprRaise that cannot be shown>"


def test_a_huge_value_is_shown_short() -> None:
    huge: list[object] = ["x" * 10**7, list(range(10**6)), {"k" * 10**6: [[[[[[]]]]]]}]

    assert all(len(shown(value)) <= 80 for value in huge)
