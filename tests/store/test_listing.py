"""Lists of jobs: filters, pages, and what they hide."""

from typing import Any

import pytest

from tests.support.acts import ids, publish
from tests.support.databases import insert_rows
from yaoki import InvalidOption, Yaoki
from yaoki.store import Store


def test_the_newest_jobs_come_first(app: Yaoki) -> None:
    jobs = app.enqueue_many("mail", [{"n": n} for n in range(5)])

    assert app.jobs() == jobs[::-1]
    assert app.jobs().cursor is None


def test_every_filter_narrows_the_list(app: Yaoki) -> None:
    plain = app.enqueue("mail")
    urgent = app.enqueue("mail", queue="urgent")
    image = app.enqueue("image")
    [claimed] = app.claim("w7", types=["image"])

    assert ids(app.jobs(type="mail")) == [urgent.id, plain.id]
    assert ids(app.jobs(queue="urgent")) == [urgent.id]
    assert ids(app.jobs(status="running")) == [image.id]
    assert ids(app.jobs(status="pending", queue="default")) == [plain.id]
    assert ids(app.jobs(worker_id="w7")) == [claimed.id]
    assert app.jobs(type="mail", status="running") == []
    assert app.jobs(worker_id="nobody") == []


@pytest.mark.parametrize("status", ["pending", "running", "completed", "failed", "cancelled"])
def test_each_status_lists_its_own(app: Yaoki, status: str) -> None:
    made = {}
    for name in ("completed", "failed", "cancelled", "running"):
        app.enqueue("mail", max_attempts=1)
        [job] = app.claim("w1")
        made[name] = job.id
        if name == "completed":
            app.complete(job)
        if name == "failed":
            app.fail(job, "x")
        if name == "cancelled":
            app.cancel(job)
            app.release(job)
    made["pending"] = app.enqueue("mail").id

    assert ids(app.jobs(status=status)) == [made[status]]


def test_pages_go_on_where_the_one_before_ended(app: Yaoki) -> None:
    jobs = app.enqueue_many("mail", [{}] * 7)

    pages, cursor = [], None
    while True:
        page = app.jobs(limit=3, cursor=cursor)
        pages.append(ids(page))
        if (cursor := page.cursor) is None:
            break

    newest_first = ids(jobs)[::-1]
    assert pages == [newest_first[:3], newest_first[3:6], newest_first[6:]]


def test_a_last_page_that_is_full_has_no_cursor(app: Yaoki) -> None:
    app.enqueue_many("mail", [{}] * 6)

    second = app.jobs(limit=3, cursor=app.jobs(limit=3).cursor)

    assert (len(second), second.cursor) == (3, None)


def test_jobs_that_are_made_or_discarded_meanwhile_shift_nothing(app: Yaoki) -> None:
    jobs = app.enqueue_many("mail", [{}] * 9)
    seen, cursor = [], None
    while True:
        page = app.jobs(limit=2, cursor=cursor)
        seen += ids(page)
        app.enqueue_many("mail", [{}] * 3)
        gone = app.cancel(page[0])
        app.discard(gone)
        if (cursor := page.cursor) is None:
            break

    assert seen == ids(jobs)[::-1]


def test_pages_of_a_filter_hold_only_what_fits(app: Yaoki) -> None:
    for n in range(10):
        app.enqueue("even" if n % 2 == 0 else "odd")

    first = app.jobs(type="odd", limit=3)
    second = app.jobs(type="odd", limit=3, cursor=first.cursor)

    assert [job.type for job in [*first, *second]] == ["odd"] * 5


def test_secret_values_are_hidden_in_lists(app: Yaoki) -> None:
    @app.job("charge", secret=("card_number",))
    def charge(card_number: str, amount: int) -> None: ...

    job = charge.enqueue(card_number="4111", amount=5)

    [listed] = app.jobs()
    assert listed.payload == {"card_number": "***", "amount": 5}
    assert app.get(job).payload == {"card_number": "4111", "amount": 5}


def test_secrets_that_another_program_published_are_hidden_too(app: Yaoki, store: Store) -> None:
    publish(store, "charge", secret=("card_number",))
    app.enqueue("charge", {"card_number": "4111"})

    assert app.jobs()[0].payload == {"card_number": "***"}


def test_a_list_shows_the_attempts_of_its_jobs(app: Yaoki) -> None:
    for error in ("first", "second"):
        app.enqueue("mail")
        app.fail(app.claim("w1")[0], error, retry_in=60)

    assert [job.errors[0].error for job in app.jobs()] == ["second", "first"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": "dead"},
        {"status": ""},
        {"limit": 0},
        {"limit": 1_001},
        {"limit": True},
        {"limit": 2**63},
        {"cursor": "x"},
        {"cursor": "-1"},
        {"cursor": "1 OR 1=1"},
        {"cursor": "9" * 30},
        {"cursor": "١"},
        {"queue": ""},
        {"queue": "\ud83d"},
        {"type": "a\0"},
        {"worker_id": "\ud83d"},
    ],
    ids=str,
)
def test_a_filter_that_cannot_be_is_refused(app: Yaoki, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        app.jobs(**wrong)


@pytest.mark.parametrize("name", ["' OR 1=1 --", "%", "_", '"'])
def test_names_in_filters_are_only_names(app: Yaoki, name: str) -> None:
    app.enqueue("mail")

    assert app.jobs(type=name) == []
    assert app.jobs(queue=name) == []


def test_a_page_of_a_hundred_thousand_jobs_is_cut_by_id(app: Yaoki, store: Store) -> None:
    app.enqueue("mail")
    insert_rows(store, 100_000, 1, status="completed", lease=2, finished_at=1)

    page = app.jobs(limit=3, cursor="50000")

    assert ids(page) == [49_999, 49_998, 49_997]
