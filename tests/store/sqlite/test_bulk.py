"""Hundreds of thousands at once: all or none, in order, in bounded memory (fault 120)."""

import tracemalloc
from collections.abc import Iterator

import pytest

from tests.support.databases import ask
from yaoki import InvalidPayload, Yaoki


def test_a_hundred_thousand_jobs_at_once(app: Yaoki, path: object) -> None:
    """SQLite's limit of bound variables is a choice of its build, so none is relied on."""
    jobs = app.enqueue_many("count", ({"n": n} for n in range(100_000)))

    assert [jobs[place].payload["n"] for place in (0, 1, 99_999)] == [0, 1, 99_999]
    assert [job.id for job in jobs] == list(range(1, 100_001))
    wrong = "SELECT count(*) FROM yaoki_jobs WHERE json_extract(payload, '$.n') <> id - 1"
    assert ask(str(path), wrong) == [(0,)]


def test_one_bad_payload_at_the_very_end_makes_none(app: Yaoki) -> None:
    def payloads() -> Iterator[dict[str, object]]:
        for n in range(20_000):
            yield {"n": n}
        yield {"n": float("inf")}

    with pytest.raises(InvalidPayload, match=r"\$\[20000\]\.n"):
        app.enqueue_many("count", payloads())

    assert app.jobs() == []


def test_a_source_that_raises_makes_none(app: Yaoki) -> None:
    def payloads() -> Iterator[dict[str, object]]:
        yield {"n": 1}
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        app.enqueue_many("count", payloads())

    assert app.jobs() == []


def test_memory_for_a_batch_is_a_few_times_the_batch(app: Yaoki) -> None:
    app.enqueue("warm up")
    tracemalloc.start()
    try:
        app.enqueue_many("count", [{"n": n} for n in range(10_000)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 10_000 * 4_000
