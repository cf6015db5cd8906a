"""ctx.transaction() in a process of its own: the effect and the completion, or neither."""

from collections.abc import Iterator

import pytest

from tests.worker.support_effects import add, noted, notes
from tests.worker.support_isolated import MakeApp, make_app
from tests.worker.support_workers import Working
from yaoki import Yaoki

__all__ = ["make_app", "noted"]

pytestmark = pytest.mark.usefixtures("noted")

HANDLERS = """
STATEMENT = {statement!r}

def note(tx, text):
    tx.execute(STATEMENT, [text])

@app.job("plain", **ONCE_ISOLATED)
def plain(ctx: JobContext, then: str) -> None:
    ctx.log("before")
    with ctx.transaction() as tx:
        note(tx, "a")
        tx.result = app.enqueue("echo", {{"text": "b"}}).id
        ctx.progress(1, 2)
        ctx.log("inside")
        if then == "die inside":
            os.kill(os.getpid(), signal.SIGKILL)
        if then == "hang":
            hold_the_lock(60)
        if then == "raise":
            raise ValueError("no")
    ctx.log("behind")
    if then == "go on":
        time.sleep(1.2)
    if then == "die behind":
        os.kill(os.getpid(), signal.SIGKILL)

@app.job("coroutine", **ONCE_ISOLATED)
async def coroutine(ctx: JobContext, then: str) -> None:
    async with ctx.atransaction() as tx:
        note(tx, "a")
        tx.result = (await app.aenqueue("echo", {{"text": "b"}})).id
"""


@pytest.fixture
def app(make_app: MakeApp, any_url: str) -> Yaoki:
    more = "ONCE_ISOLATED = {'isolation': 'process', 'retry': ONCE}\n"
    return make_app(any_url, more + HANDLERS.format(statement=add(Yaoki(any_url), "")[0]))


@pytest.fixture
def working(app: Yaoki) -> Iterator[Working]:
    working = Working(app, concurrency=1, lease_for=30)
    yield working
    working.drain()


def test_it_is_committed_with_all_that_was_done_in_it(app: Yaoki, working: Working) -> None:
    for number, kind in enumerate(("plain", "coroutine"), 1):
        ended = app.wait(app.enqueue(kind, {"then": "end"}), timeout=30)

        assert ended.status == "completed"
        assert notes(app) == ["a"] * number
        assert app.wait(ended.result, timeout=30).result == "b"
    assert [line.text for line in app.logs(1)] == ["before", "inside"]
    assert "not recorded" not in str(ended)


BROKEN = {
    "die inside": "ProcessDied: its process was killed by signal 9 (SIGKILL)",
    "hang": "TimeLimitExceeded: ran longer than its time limit of 1 s",
    "raise": "ValueError: no",
}


def test_nothing_of_it_stays_when_it_does_not_end(app: Yaoki, working: Working) -> None:
    for then, says in BROKEN.items():
        job = app.enqueue("plain", {"then": then}, timeout=1)
        ended = app.wait(job, timeout=30)

        assert (ended.status, ended.error) == ("failed", says)
        assert notes(app) == []
        # Nor is the lock that it had.
        assert app.wait(app.enqueue("echo", {"text": "next"}), timeout=30).result == "next"
    assert [one.type for one in app.jobs()] == ["echo", "plain"] * 3


def test_what_was_committed_stays_whatever_becomes_of_the_process(
    app: Yaoki, working: Working, caplog: pytest.LogCaptureFixture
) -> None:
    job = app.enqueue("plain", {"then": "die behind"})
    ended = app.wait(job, timeout=30)
    app.wait(app.enqueue("echo", {"text": "next"}), timeout=30)

    assert (ended.status, app.get(job).status, notes(app)) == ("completed", "completed", ["a"])
    assert "raised after it had completed the job" in caplog.text


def test_a_handler_that_goes_on_behind_it_is_not_taken_for_one_that_lost_its_lease(
    app: Yaoki, caplog: pytest.LogCaptureFixture
) -> None:
    """The lease is over by the completion, and the keeper looks three times a second."""
    working = Working(app, concurrency=1, lease_for=1)
    ended = app.wait(app.enqueue("plain", {"then": "go on"}), timeout=30)
    working.drain()

    assert (ended.status, app.get(ended).attempt) == ("completed", 1)
    assert "lease was lost" not in caplog.text
