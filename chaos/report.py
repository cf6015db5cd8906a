"""What came out, as a table for people."""

from chaos.plan import Plan
from chaos.verdict import Verdict

SHOWN = 10
"""Of what broke one promise; the rest is counted."""


def as_table(store: str, plan: Plan, verdict: Verdict) -> str:
    """The figures, the promises, and what broke them."""
    lines = [f"{store}, seed {plan.seed}"]
    lines += [_line(what, value) for what, value in verdict.figures.items()]
    lines += [_line("dead with a reason", _counted(verdict.dead))]
    lines += [_line("handlers stopped, or failed, with", _counted(verdict.exceptions))]
    lines += ["  executed again because"]
    lines += [_line(f"  {reason}", times) for reason, times in verdict.reasons.most_common()]
    lines += ["  must be 0"]
    for promise, broken in verdict.broken.items():
        lines.append(_line(f"  {promise}", len(broken)))
        lines += [f"      BROKEN: {what}" for what in broken[:SHOWN]]
    return "\n".join(lines)


def _line(what: str, value: object) -> str:
    shown = f"{value:,}" if isinstance(value, int) else str(value)
    return f"  {what:<48} {shown:>8}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {times}" for name, times in sorted(counts.items())) or "none"
