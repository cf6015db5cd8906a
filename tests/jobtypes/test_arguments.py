"""A handler gets arguments in the types of its signature; what does not fit is refused early."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pytest

from tests.support.databases import ask
from tests.worker.support_workers import work_off
from yaoki import InvalidArguments, InvalidPayload, JobContext, RetryPolicy, Yaoki


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Level(IntEnum):
    ONE = 1


@dataclass
class Address:
    city: str
    since: date
    lines: list[str]


class Money(msgspec.Struct):
    amount: Decimal
    currency: str = "JPY"


class Place(NamedTuple):
    x: float
    y: float


class Options(TypedDict):
    loud: bool


TOKYO = timezone(timedelta(hours=9))

VALUES: list[tuple[Any, Any]] = [
    (int, 2**70),
    (float, 1.25),
    (bool, True),
    (str, "八起き\n\t\"'\\"),
    (bytes, b"\x00\xff"),
    (datetime, datetime(2024, 2, 29, 9, 30, 1, 5, tzinfo=TOKYO)),
    (date, date(2024, 2, 29)),
    (time, time(9, 30)),
    (timedelta, timedelta(days=1, microseconds=5)),
    (UUID, UUID("12345678-1234-5678-1234-567812345678")),
    (Decimal, Decimal("0.10")),
    (Size, Size.LARGE),
    (Level, Level.ONE),
    (Address, Address("京都", date(2020, 1, 1), ["a", "b"])),
    (Money, Money(Decimal("9.99"))),
    (Place, Place(1.5, -2.0)),
    (Options, {"loud": True}),
    (list[Address], [Address("x", date(2020, 1, 1), [])]),
    (dict[str, Money], {"a": Money(Decimal(1), "EUR")}),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (int | None, None),
    (date | None, date(2024, 1, 1)),
    (Literal["a", "b"], "b"),
    (Annotated[int, msgspec.Meta(ge=1)], 1),
    (Any, {"free": [1, None]}),
    (object, [1]),
    (list, [1, "a"]),
    (dict, {"a": {"b": 1}}),
]


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=lambda each: str(each)[:40])
def test_an_argument_arrives_as_it_was_given(app: Yaoki, kind: Any, value: Any) -> None:
    seen = []

    def handler(value: Any) -> None:
        seen.append(value)

    handler.__annotations__["value"] = kind
    job_type = app.job("a")(handler)

    job = job_type.enqueue(value=value)
    work_off(app)

    assert app.get(job).status == "completed", app.get(job).error
    assert seen == [value]
    assert type(seen[0]) is type(value)


def test_arguments_may_be_given_by_position(app: Yaoki) -> None:
    seen = []

    @app.job("a")
    def handler(ctx: JobContext, first: int, second: str = "b", *, third: date) -> None:
        seen.append((ctx.attempt, first, second, third))

    job = handler.enqueue(7, third=date(2024, 1, 1))
    work_off(app)

    assert job.payload == {"first": 7, "third": "2024-01-01"}
    assert seen == [(1, 7, "b", date(2024, 1, 1))]


def test_a_default_is_the_handlers_and_not_frozen_into_the_payload(app: Yaoki) -> None:
    seen = []

    @app.job("a")
    def handler(a: int = 1, b: list[str] | None = None) -> None:
        seen.append((a, b))

    jobs = [handler.enqueue(), handler.enqueue(b=["x"])]
    work_off(app)

    assert [job.payload for job in jobs] == [{}, {"b": ["x"]}]
    assert sorted(seen, key=str) == [(1, None), (1, ["x"])]


def test_a_handler_with_keywords_takes_anything_besides(app: Yaoki) -> None:
    seen = []

    @app.job("a")
    def handler(when: date, **others: object) -> None:
        seen.append((when, others))

    handler.enqueue(when=date(2024, 1, 1), big=2**70, nested={"a": [1]})
    work_off(app)

    assert seen == [(date(2024, 1, 1), {"big": 2**70, "nested": {"a": [1]}})]


def test_an_annotation_that_names_nothing_does_not_take_the_others_away(app: Yaoki) -> None:
    seen = []

    def handler(a: Any, b: Any) -> None:
        seen.append((a, b))

    handler.__annotations__.update(a=date, b="NoSuchClass")
    app.job("a")(handler).enqueue(a=date(2024, 1, 1), b=[1])
    work_off(app)

    assert seen == [(date(2024, 1, 1), [1])]


def test_a_class_that_json_cannot_become_takes_anything(app: Yaoki) -> None:
    seen = []

    class Strange:
        pass

    @app.job("a")
    def handler(a: Strange, b: Callable[[], int], c: complex) -> None:
        seen.append((a, b, c))

    app.enqueue("a", {"a": 1, "b": 2, "c": 3})
    work_off(app)

    assert seen == [(1, 2, 3)]


# Refused when the job is made


@pytest.fixture
def book(app: Yaoki) -> Any:
    @app.job("book")
    def book(room: int, guest: str, until: date, size: Size = Size.SMALL) -> None: ...

    return book


GOOD: dict[str, Any] = {"room": 1, "guest": "麻衣", "until": date(2024, 1, 1)}


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"room": "one"}, ["room", "int"]),
        ({"room": 1.5}, ["room", "int"]),
        ({"room": True}, ["room", "int"]),
        ({"room": None}, ["room", "int"]),
        ({"until": "tomorrow"}, ["until"]),
        ({"until": 5}, ["until"]),
        ({"size": "xl"}, ["size"]),
        ({"guest": ["a"]}, ["guest", "str"]),
        ({"breakfast": True}, ["'breakfast'", "room: int"]),
        ({"room": ...}, ["room"]),
    ],
)
@pytest.mark.parametrize("way", ["type", "using", "by name", "many", "many by name"])
def test_what_does_not_fit_is_refused_in_the_caller(
    app: Yaoki, book: Any, way: str, change: dict[str, Any], names: list[str]
) -> None:
    payload = {name: value for name, value in (GOOD | change).items() if value is not ...}
    ways: dict[str, Callable[[], object]] = {
        "type": lambda: book.enqueue(**payload),
        "using": lambda: book.using(delay=5).enqueue(**payload),
        "by name": lambda: app.enqueue("book", payload),
        "many": lambda: book.enqueue_many([GOOD, payload]),
        "many by name": lambda: app.enqueue_many("book", [GOOD, payload]),
    }

    with pytest.raises(InvalidArguments) as caught:
        ways[way]()

    assert isinstance(caught.value, TypeError)
    assert "book" in str(caught.value)
    for name in names:
        assert name in str(caught.value)
    assert list(app.jobs()) == []


def test_too_many_and_twice_given_arguments_are_refused(app: Yaoki, book: Any) -> None:
    with pytest.raises(InvalidArguments, match="takes 4 arguments, 5 were given"):
        book.enqueue(1, 2, 3, 4, 5)
    with pytest.raises(InvalidArguments, match="'room' twice"):
        book.enqueue(1, room=1, guest="a", until=date(2024, 1, 1))


def test_the_context_cannot_be_an_argument(app: Yaoki) -> None:
    @app.job("a")
    def handler(ctx: JobContext, **others: object) -> None: ...

    with pytest.raises(InvalidArguments, match="'ctx' is filled in"):
        app.enqueue("a", {"ctx": 1})


def test_what_json_cannot_hold_is_refused_with_its_path(app: Yaoki) -> None:
    @app.job("a")
    def handler(items: list[Any]) -> None: ...

    with pytest.raises(InvalidPayload, match=r"\$\.items\[1\]\.price"):
        handler.enqueue(items=[1, {"price": float("nan")}])


# Refused when it runs, after a deploy


def test_a_payload_that_no_longer_fits_fails_so_that_it_can_be_told(app: Yaoki) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(old: int) -> None: ...

    job = handler.enqueue(old=1)
    after_the_deploy = Yaoki(app.url)

    @after_the_deploy.job("a", retry=RetryPolicy(max_attempts=1))
    def newer(new: int) -> None: ...

    work_off(after_the_deploy)
    after_the_deploy.close()

    failed = app.get(job)
    assert failed.status == "failed"
    assert str(failed.error).startswith("InvalidArguments: a: ")
    assert "new" in str(failed.error)


def set_payload(app: Yaoki, payload: str) -> None:
    """Of every job, as an older program would have written it."""
    ask(app.store, "UPDATE yaoki.jobs SET payload = :payload", {"payload": payload})


def test_it_runs_after_the_next_deploy(app: Yaoki) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(old: int) -> int:
        return old

    job = handler.enqueue(old=1)
    set_payload(app, '{"new": 1}')
    work_off(app)
    assert app.get(job).status == "failed"
    set_payload(app, '{"old": 5}')
    app.retry(job)
    work_off(app)

    assert (app.get(job).status, app.get(job).result) == ("completed", 5)


def test_an_argument_that_the_handler_lost_fails_the_job(app: Yaoki) -> None:
    """Left out silently, it would be work that is half done."""

    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler(a: int) -> None: ...

    job = handler.enqueue(a=1)
    set_payload(app, '{"a": 1, "gone": 2}')
    work_off(app)

    assert app.get(job).status == "failed"
    assert "gone" in str(app.get(job).error)
