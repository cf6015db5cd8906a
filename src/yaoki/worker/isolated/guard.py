"""A program that runs a worker when it is imported: its children import it, and would do so too."""

from yaoki import children
from yaoki.core.errors import NotHere

UNGUARDED = 98
"""The exit code of a child that was about to."""

SAID = (
    "a child process imports this program, and would run a second worker in it; put what is to be "
    'done only once, as app.run_worker(), below: if __name__ == "__main__":'
)


def refuse_when_imported() -> None:
    """Run no worker in a process that is about to import the program. The parent says why."""
    if not children.imports_program():
        return
    if children.is_child():
        raise SystemExit(UNGUARDED)
    raise NotHere(SAID)
