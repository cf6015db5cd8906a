"""Runs the code of a documentation page, block after block, and compares what it shows.

    python tests/support/page.py README.md      (in an empty folder)

A block that begins with the name of a file in a comment (`# shop.py`) is that file. Any other
python block is run, all of a page in one interpreter. The lines of a console block that begin
with `$ ` are run by a shell. An sql block says in its first line where it is run
(`-- psql postgresql://…`). What a page shows of the output, under the commands or in a text block
right behind a python block, must be what came out; … stands for anything, and alone on a line for
any number of lines. Comments that begin with <!-- run hold code that readers do not see.

A page may name databases on servers that do not exist: what stands in their place (`StandIns`) is
a second argument, in JSON.
"""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

FENCED = re.compile(r"^```(\w+)\n(.*?)^```$|^<!-- run\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (\w+\.py)\n")
SQL_PLACE = re.compile(r"-- psql (\S+)\n")
RUN = ("python", "console", "sql")
"""The languages of blocks that are run."""


class Block(NamedTuple):
    """The text between two fences, its language, and the line on which it begins."""

    language: str
    text: str
    line: int


class StandIns(NamedTuple):
    """What code of a page is to say instead of what it says, and the way back for its output."""

    into: Mapping[str, str] = {}
    back: Mapping[str, str] = {}


def blocks(markdown: str) -> list[Block]:
    """Every block of a page, hidden ones as python."""
    return [
        Block(found[1] or "python", found[2] or found[3], _line(markdown, found.start()))
        for found in FENCED.finditer(markdown)
    ]


def run(page: Path, stand_ins: StandIns = StandIns()) -> None:  # noqa: B008 - a tuple
    """Run every block; AssertionError when something else comes out than the page shows."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed = None
    for block in blocks(page.read_text("utf-8")):
        where = f"{page.name}, line {block.line}"
        if block.language == "text" and printed is not None:
            _compare(swapped(printed, stand_ins.back), block.text, where)
        if block.language not in RUN:
            printed = None
            continue
        block = block._replace(text=swapped(block.text, stand_ins.into))
        if block.language == "python":
            printed = _run_python(block, page.name, names)
        elif block.language == "console":
            _run_console(block, where, stand_ins)
        else:
            _run_sql(block.text)


def swapped(text: str, instead: Mapping[str, str]) -> str:
    """The text with the one in the place of the other, longest first, and nothing twice."""
    if not instead:
        return text
    longest_first = sorted(instead, key=len, reverse=True)
    return re.sub("|".join(map(re.escape, longest_first)), lambda it: instead[it[0]], text)


def _run_python(block: Block, page: str, names: dict[str, object]) -> str:
    if named := FILE_NAME.match(block.text):
        Path(named[1]).write_text(block.text, "utf-8")
        return ""
    code = compile("\n" * block.line + block.text, page, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, names)
    return out.getvalue()


def _run_console(block: Block, where: str, stand_ins: StandIns) -> None:
    program = shlex.join([sys.executable, "-m", "yaoki"])
    for command, shown in _commands(block.text):
        script = f'yaoki() {{ {program} "$@"; }}\n{command}'
        done = subprocess.run(
            ["bash", "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=60,
        )
        assert done.returncode == 0, f"{where}: {command} → {done.returncode}: {done.stdout}"
        if shown:
            out = swapped(done.stdout, stand_ins.back)
            _compare(out, swapped(shown, stand_ins.back), f"{where}: {command}")


def _run_sql(text: str) -> None:
    import psycopg

    found = SQL_PLACE.match(text)
    assert found is not None, f"an sql block begins with its place, not with: {text[:40]}"
    with psycopg.connect(found[1], autocommit=True) as connection:
        for statement in re.split(r";\n", text[found.end() :]):
            if statement.strip():
                connection.execute(statement.encode())


def _commands(text: str) -> list[tuple[str, str]]:
    """Each command with the output that is shown below it."""
    return [(command, shown) for command, shown in re.findall(r"\$ (.*)\n((?:(?!\$ ).*\n)*)", text)]


def _compare(printed: str, shown: str, where: str) -> None:
    pattern = "".join(map(_pattern, shown.splitlines()))
    assert re.fullmatch(pattern, _trimmed(printed)), f"{where}: this came out:\n{printed}"


def _pattern(line: str) -> str:
    if line.strip() == "…":
        return r"(?:.*\n)*?"
    return ".*?".join(map(re.escape, line.rstrip().split("…"))) + r"\n"


def _line(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _trimmed(printed: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


if __name__ == "__main__":
    sys.path.insert(0, str(Path.cwd()))
    run(Path(sys.argv[1]), StandIns(*json.loads(sys.argv[2] if len(sys.argv) > 2 else "[]")))
