"""ctx.log: the lines of a handler, kept with its job."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from tests.support.databases import ask
from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, let_lease_end, work_off
from yaoki import (
    GiveUp,
    InvalidOption,
    Job,
    JobContext,
    JobLogHandler,
    RetryPolicy,
    Snooze,
    Yaoki,
)
from yaoki.core.log_lines import LINES_KEPT, LONGEST_LINE


def texts(app: Yaoki, job: Job) -> list[str]:
    return [line.text for line in app.logs(job)]


def test_lines_of_both_kinds_of_handlers_are_there_when_the_job_is_done(app: Yaoki) -> None:
    @app.job("plain")
    def plain(ctx: JobContext) -> None:
        ctx.log("reading")
        ctx.log("the paper is nearly out", level="warning")

    @app.job("async")
    async def coroutine(ctx: JobContext) -> None:
        ctx.log("reading")
        await asyncio.sleep(0.001)
        ctx.log({"pages": 3})

    jobs = [plain.enqueue(), coroutine.enqueue()]
    work_off(app)

    assert [(line.number, line.level, line.text) for line in app.logs(jobs[0])] == [
        (1, "info", "reading"),
        (2, "warning", "the paper is nearly out"),
    ]
    assert texts(app, jobs[1]) == ["reading", "{'pages': 3}"]
    assert [line.text for line in asyncio.run(app.alogs(jobs[1]))] == texts(app, jobs[1])


def test_lines_can_be_read_while_the_job_runs(
    app: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    @app.job("a")
    def handler(ctx: JobContext) -> None:
        ctx.log("begins")
        release.wait(20)
        ctx.log("ends")

    job = handler.enqueue()
    start_worker()
    eventually(lambda: texts(app, job) == ["begins"], within=20)
    assert app.get(job).status == "running"
    release.set()

    assert app.wait(job, timeout=20).status == "completed"
    assert texts(app, job) == ["begins", "ends"]


@pytest.mark.parametrize(
    ("error", "status"),
    [(ValueError("no"), "failed"), (GiveUp("no"), "failed"), (Snooze(100), "pending")],
    ids=["failed", "gave up", "snoozed"],
)
def test_lines_are_kept_however_the_attempt_ends(
    app: Yaoki, start_worker: StartWorker, error: Exception, status: str
) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(ctx: JobContext) -> None:
        ctx.log("before it ended")
        raise error

    job = handler.enqueue()
    start_worker()
    eventually(lambda: app.get(job).attempts, within=20)

    assert app.get(job).status == status
    assert texts(app, job) == ["before it ended"]


def test_the_lines_of_every_attempt_are_kept(app: Yaoki) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=3, backoff=lambda attempt: 0))
    def handler(ctx: JobContext) -> None:
        ctx.log(f"try {ctx.attempt}")
        if ctx.attempt < 3:
            raise ConnectionError("again")

    job = handler.enqueue()
    work_off(app)

    assert [(line.attempt, line.number, line.text) for line in app.logs(job)] == [
        (1, 1, "try 1"),
        (2, 1, "try 2"),
        (3, 1, "try 3"),
    ]


def test_a_time_limit_leaves_the_lines_that_say_how_far_it_came(
    app: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    @app.job("a", timeout=0.1, retry=RetryPolicy(max_attempts=1))
    def handler(ctx: JobContext) -> None:
        ctx.log("came this far")
        release.wait(20)
        ctx.log("too late")

    job = handler.enqueue()
    working = start_worker()
    assert app.wait(job, timeout=20).status == "failed"
    release.set()
    eventually(lambda: working.worker.slots.leaked == 0, within=20)
    working.drain()

    assert texts(app, job) == ["came this far"]


def test_a_handler_that_lost_its_job_adds_no_line(
    app: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    lost = threading.Event()

    @app.job("a")
    def handler(ctx: JobContext) -> None:
        if ctx.attempt == 2:
            return
        ctx.log("mine")
        ctx.wait_stopping(20)
        ctx.log("not mine any more")
        lost.set()
        release.wait(20)

    job = handler.enqueue()
    start_worker()
    eventually(lambda: texts(app, job), within=20)
    let_lease_end(app, job.id)
    app.rescue()
    assert lost.wait(20)
    release.set()
    app.retry(job)
    assert app.wait(job, timeout=20).status == "completed"

    assert texts(app, job) == ["mine"]


@pytest.mark.parametrize("ends", ["commits", "rolls back"])
def test_the_lines_of_a_transaction_are_kept_whether_it_commits_or_not(
    app: Yaoki, ends: str
) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(ctx: JobContext) -> None:
        ctx.log("before")
        with ctx.transaction():
            ctx.log("inside")
            if ends == "rolls back":
                raise ValueError("no")

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).status == ("completed" if ends == "commits" else "failed")
    assert texts(app, job) == ["before", "inside"]


def test_nobody_waits_for_a_transaction_to_write_lines(app: Yaoki) -> None:
    """On SQLite it has the only write lock, and the keeper has leases to renew."""

    @app.job("a")
    def handler(ctx: JobContext) -> list[bool]:
        ctx.log("before")
        due = [ctx.lines_are_due]
        with ctx.transaction() as tx:
            ctx.log("inside")
            tx.result = [*due, ctx.lines_are_due]
        return []

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).result == [True, False]
    assert texts(app, job) == ["before", "inside"]


def test_a_handler_that_says_very_much_leaves_its_newest_lines(app: Yaoki) -> None:
    @app.job("a")
    def handler(ctx: JobContext) -> int:
        for number in range(1, 5 * LINES_KEPT + 1):
            ctx.log(f"line {number}")
        waiting = ctx.lines_to_write()
        return 0 if waiting is None else len(waiting.each)

    job = handler.enqueue()
    work_off(app)
    kept = app.logs(job)

    assert app.get(job).result <= LINES_KEPT, "no more than that are held in memory"
    assert len(kept) == LINES_KEPT
    assert [line.number for line in kept] == [*range(4 * LINES_KEPT + 1, 5 * LINES_KEPT + 1)]
    assert kept[0].text == f"line {4 * LINES_KEPT + 1}"


def test_so_does_one_that_goes_on_for_long(
    app: Yaoki, start_worker: StartWorker, release: threading.Event
) -> None:
    written = threading.Event()

    @app.job("a")
    def handler(ctx: JobContext) -> None:
        for number in range(1, LINES_KEPT + 1):
            ctx.log(f"line {number}")
        written.wait(20)
        for number in range(10):
            ctx.log(f"more {number}")
        release.wait(20)

    job = handler.enqueue()
    start_worker()
    eventually(lambda: len(app.logs(job)) == LINES_KEPT, within=20)
    written.set()
    eventually(lambda: texts(app, job)[-1] == "more 9", within=20)

    assert len(app.logs(job)) == LINES_KEPT
    assert app.logs(job)[0].text == "line 11"


def test_a_line_is_made_storable_short_and_keeps_no_secret(app: Yaoki) -> None:
    @app.job("a", secret=("card",))
    def handler(ctx: JobContext, card: str) -> None:
        ctx.log(f"charging {card}")
        ctx.log("nul \0 and half \ud83d")
        ctx.log("x" * 5_000)

    job = handler.enqueue(card="4242 4242 4242 4242")
    work_off(app)
    charged, odd, long = texts(app, job)

    assert charged == "charging ***"
    assert odd == "nul \\x00 and half \\ud83d"
    assert len(long) == LONGEST_LINE
    assert "characters left out" in long
    assert ask(app.store, "SELECT count(*) FROM yaoki.logs WHERE text LIKE '%4242%'") == [(0,)]


@pytest.mark.parametrize("when", ["at the end", "while it runs"])
def test_lines_that_cannot_be_stored_harm_nothing_else(
    app: Yaoki, start_worker: StartWorker, release: threading.Event, when: str
) -> None:
    @app.job("a")
    def handler(ctx: JobContext, said: str) -> str:
        if when == "at the end":
            release.wait(20)
            ctx.log(said)
        else:
            ctx.log(said)
            release.wait(20)
        return f"said {said}"

    app.migrate()
    refuse_poison(app)
    jobs = [handler.enqueue(said=said) for said in ("poison", "fine")]
    working = start_worker()
    if when == "while it runs":
        eventually(lambda: texts(app, jobs[1]) == ["fine"], within=20)
    assert working.worker.keeper.failures == 0
    release.set()

    assert [app.wait(job, timeout=20).result for job in jobs] == ["said poison", "said fine"]
    assert [texts(app, job) for job in jobs] == [[], ["fine"]]


def refuse_poison(app: Yaoki) -> None:
    """As if the database could not store this text."""
    if app.url.startswith("sqlite"):
        ask(
            app.store,
            "CREATE TRIGGER refuse BEFORE INSERT ON yaoki_logs WHEN NEW.text = 'poison' "
            "BEGIN SELECT RAISE(ABORT, 'no poison'); END",
        )
    else:
        ask(app.store, "ALTER TABLE yaoki.logs ADD CHECK (text <> 'poison')")


def test_a_level_that_there_is_not_is_refused(app: Yaoki) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(ctx: JobContext) -> str:
        with pytest.raises(InvalidOption, match="there is no level 'loud'; there are debug, info"):
            ctx.log("x", level="loud")
        return "refused"

    job = handler.enqueue()
    work_off(app)

    assert app.get(job).result == "refused"


@pytest.fixture
def forwarding() -> Iterator[logging.Logger]:
    """A logger of the shop's, whose lines inside attempts are kept with their jobs."""
    logger, handler = logging.getLogger("shop"), JobLogHandler()
    logger.addHandler(handler)
    logger.setLevel("DEBUG")
    yield logger
    logger.removeHandler(handler)
    logger.setLevel("NOTSET")


def test_what_a_handler_logs_can_be_kept_with_its_job(
    app: Yaoki, forwarding: logging.Logger
) -> None:
    @app.job("plain")
    def plain() -> None:
        forwarding.debug("looking for order %d", 7)
        logging.getLogger("shop.mail").warning("slow")
        try:
            raise ConnectionError("refused")
        except ConnectionError:
            forwarding.exception("cannot send")

    @app.job("async")
    async def coroutine() -> None:
        async def inner() -> None:
            forwarding.critical("in a task of its own")

        await asyncio.create_task(inner())

    forwarding.info("not in an attempt")
    jobs = [plain.enqueue(), coroutine.enqueue()]
    work_off(app)
    debug, warning, error = app.logs(jobs[0])

    assert (debug.level, debug.text) == ("debug", "looking for order 7")
    assert (warning.level, warning.text) == ("warning", "slow")
    assert error.level == "error"
    assert error.text.startswith("cannot send\nTraceback")
    assert error.text.endswith("ConnectionError: refused")
    assert [(line.level, line.text) for line in app.logs(jobs[1])] == [
        ("error", "in a task of its own")
    ]


def test_yaokis_own_lines_are_not_the_handlers(app: Yaoki) -> None:
    root, handler = logging.getLogger(), JobLogHandler()
    root.addHandler(handler)
    try:

        @app.job("a", retry=RetryPolicy(max_attempts=1))
        def failing() -> None:
            raise ValueError("no")

        job = failing.enqueue()
        work_off(app)
    finally:
        root.removeHandler(handler)

    assert texts(app, job) == []
