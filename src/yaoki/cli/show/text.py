"""Text from the database on a terminal: made harmless, measured, cut to fit."""

import re
import unicodedata

# Controls, separators of lines, halves of characters, and what turns the direction of writing;
# ordinary text in any language has none of them.
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def one_line(text: str) -> str:
    """The text on one physical line, with what a terminal would obey written as escapes."""
    return _UNSAFE.sub(_escape, text)


def lines(text: str) -> list[str]:
    """The lines of a text that has some, each of them harmless."""
    return [one_line(line) for line in text.split("\n")]


def width(text: str) -> int:
    """How many columns of a terminal the text takes: two for wide characters."""
    if text.isascii():
        return len(text)
    return sum(_width(character) for character in text)


def padded(text: str, columns: int, *, right: bool = False) -> str:
    """The text with blanks up to so many columns, behind it or (`right`) before it."""
    blanks = " " * (columns - width(text))
    return blanks + text if right else text + blanks


def cut(text: str, columns: int) -> str:
    """The text, or as much of it as fits with a … behind it."""
    if width(text) <= columns:
        return text
    left, kept = columns - 1, ""
    for character in text:
        left -= _width(character)
        if left < 0:
            break
        kept += character
    return kept + "…"


def _width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or ascii(character)[1:-1]
