"""What was measured: a figure of ours, the limit beside it, and what was aimed at."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol


class NotMeasured(Exception):
    """A measurement that means nothing; the text says why (a job ran twice, a worker died)."""


class Target(Protocol):
    """Something to reach."""

    def met_by(self, figure: "Figure") -> bool: ...


@dataclass(frozen=True)
class Share:
    """At least this much of the limit."""

    least: float

    def met_by(self, figure: "Figure") -> bool:
        return bool(figure.shares) and median(figure.shares) >= self.least

    def __str__(self) -> str:
        return f"share ≥ {self.least:.2f}"


@dataclass(frozen=True)
class AtMost:
    """No more than this, in the unit of the figure."""

    most: float

    def met_by(self, figure: "Figure") -> bool:
        return median(figure.ours) <= self.most

    def __str__(self) -> str:
        return f"≤ {self.most:g}"


@dataclass(frozen=True)
class Figure:
    """One value for each round; `limit` has as many, or none where there is no limit.

    `ran_once` is how many jobs were seen to run exactly once on the way.
    """

    what: str
    unit: str
    ours: Sequence[float]
    limit: Sequence[float] = ()
    target: Target | None = None
    ran_once: int = 0

    @property
    def shares(self) -> list[float]:
        """How much of the limit each round reached: 1 is the limit itself, 0.5 half as good."""
        pairs = list(zip(self.ours, self.limit, strict=True)) if self.limit else []
        if self.unit == "/s":
            return [ours / limit for ours, limit in pairs]
        return [limit / ours for ours, limit in pairs]

    @property
    def met(self) -> bool | None:
        """Whether the target was reached; None without one."""
        return None if self.target is None else self.target.met_by(self)


def percentile(values: Sequence[float], part: float) -> float:
    """The value below which `part` of them lie."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]
