"""Exact output, kept in files: what the program says is reviewed like code.

`pytest tests/cli --update-golden` (or UPDATE_GOLDEN=1) writes them anew.
"""

from pathlib import Path

FOLDER = Path(__file__).parent / "golden"


class Golden:
    """Compares texts with the files of this name, or writes them."""

    def __init__(self, update: bool) -> None:
        self._update = update

    def __call__(self, name: str, text: str) -> None:
        file = FOLDER / f"{name}.txt"
        if self._update:
            file.write_text(text, "utf-8")
        expected = file.read_text("utf-8") if file.exists() else "(no such file)\n"
        assert text == expected, f"{file.name} differs; see the docstring of golden.py"
