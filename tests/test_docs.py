"""The documentation: its code runs, its links lead somewhere, and it names everything there is."""

import dataclasses
import json
import os
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import yaoki
from tests.support import page
from tests.support.stand_ins import stand_ins
from yaoki.core import errors
from yaoki.core.outcomes import Outcome
from yaoki.core.states import FINAL, MOVES, Status
from yaoki.jobtypes import Options
from yaoki.jobtypes.job_set import AboutOptions
from yaoki.store.postgres import place as postgres
from yaoki.store.sqlite import place as sqlite

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "guide"
DECISIONS = ROOT / "docs" / "decisions"
ENGLISH = [ROOT / "README.md", *sorted(GUIDE.glob("*.md"))]
JAPANESE = [ROOT / "README.ja.md", *sorted((GUIDE / "ja").glob("*.md"))]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
NOTES = sorted(DECISIONS.glob("[0-9]*.md"))


PAGE_OF_TWO_DATABASES = """
```sql
-- psql postgresql://postgres@db.example.com/postgres
CREATE ROLE aiko LOGIN PASSWORD 'secret';
CREATE DATABASE shop OWNER aiko;
```

```python
import psycopg

URL = "postgresql://aiko:secret@db.example.com/shop"
with psycopg.connect(URL) as shop, psycopg.connect("postgresql://db.example.com/books") as books:
    print(shop.execute("SELECT current_user").fetchone())
    print(shop.info.dbname == books.info.dbname)
    print(f"postgresql://{shop.info.user}:***@{URL.partition('@')[2]} is the place")
```

```text
('aiko',)
False
postgresql://aiko:***@db.example.com/shop is the place
```
"""


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def text_of(file: Path) -> str:
    return file.read_text("utf-8")


@pytest.mark.parametrize("file", ENGLISH, ids=name_of)
def test_the_code_of_a_page_shows_what_the_page_says_it_shows(file: Path, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("YAOKI_")}
    environment |= {"COLUMNS": "120", "NO_COLOR": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8"}

    with stand_ins(text_of(file)) as ours:
        ran = subprocess.run(
            [sys.executable, page.__file__, str(file), json.dumps(ours)],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=100,
        )

    assert ran.returncode == 0, ran.stderr


def test_a_page_that_shows_something_else_is_found_out(tmp_path: Path) -> None:
    told = tmp_path / "page.md"
    told.write_text("```python\nprint(6 * 7)\n```\n\n```text\n41\n```\n", "utf-8")

    with pytest.raises(AssertionError, match=r"page.md, line 5: this came out:\n42"):
        page.run(told)


def test_a_page_may_name_databases_and_roles_that_are_nowhere(tmp_path: Path) -> None:
    told = tmp_path / "page.md"
    told.write_text(PAGE_OF_TWO_DATABASES, "utf-8")

    with stand_ins(PAGE_OF_TWO_DATABASES) as ours:
        page.run(told, ours)


@pytest.mark.parametrize("file", JAPANESE, ids=name_of)
def test_a_japanese_page_has_the_code_of_its_english_twin(file: Path) -> None:
    english = ROOT / "README.md" if file.name == "README.ja.md" else GUIDE / file.name

    assert code_of(file) == code_of(english)


def test_every_page_of_the_guide_has_a_japanese_twin() -> None:
    twins = {file.name for file in (GUIDE / "ja").glob("*.md")}

    assert twins == {file.name for file in GUIDE.glob("*.md")}


def test_every_link_leads_to_a_file_and_to_a_heading_in_it() -> None:
    broken = [f"{name_of(file)}: {link}" for file in PAGES for link in broken_links(file)]

    assert broken == []


def test_every_exception_is_explained() -> None:
    ours = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.YaokiError)
    }

    assert ours - code_in(GUIDE / "errors.md") == set()


def test_every_option_of_a_job_type_and_of_a_job_is_explained() -> None:
    options = AboutOptions.__annotations__.keys() | Options.__annotations__.keys()

    assert options - code_in(GUIDE / "job-types.md") == set()


@pytest.mark.parametrize(("place", "name"), [(sqlite, "sqlite.md"), (postgres, "postgresql.md")])
def test_every_option_of_a_database_url_is_explained(place: Any, name: str) -> None:
    options = {field.name for field in dataclasses.fields(place.Place)}

    assert options - {"path", "conninfo", "shown"} - code_in(GUIDE / name) == set()


def test_every_outcome_of_an_attempt_and_every_status_is_explained() -> None:
    outcomes = {outcome.__name__.lower() for outcome in typing.get_args(Outcome)}

    assert outcomes - code_in(GUIDE / "handlers.md") == set()
    assert outcomes - code_in(GUIDE / "retries.md") == set()
    assert set(Status) - code_in(GUIDE / "job-types.md") == set()


def test_every_command_is_explained_and_every_flag_is_named() -> None:
    from yaoki.cli.main import program

    in_guide = {f"--{word}" for file in GUIDE.glob("*.md") for word in flags_in(text_of(file))}

    assert program.commands.keys() - code_in(GUIDE / "command-line.md", "yaoki ") == set()
    assert {flag for command in program.commands.values() for flag in flags_of(command)} <= in_guide


def test_every_public_name_is_named() -> None:
    named = {word for file in ENGLISH for word in re.findall(r"\w+", text_of(file))}

    assert set(yaoki.__all__) - named == set()


def test_every_verb_is_explained() -> None:
    called = {verb for file in ENGLISH for verb in re.findall(r"app\.(\w+)[(\n]", text_of(file))}

    assert set(verbs()) - called == set()


def test_the_diagram_of_states_is_the_table_of_moves() -> None:
    [diagram] = re.findall(r"```mermaid\n(.*?)```", text_of(ROOT / "ARCHITECTURE.md"), re.DOTALL)
    drawn = re.findall(r"(\S+) --> (\w+|\[\*\])", diagram)

    moves = [(before.value, after.value) for before, all_ in MOVES.items() for after in all_]
    begin, ends = [("[*]", "pending")], [(final.value, "[*]") for final in FINAL]
    assert sorted(drawn) == sorted(begin + moves + ends)


def test_every_file_that_the_architecture_names_is_there() -> None:
    named = re.findall(r"`([\w/.]+/[\w/.]*)`", text_of(ROOT / "ARCHITECTURE.md"))

    package = ROOT / "src" / "yaoki"
    assert [
        path for path in named if not ((package / path).exists() or (ROOT / path).exists())
    ] == []


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    listed = re.findall(r"^\| \[\d{4}\]\((.*?)\)", text_of(DECISIONS / "README.md"), re.MULTILINE)

    assert [int(note.name[:4]) for note in NOTES] == list(range(1, len(NOTES) + 1))
    assert listed == [note.name for note in NOTES]


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.name[:4])
def test_a_decision_has_a_date_a_context_a_choice_and_a_price(note: Path) -> None:
    headings = re.findall(r"^## (.*)$", text_of(note), re.MULTILINE)

    assert re.match(rf"# {note.name[:4]}: .+\n\n\d{{4}}-\d\d-\d\d\n", text_of(note))
    assert headings == ["Context", "Choice", "Price"]


def test_every_test_that_a_decision_names_exists() -> None:
    named = {found for note in NOTES for found in re.findall(r"`(\S+\.py)::(\w+)`", text_of(note))}

    missing = {f"{file}::{test}" for file, test in named if f"def {test}(" not in source_of(file)}

    assert missing == set()


def code_of(file: Path) -> list[tuple[str, str]]:
    return [(block.language, block.text) for block in page.blocks(text_of(file))]


def code_in(file: Path, prefix: str = "") -> set[str]:
    """The words of a page that stand in backticks; with a prefix, those that follow it."""
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text_of(file), flags=re.M | re.S))
    return {word for span in spans for word in re.findall(rf"{prefix}(\w+)", span)}


def flags_in(text: str) -> list[str]:
    return re.findall(r"--([a-z][\w-]*)", text)


def flags_of(command: click.Command) -> Iterator[str]:
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            yield from (flag for flag in option.opts if flag.startswith("--"))


def verbs() -> Iterator[str]:
    """What an app can be asked, awaiting twins and what is for job types left out."""
    public = {name for name in dir(yaoki.Yaoki) if not name.startswith("_")}
    for name in public:
        is_twin = name.startswith("a") and name[1:] in public
        is_verb = callable(getattr(yaoki.Yaoki, name)) and not name.endswith("_type")
        if is_verb and not is_twin and name != "await_":
            yield name


def source_of(file: str) -> str:
    path = ROOT / "tests" / file
    return text_of(path) if path.is_file() else ""


def broken_links(file: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", text_of(file)):
        target, _, heading = link.partition("#")
        if "://" in link:
            continue
        there = (file.parent / target).resolve() if target else file
        if not there.exists() or (heading and heading not in anchors(there)):
            yield link


def anchors(file: Path) -> set[str]:
    """How the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.*)$", text_of(file), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
