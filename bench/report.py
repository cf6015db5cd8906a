"""What was measured, as a table for people and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.figures import Figure


@dataclass(frozen=True)
class Measured:
    """The figures of one workload, or why there are none."""

    workload: str
    figures: Sequence[Figure] = ()
    problem: str | None = None


@dataclass(frozen=True)
class Run:
    """What was measured on one store, or why nothing was."""

    store: str
    facts: Mapping[str, object]
    measured: Sequence[Measured] = ()
    problem: str | None = None


_HEADINGS = ("workload", "figure", "ours", "limit", "share (min–max)", "target", "")

_NOTES = (
    "Each value is the median of its rounds; ours and the limit take turns in every round. A share",
    "is how much of the limit is reached, worked out round by round: ours/limit of a rate, and",
    "limit/ours of a time or of memory. 1.00 is the limit itself.",
)


def as_table(runs: Sequence[Run], machine: Mapping[str, object]) -> str:
    """For each store one line a figure, in columns."""
    measured = [one for run in runs for one in run.measured if one.problem is None]
    lines = [_HEADINGS] + [line for one in measured for line in _lines(one)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEADINGS))]
    tables = [line for run in runs for line in ("", *_table(run, widths))]
    proved = sum(figure.ran_once for run in runs for one in run.measured for figure in one.figures)
    notes = [*_NOTES, f"{proved:,} jobs ran in workers, each of them exactly once."]
    return "\n".join([_facts(machine), *tables, "", *notes])


def _table(run: Run, widths: Sequence[int]) -> list[str]:
    if run.problem is not None:
        return [f"{run.store}: NOT MEASURED: {run.problem}"]
    rule = tuple("─" * width for width in widths)
    lines = [line for one in run.measured for line in _lines(one)]
    return [_facts(run.facts), *(_row(line, widths) for line in (_HEADINGS, rule, *lines))]


def _facts(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def as_json(runs: Sequence[Run], machine: Mapping[str, object]) -> dict[str, object]:
    """Everything, with the value of each round."""
    return {"machine": machine, "stores": [_run_as_json(run) for run in runs]}


def _run_as_json(run: Run) -> dict[str, object]:
    return {
        "store": run.store,
        "facts": run.facts,
        "problem": run.problem,
        "workloads": [
            {
                "workload": one.workload,
                "problem": one.problem,
                "figures": [_figure_as_json(figure) for figure in one.figures],
            }
            for one in run.measured
        ],
    }


def _lines(one: Measured) -> list[tuple[str, ...]]:
    if one.problem is not None:
        return [(one.workload, f"NOT MEASURED: {one.problem}", "", "", "", "", "")]
    names = [one.workload] + [""] * len(one.figures)
    return [_line(name, figure) for name, figure in zip(names, one.figures, strict=False)]


def _line(workload: str, figure: Figure) -> tuple[str, ...]:
    return (
        workload,
        figure.what,
        _value(figure.ours, figure.unit),
        _value(figure.limit, figure.unit),
        _spread(figure.shares),
        "" if figure.target is None else str(figure.target),
        {True: "ok", False: "below", None: ""}[figure.met],
    )


def _row(line: Sequence[str], widths: Sequence[int]) -> str:
    ours, limit = 2, 3
    cells = [
        text.rjust(width) if column in (ours, limit) else text.ljust(width)
        for column, (text, width) in enumerate(zip(line, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def _value(values: Sequence[float], unit: str) -> str:
    if not values:
        return "–"
    middle = median(values)
    digits = 0 if middle >= 1_000 else 1 if middle >= 10 else 2 if middle >= 1 else 3
    return f"{middle:,.{digits}f} {unit}".replace(" /s", "/s")


def _spread(shares: Sequence[float]) -> str:
    if not shares:
        return ""
    middle = f"{median(shares):.2f}"
    return middle if len(shares) == 1 else f"{middle} ({min(shares):.2f}–{max(shares):.2f})"


def _figure_as_json(figure: Figure) -> dict[str, object]:
    return {
        "figure": figure.what,
        "unit": figure.unit,
        "ours": _summary(figure.ours),
        "limit": _summary(figure.limit),
        "share": _summary(figure.shares),
        "target": None if figure.target is None else str(figure.target),
        "met": figure.met,
        "ran_once": figure.ran_once,
    }


def _summary(values: Sequence[float]) -> dict[str, object] | None:
    if not values:
        return None
    return {
        "median": median(values),
        "min": min(values),
        "max": max(values),
        "rounds": list(values),
    }
