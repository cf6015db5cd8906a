import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yaoki.cli.show.text import cut, lines, one_line, padded, width


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        ("two\nlines\r\n", r"two\nlines\r\n"),
        ("\x1b[31mred\x9b0m", r"\x1b[31mred\x9b0m"),
        ("tab\tnul\0", r"tab\tnul\x00"),
        ("a\u2028b\u2029c\x85d", r"a\u2028b\u2029c\x85d"),
        ("\u202eright to left", r"\u202eright to left"),
        ("half \ud800", r"half \ud800"),
        ("日本語のテキスト　全角", "日本語のテキスト　全角"),
        ("emoji 👩\u200d🔧 é", "emoji 👩\u200d🔧 é"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert one_line(text) == shown


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_whatever_comes_is_one_physical_line(text: str) -> None:
    shown = one_line(text)

    assert len(shown.splitlines()) <= 1
    assert not {"Cc", "Cs", "Zl", "Zp"} & {unicodedata.category(each) for each in shown}


def test_a_text_with_lines_keeps_them_and_nothing_else() -> None:
    assert lines("one\ntwo\r\n\x1b[2Jthree") == ["one", r"two\r", r"\x1b[2Jthree"]


@pytest.mark.parametrize(
    ("text", "columns"),
    [("abc", 3), ("日本", 4), ("ｱｲ", 2), ("e\u0301", 1), ("aé", 2), ("Ａ", 2), ("", 0)],
)
def test_wide_characters_take_two_columns(text: str, columns: int) -> None:
    assert width(text) == columns


@given(st.text(alphabet="ab日本e\u0301…"), st.integers(1, 20))
def test_a_text_that_was_cut_and_padded_fits_exactly(text: str, columns: int) -> None:
    assert width(padded(cut(text, columns), columns)) == columns


def test_what_is_cut_ends_with_an_ellipsis() -> None:
    assert cut("日本語です", 6) == "日本…"
    assert cut("short", 5) == "short"
