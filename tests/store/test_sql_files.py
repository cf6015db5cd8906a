"""The files of SQL: used, readable, and no newer than the oldest databases that are supported."""

import ast
import re
from pathlib import Path

import pytest

import yaoki.store
from yaoki.store import sql
from yaoki.store.migrations import migrations

STORE = Path(yaoki.store.__file__).parent
FILES = sorted(STORE.glob("sql/*/*.sql"))
DIALECTS = ["sqlite", "postgres"]

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


NEWER_THAN_13 = {
    r"\b(string_to_table|date_bin|trim_array|bit_count|unistr|range_agg)\(": "14",
    r"\bmultirange\b|\bGROUP BY (DISTINCT|ALL)\b|\bJOIN \w+ USING \([^)]*\) AS\b": "14",
    r"\b(SEARCH (BREADTH|DEPTH) FIRST|CYCLE \w+ SET)\b": "14",
    r"\bMERGE INTO\b|\bNULLS NOT DISTINCT\b|\bsecurity_invoker\b": "15",
    r"\bregexp_(count|instr|like|substr)\(": "15",
    r"\b(any_value|json_array|json_arrayagg|json_object|json_objectagg|array_sample)\(": "16",
    r"\bIS (NOT )?JSON\b": "16",
    r"\b\d+_\d+\b|\b0[xob][0-9a-f]+\b": "16",
    r"\b(json_table|json_exists|json_value|json_query|json_scalar|to_bin|to_oct)\(": "17",
    r"\buuidv7\(|\bRETURNING\b.*\b(old|new)\.|\bWITHOUT OVERLAPS\b|\bNOT ENFORCED\b": "18",
    r"\b(array_sort|array_reverse|casefold|crc32c?)\(": "18",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_file_is_used_and_every_used_one_is_there(dialect: str) -> None:
    mentioned, asked = set(), set()
    for module in STORE.glob("**/*.py"):
        tree = ast.parse(module.read_text("utf-8"))
        mentioned |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        asked |= {name for node in ast.walk(tree) if (name := file_asked_for(node))}

    there = set(sql.names(dialect))
    assert there - mentioned == set()
    assert asked - there == set()


def file_asked_for(node: ast.AST) -> str | None:
    """The name in `ask("get", …)` or `Statement("get", …)`, unless the text comes with it."""
    match node:
        case ast.Call(ast.Name("ask" | "ask_many" | "Statement"), [ast.Constant(str(name)), *_]):
            return None if any(keyword.arg == "text" for keyword in node.keywords) else name
    return None


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_file_says_what_it_is_for_unless_it_is_one_plain_sentence(file: Path) -> None:
    text = file.read_text("utf-8")

    first, *_ = text.splitlines()
    plain = len(text.splitlines()) <= 8 and not re.search(r"\b(WITH|CASE|UNION|EXISTS)\b", text)

    assert first.startswith("-- ") or plain


@pytest.mark.parametrize("construct", NEWER_THAN_3_34)
def test_no_statement_needs_more_than_sqlite_3_34(construct: str) -> None:
    assert those_with(construct, "sqlite") == [], f"needs SQLite {NEWER_THAN_3_34[construct]}"


@pytest.mark.parametrize("construct", NEWER_THAN_13)
def test_no_statement_needs_more_than_postgresql_13(construct: str) -> None:
    assert those_with(construct, "postgres") == [], f"needs PostgreSQL {NEWER_THAN_13[construct]}"


def those_with(construct: str, dialect: str) -> list[str]:
    """The files and migrations of a dialect that a construct is found in."""
    files = [file for file in FILES if file.parent.name in ("shared", dialect)]
    texts = {file.name: without_comments(file.read_text("utf-8")) for file in files}
    texts |= {step.name: without_comments(step.text) for step in migrations(dialect)}
    return [name for name, text in texts.items() if re.search(construct, text, re.IGNORECASE)]


def without_comments(text: str) -> str:
    return "\n".join(line.partition("--")[0] for line in text.splitlines())
