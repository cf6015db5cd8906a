"""The lines that are kept with a job: whose they are, how many, and for how long."""

from datetime import timedelta

import pytest

from tests.support.acts import OUTCOMES, claim_one, make
from tests.support.clocks import Clock
from tests.support.databases import ask
from yaoki import Job, JobNotFound, Yaoki
from yaoki.core.log_lines import LINES_KEPT
from yaoki.core.outcomes import settle
from yaoki.store import Store
from yaoki.store.ops.logs import Line, Lines, WriteLines
from yaoki.store.ops.settling import Exchange, Held, Settle, Settlement, SettleOne


def held(job: Job) -> Held:
    assert job.lease is not None
    return Held(job.id, job.lease)


def lines(*texts: str, first: int = 1, crowded: bool = False) -> Lines:
    """So many lines of an attempt, said just now."""
    each = [Line(number, 0, "info", said) for number, said in enumerate(texts, first)]
    return Lines(each, crowded)


def write(store: Store, job: Job, said: Lines) -> None:
    store.run(WriteLines([(held(job), said)]))


def texts(app: Yaoki, job: Job) -> list[str]:
    return [line.text for line in app.logs(job)]


def test_lines_are_kept_in_their_order_with_their_level_and_time(
    store: Store, app: Yaoki, clock: Clock
) -> None:
    make(store)
    job = claim_one(store)
    said = [Line(1, 2_000_000, "debug", "first"), Line(2, 0, "error", "second\nline")]
    write(store, job, Lines(said, False))

    [first, second] = app.logs(job.id)

    assert (first.attempt, first.number, first.level, first.text) == (1, 1, "debug", "first")
    assert (second.level, second.text, second.token) == ("error", "second\nline", job.lease)
    assert second.at == clock.time
    assert second.at - first.at == timedelta(seconds=2)


def test_a_line_that_is_written_again_stays_as_it_is(store: Store, app: Yaoki) -> None:
    make(store)
    job = claim_one(store)
    write(store, job, lines("first", "second"))
    write(store, job, lines("again", "third", first=2))

    assert texts(app, job) == ["first", "second", "third"]


def test_lines_of_several_jobs_go_in_together(store: Store, app: Yaoki) -> None:
    jobs = [make(store), make(store)]
    one, other = claim_one(store), claim_one(store)
    store.run(WriteLines([(held(other), lines("b1")), (held(one), lines("a1", "a2"))]))

    assert [texts(app, job) for job in jobs] == [["a1", "a2"], ["b1"]]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_who_has_lost_the_job_adds_no_line(store: Store, app: Yaoki, outcome: str) -> None:
    make(store)
    job = claim_one(store)
    store.run(SettleOne(Settlement(held(job), settle(OUTCOMES[outcome]))))
    write(store, job, lines("too late"))

    assert texts(app, job) == []


def test_the_last_lines_are_written_with_the_outcome(store: Store, app: Yaoki) -> None:
    done, failed = make(store), make(store)
    first, second = claim_one(store), claim_one(store)
    write(store, first, lines("before"))
    store.run(
        Exchange(
            [
                Settlement(
                    held(first),
                    settle(OUTCOMES["completed"]),
                    lines=lines("before", "with the outcome"),
                ),
                Settlement(held(second), settle(OUTCOMES["failed"]), lines=lines("why")),
            ]
        )
    )

    assert texts(app, done) == ["before", "with the outcome"]
    assert texts(app, failed) == ["why"]
    assert (app.get(done).status, app.get(failed).status) == ("completed", "failed")


def test_the_lines_of_a_late_outcome_are_left_out(store: Store, app: Yaoki) -> None:
    make(store)
    job = claim_one(store)
    store.run(Settle([Settlement(held(job), settle(OUTCOMES["released"]))]))
    claim_one(store, "w2")
    late = Settlement(held(job), settle(OUTCOMES["completed"]), lines=lines("too late"))

    assert store.run(Settle([late])) == {job.id}
    assert texts(app, job) == []


def test_the_lines_of_earlier_attempts_stay_and_say_whose_they_are(
    store: Store, app: Yaoki
) -> None:
    job = make(store, max_attempts=5)
    for outcome in ("released", "retried", "snoozed", "completed"):
        app.retry(job)
        claimed = claim_one(store)
        said = lines(f"{outcome} by {claimed.attempt}", crowded=True)
        store.run(SettleOne(Settlement(held(claimed), settle(OUTCOMES[outcome]), lines=said)))

    found = app.logs(job)

    assert [(line.attempt, line.text) for line in found] == [
        (1, "released by 1"),
        (1, "retried by 1"),
        (2, "snoozed by 2"),
        (2, "completed by 2"),
    ]
    assert len({line.token for line in found}) == 4


def test_the_newest_lines_of_a_job_are_kept(store: Store, app: Yaoki) -> None:
    make(store, max_attempts=3)
    job = claim_one(store)
    many = [f"line {number}" for number in range(LINES_KEPT)]
    last = Settlement(held(job), settle(OUTCOMES["retried"]), lines=lines(*many))
    store.run(SettleOne(last))
    app.retry(job)
    again = claim_one(store)
    assert again.revision > 2, "by this a worker knows that there may be older lines"
    write(store, again, lines("new", "newest", crowded=True))

    kept = app.logs(job)

    assert len(kept) == LINES_KEPT
    assert [line.text for line in kept[:1] + kept[-2:]] == ["line 2", "new", "newest"]


def test_a_job_that_is_claimed_for_the_first_time_has_no_older_lines(store: Store) -> None:
    make(store)

    assert claim_one(store).revision == 2


def test_discarding_a_job_deletes_its_lines_and_no_others(store: Store, app: Yaoki) -> None:
    make(store), make(store)
    job, other = claim_one(store), claim_one(store)
    for each in (job, other):
        done = Settlement(held(each), settle(OUTCOMES["completed"]), lines=lines("done"))
        store.run(SettleOne(done))
    app.discard(job)

    assert ask(store, "SELECT job_id FROM yaoki.logs") == [(other.id,)]


def test_a_job_without_lines_has_none_and_no_job_is_an_error(app: Yaoki) -> None:
    assert app.logs(app.enqueue("mail")) == []
    with pytest.raises(JobNotFound):
        app.logs(77)


def test_any_text_that_was_made_storable_is_kept(store: Store, app: Yaoki) -> None:
    make(store)
    job = claim_one(store)
    said = ["", "予約 🙂", "'; DROP TABLE", '{"a": "\\u0000"}', "\x1b[31m", "%s %(a)s :id"]
    write(store, job, lines(*said))

    assert texts(app, job) == said


def test_very_many_lines_go_in_by_several_statements(store: Store, app: Yaoki) -> None:
    for _ in range(3):
        make(store)
    jobs = [claim_one(store) for _ in range(3)]
    long = [f"{number} " + "x" * 990 for number in range(LINES_KEPT)]
    everything = WriteLines([(held(job), lines(*long)) for job in jobs])
    store.run(everything)

    statements = list(everything.steps())
    assert [statement.name for statement in statements] == ["log"] * 4
    assert sum(len(statement.many or ()) for statement in statements) == 3 * LINES_KEPT
    assert [texts(app, job) for job in jobs] == [long] * 3
