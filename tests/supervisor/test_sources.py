"""Which files count as source files, for --reload."""

import os
from pathlib import Path

from yaoki.supervisor.reload import Sources


def write(file: Path, text: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return str(file)


def test_what_is_changed_new_or_gone_below_the_folder_is_told_once(tmp_path: Path) -> None:
    changed = write(tmp_path / "shop.py", "a = 1")
    gone = write(tmp_path / "deep" / "old.py", "")
    sources = Sources(str(tmp_path))
    assert sources.changed([]) == []

    write(tmp_path / "shop.py", "a = 10")
    os.unlink(gone)
    new = write(tmp_path / "deep" / "new.py", "")

    assert sources.changed([]) == sorted([changed, gone, new])
    assert sources.changed([]) == []


def test_a_module_elsewhere_counts_when_a_process_has_imported_it(tmp_path: Path) -> None:
    library = write(tmp_path / "lib" / "prices.py", "a = 1")
    (tmp_path / "app").mkdir()
    sources = Sources(str(tmp_path / "app"))
    sources.changed([])
    # To have been imported is no change.
    assert sources.changed([library]) == []

    write(tmp_path / "lib" / "prices.py", "a = 10")

    assert sources.changed([library]) == [library]


def test_what_nobody_edits_does_not_count(tmp_path: Path) -> None:
    places = [".git", "__pycache__", "node_modules", "env/lib", "notes.txt"]
    write(tmp_path / "env" / "pyvenv.cfg", "")
    sources = Sources(str(tmp_path))
    sources.changed([])

    for place in places:
        write(tmp_path / place / "x.py" if "." not in place[1:] else tmp_path / place, "")

    assert sources.changed([]) == []
