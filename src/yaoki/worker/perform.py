"""One attempt from its beginning to its outcome, on a thread or in a task."""

import logging
from typing import Any

from yaoki.core.outcomes import Change
from yaoki.worker.run import Run

log = logging.getLogger("yaoki.jobs")
"""Says of each attempt when it begins and how it ends; of failures `yaoki.worker` tells more."""


def perform(run: Run) -> Change | None:
    """One attempt: arguments, handler, outcome. Whatever it raises is an outcome, too."""
    if log.isEnabledFor(logging.DEBUG):
        _begins(run)
    try:
        run.enter()
        around = run.around
        value = run.kind.function(**run.arguments()) if around is None else around.call(run)
        change = run.returned(value)
    except BaseException as error:
        change = run.raised(error)
    if log.isEnabledFor(logging.DEBUG):
        _ended(run, change)
    return change


async def aperform(run: Run) -> Change | None:
    """The same for an async handler, in a task whose context is the attempt's own."""
    if log.isEnabledFor(logging.DEBUG):
        _begins(run)
    try:
        run.enter()
        around = run.around
        value: Any
        if around is None:
            value = await run.kind.function(**run.arguments())
        else:
            value = await around.acall(run)
        change = run.returned(value)
    except BaseException as error:
        change = run.raised(error)
    if log.isEnabledFor(logging.DEBUG):
        _ended(run, change)
    return change


def _begins(run: Run) -> None:
    facts = run.facts("started")
    facts.pop("duration", None)
    log.debug("%s begins", run, extra=facts)


def _ended(run: Run, change: Change | None) -> None:
    outcome = "completed" if change is None else change.outcome
    # A failure has been told already; and of what was given up nobody wants to hear more.
    if outcome not in ("failed", "retried") and not run.ended:
        log.debug("%s %s", run, outcome, extra=run.facts(outcome))
