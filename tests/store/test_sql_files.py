"""The files of SQL: used, readable, and no newer than the oldest SQLite that is supported."""

import re
from pathlib import Path

import pytest

import yaoki.store
from yaoki.store import sql
from yaoki.store.migrations import migrations

STORE = Path(yaoki.store.__file__).parent
FILES = sorted(STORE.glob("sql/*/*.sql"))

NEWER_THAN_3_34 = {
    r"\bRETURNING\b": "3.35",
    r"\bMATERIALIZED\b": "3.35",
    r"\bDROP COLUMN\b": "3.35",
    r"\b(ceil|floor|ln|log\d*|pow|power|sqrt|trunc|mod)\(": "3.35",
    r"\)\s*STRICT\b|\bSTRICT\s*,": "3.37",
    r"\bunixepoch\(": "3.38",
    r"\bformat\(": "3.38",
    r"->": "3.38",
    r"'auto'": "3.38",
    r"\b(RIGHT|FULL)( OUTER)? JOIN\b": "3.39",
    r"\bIS (NOT )?DISTINCT FROM\b": "3.39",
    r"\bunhex\(": "3.41",
    r"'subsec(ond)?'": "3.42",
    r"\b(timediff|octet_length)\(": "3.43",
    r"\b(concat|concat_ws|string_agg)\(": "3.44",
    r"\bjsonb": "3.45",
    r"\b\d+_\d+\b": "3.46",
}


def test_every_file_is_used_and_every_used_one_is_there() -> None:
    asked = set()
    for module in STORE.glob("**/*.py"):
        asked |= set(_ASKED.findall(module.read_text("utf-8")))

    assert asked - {"list_jobs"} == set(sql.names("sqlite"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_file_says_what_it_is_for_unless_it_is_one_plain_sentence(file: Path) -> None:
    text = file.read_text("utf-8")

    first, *_ = text.splitlines()
    plain = len(text.splitlines()) <= 8 and not re.search(r"\b(WITH|CASE|UNION|EXISTS)\b", text)

    assert first.startswith("-- ") or plain


@pytest.mark.parametrize("construct", NEWER_THAN_3_34)
def test_no_statement_needs_more_than_sqlite_3_34(construct: str) -> None:
    texts = {file.name: without_comments(file.read_text("utf-8")) for file in FILES}
    texts |= {step.name: without_comments(step.text) for step in migrations("sqlite")}

    newer = [name for name, text in texts.items() if re.search(construct, text, re.IGNORECASE)]

    assert newer == [], f"needs SQLite {NEWER_THAN_3_34[construct]}"


def without_comments(text: str) -> str:
    return "\n".join(line.partition("--")[0] for line in text.splitlines())


_ASKED = re.compile(r"""\b(?:_?ask(?:_many)?|Statement)\(\s*"(\w+)\"""")
