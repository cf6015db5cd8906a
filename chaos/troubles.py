"""What went wrong, when, and for whom: the only excuses for running a job twice."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class Trouble:
    """Between two moments (monotonic seconds); `pid` None is for everybody.

    killed: by us, or by its own handler. stopped: SIGSTOP, longer than a lease. hurried: told twice
    to end. outage: nobody could write to the database. cut: its sessions were ended.
    """

    what: str
    pid: int | None
    begin: float
    end: float


SLACK = 2.0
"""Seconds within which an outcome is recorded while nothing is wrong."""


class Troubles:
    """All of them, to be asked which concern an execution."""

    def __init__(self, troubles: Iterable[Trouble]) -> None:
        self._of: dict[int | None, list[Trouble]] = {}
        for trouble in troubles:
            self._of.setdefault(trouble.pid, []).append(trouble)

    def had(self, pid: int | None, what: str, begin: float, end: float) -> bool:
        """Did this process have this trouble between two moments?"""
        return any(
            trouble.what == what and trouble.begin <= end and trouble.end >= begin
            for whose in {pid, None}
            for trouble in self._of.get(whose, ())
        )
