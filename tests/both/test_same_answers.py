"""The same is done on both stores: every answer, every error and every row is the same."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from tests.both.script import Script
from tests.support.databases import ask
from tests.support.postgres import fresh_database
from yaoki import Yaoki


@pytest.fixture(scope="module")
def apps(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Yaoki]]:
    """One on each store."""
    folder: Path = tmp_path_factory.mktemp("both")
    with ExitStack() as at_the_end:
        urls = [f"sqlite:///{folder / 'jobs.db'}?durability=normal"]
        urls.append(at_the_end.enter_context(fresh_database()))
        made = [Yaoki(url) for url in urls]
        for app in made:
            at_the_end.callback(app.close)
        yield made


@pytest.fixture(scope="module")
def scripts(apps: list[Yaoki]) -> list[Script]:
    scripts = [Script(app) for app in apps]
    for script in scripts:
        script.run()
    return scripts


def test_every_answer_and_every_error_is_the_same(scripts: list[Script]) -> None:
    on_sqlite, on_postgres = (script.answers for script in scripts)

    assert len(on_sqlite) > 300
    assert any(isinstance(said, str) and said.startswith("Invalid") for _, said in on_sqlite)
    for one, other in zip(on_sqlite, on_postgres, strict=True):
        assert_same(one, other)


def test_every_job_is_the_same(scripts: list[Script]) -> None:
    on_sqlite, on_postgres = (
        [script.shown(job) for job in script.every_job()] for script in scripts
    )

    assert len(on_sqlite) > 300
    for one, other in zip(on_sqlite, on_postgres, strict=True):
        assert_same(one, other)


SAME = (
    *("type", "queue", "priority", "status", "payload", "attempt", "max_attempts", "timeout"),
    *("backoff", "said", "idempotency_key", "tags", "error", "result", "progress"),
    *("releases", "snoozes", "rescues"),
)


def test_every_row_is_the_same_to_the_letter(scripts: list[Script]) -> None:
    rows = f"SELECT {', '.join(SAME)} FROM yaoki.jobs ORDER BY id"
    attempts = "SELECT attempt, outcome, error FROM yaoki.attempts ORDER BY job_id, lease"

    for statement in (rows, attempts):
        on_sqlite, on_postgres = (ask(script.app.store, statement) for script in scripts)
        for one, other in zip(on_sqlite, on_postgres, strict=True):
            assert_same(one, other)


def assert_same(one: Any, other: Any) -> None:
    """Without a difference of a million characters in the message."""
    if one != other:
        first, second = _parts(one), _parts(other)
        differ = [
            (key, str(first.get(key))[:300], str(second.get(key))[:300])
            for key in first.keys() | second.keys()
            if first.get(key) != second.get(key)
        ]
        raise AssertionError(f"{str(one)[:200]}: {differ}")


def _parts(value: Any) -> dict[Any, Any]:
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict):
        return dict(value[1])
    return value if isinstance(value, dict) else dict(enumerate(value))


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**100), 10**100)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(payload=st.dictionaries(texts, values, max_size=4), result=values, error=texts)
def test_whatever_json_there_is_comes_back_from_both(
    apps: list[Yaoki], payload: dict[str, Any], result: Any, error: str
) -> None:
    ended = []
    for app in apps:
        made = app.enqueue("anything", payload, max_attempts=2)
        [job] = app.claim("w", types=["anything"])
        app.fail(job, error, retry_in=0)
        [job] = app.claim("w", types=["anything"])
        app.complete(job, result)
        ended.append(app.get(made))

    assert [repr(job.payload) for job in ended] == [repr(payload)] * 2
    assert len({repr(job.result) for job in ended}) == 1
    assert len({job.errors[0].error for job in ended}) == 1
