"""What a look at the database itself found, without changing anything in it."""

from dataclasses import dataclass, field

from yaoki.core.errors import SchemaTooNew, StoreError
from yaoki.core.health import Check
from yaoki.store.migrations import migrations, missing


@dataclass(slots=True)
class Examined:
    """What was checked. `usable`: our tables are there, and of this program's schema."""

    checks: list[Check] = field(default_factory=list)
    usable: bool = False

    def ok(self, code: str, message: str) -> None:
        self.checks.append(Check(code, "ok", message))

    def warn(self, code: str, message: str, advice: str = "") -> None:
        self.checks.append(Check(code, "warning", message, advice))

    def fail(self, code: str, message: str, advice: str = "") -> None:
        self.checks.append(Check(code, "problem", message, advice))

    def interrupted(self, error: StoreError) -> "Examined":
        """The database could be looked at, but then it could not tell how the work goes."""
        self.fail("work", f"how the work goes could not be seen: {error}", "try again")
        return self

    def note_tables(self, applied: int, dialect: str) -> None:
        """By the number of the last migration that was applied; 0 for no tables."""
        known = migrations(dialect)
        try:
            pending = missing(known, applied)
        except SchemaTooNew as error:
            self.fail("tables", str(error), "upgrade yaoki here")
            return
        if applied == 0:
            self.fail("tables", "there are no tables of yaoki yet", "make them: yaoki migrate")
        elif pending:
            what = ", ".join(f"{step.number:04} {step.name}" for step in pending)
            self.fail(
                "tables",
                f"the tables are of schema {applied}, and this yaoki needs {known[-1].number} "
                f"({what} to be applied)",
                "bring them up to date: yaoki migrate",
            )
        else:
            self.usable = True
            self.ok("tables", f"schema {applied}, up to date")
