"""The lines that handlers write: keeping the newest ones of each job, and reading them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from yaoki.core.errors import JobNotFound
from yaoki.core.log_lines import LINES_KEPT, LogLine
from yaoki.store.op import Op, Params, Steps, ask, tell_many

PORTION = 1_000_000
"""Characters of lines that are written by one statement."""

AROUND_A_TEXT = 100
"""Characters that a line takes besides its text."""


class Line(NamedTuple):
    """A line to be written, which was said `ago` microseconds before."""

    number: int
    ago: int
    level: str
    text: str


class Lines(NamedTuple):
    """Lines of one attempt; `crowded` when the job may have more than it keeps with them."""

    each: Sequence[Line]
    crowded: bool


Said = tuple[tuple[int, int], Lines]
"""Lines, and whose they are: the id of a job, and the lease."""


@dataclass(frozen=True, slots=True)
class WriteLines(Op[None]):
    """Keep these lines, of attempts that go on; those of others are left out.

    A line that is there already stays as it is, so it does no harm to write one again.
    """

    atomic = False
    said: Sequence[Said]

    def steps(self) -> Steps[None]:
        yield from written(self.said)


@dataclass(frozen=True, slots=True)
class Logs(Op[list[LogLine]]):
    """The lines of a job, in their order; JobNotFound when there is no such job."""

    writes = False
    job_id: int

    def steps(self) -> Steps[list[LogLine]]:
        if not (yield ask("get", id=self.job_id)).rows:
            raise JobNotFound(self.job_id)
        rows = (yield ask("logs", id=self.job_id)).rows
        return [LogLine(*row) for row in rows]


def written(said: Sequence[Said]) -> Steps[None]:
    """The statements that keep these lines, and no more of a job than its newest ones."""
    rows = [
        {"id": job_id, "lease": lease, **line._asdict()}
        for (job_id, lease), lines in said
        for line in lines.each
    ]
    for some in _portions(rows):
        yield tell_many("log", some)
    crowded = [{"id": job_id, "kept": LINES_KEPT} for (job_id, _), lines in said if lines.crowded]
    if crowded:
        yield tell_many("log_trim", crowded)


def _portions(rows: list[Params]) -> Iterator[list[Params]]:
    """As many at a time as have PORTION characters together: usually all of them."""
    start = size = 0
    for place, row in enumerate(rows):
        length = len(row["text"]) + AROUND_A_TEXT
        if size + length > PORTION and place > start:
            yield rows[start:place]
            start, size = place, 0
        size += length
    if rows:
        yield rows[start:]
