"""What can be said about isolation, and what is refused at once."""

from typing import Any

import pytest

from yaoki import InvalidOption, JobSet
from yaoki.jobtypes import AnyJobType

LIMITS = ({"isolation": "process", "memory_limit": limit} for limit in (0, -1, 1.5, "1", True))
REFUSED = [
    ({"isolation": "thread"}, "isolation is 'process', or None, not 'thread'"),
    ({"isolation": True}, "isolation is 'process', or None"),
    ({"memory_limit": 512}, "needs isolation='process'"),
    *((options, "a whole number of megabytes from 1 to 1,000,000") for options in LIMITS),
]


def declared(options: dict[str, Any]) -> AnyJobType:
    jobs = JobSet()

    @jobs.job("a", **options)
    async def handler() -> None: ...

    [kind] = jobs
    return kind


@pytest.mark.parametrize(("options", "says"), REFUSED, ids=str)
def test_what_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidOption, match=says):
        declared(options)


def test_an_isolated_handler_is_on_no_event_loop_of_the_worker() -> None:
    on_loop, isolated = declared({}), declared({"isolation": "process", "memory_limit": 512})

    assert (on_loop.is_async, on_loop.on_loop, on_loop.isolated) == (True, True, False)
    assert (isolated.is_async, isolated.on_loop, isolated.isolated) == (True, False, True)


def test_it_is_published_with_the_definition() -> None:
    definition = declared({"isolation": "process", "memory_limit": 512}).definition

    assert (definition.isolation, definition.memory_limit) == ("process", 512)
