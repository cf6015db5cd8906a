"""The values of secret arguments appear in no log, no error and no list."""

import logging
from datetime import date
from enum import Enum
from typing import Any

import pytest

import yaoki
from tests.worker.support_workers import work_off
from yaoki import InvalidArguments, InvalidOption, JobContext, RetryPolicy, Yaoki


class Colour(Enum):
    RED = "red"


CARD = "4111-1111-1111-1111"


def everything_said(app: Yaoki, job_id: int, caplog: pytest.LogCaptureFixture) -> str:
    """All that people see without asking for this very payload."""
    job = app.get(job_id)
    told = [job.error, repr(job), caplog.text]
    told += [f"{one.error} {one.traceback}" for one in job.attempts]
    told += [str(each.to_dict()) for each in app.jobs()]
    return "\n".join(map(str, told))


@pytest.mark.parametrize(
    "error",
    [
        lambda card: ValueError(f"card {card} was refused"),
        lambda card: ValueError({"card": card}),
        lambda card: KeyError(card),
        lambda card: ExceptionGroup("all", [ValueError(card)]),
    ],
)
def test_they_are_hidden_in_errors_tracebacks_logs_and_lists(
    app: Yaoki, caplog: pytest.LogCaptureFixture, error: Any
) -> None:
    caplog.set_level(logging.DEBUG, "yaoki")

    @app.job("pay", secret=("card",), retry=RetryPolicy(max_attempts=1))
    def pay(card: str, amount: int) -> None:
        raise error(card)

    job = pay.enqueue(card=CARD, amount=7)
    work_off(app)

    said = everything_said(app, job.id, caplog)
    assert app.get(job).status == "failed"
    assert CARD not in said
    assert "***" in said
    assert "'amount': 7" in said
    assert app.get(job).payload["card"] == CARD


@pytest.mark.parametrize("ending", ["GiveUp", "Cancel", "RetryAfter", "Snooze"])
def test_they_are_hidden_in_what_a_handler_says_of_its_ending(
    app: Yaoki, caplog: pytest.LogCaptureFixture, ending: str
) -> None:
    @app.job("pay", secret=("card",), retry=RetryPolicy(max_attempts=1))
    def pay(card: str) -> None:
        kind = getattr(yaoki, ending)
        raise kind(60, f"no {card}") if ending in ("RetryAfter", "Snooze") else kind(f"no {card}")

    job = pay.enqueue(card=CARD)
    work_off(app, max_wait=0)

    assert CARD not in everything_said(app, job.id, caplog)
    assert "no ***" in everything_said(app, job.id, caplog)


def test_they_are_hidden_inside_structures(app: Yaoki, caplog: pytest.LogCaptureFixture) -> None:
    """A secret dict hides each text in it, not only the dict as a whole."""

    @app.job("pay", secret=("card",), retry=RetryPolicy(max_attempts=1))
    def pay(card: dict[str, str]) -> None:
        raise ValueError(f"the card {card['number']} was refused")

    job = pay.enqueue(card={"number": CARD, "owner": "麻衣"})
    work_off(app)

    assert CARD not in everything_said(app, job.id, caplog)


def test_they_are_hidden_when_an_error_comes_after_the_transaction(
    app: Yaoki, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("pay", secret=("card",))
    def pay(ctx: JobContext, card: str) -> None:
        with ctx.transaction():
            pass
        raise ValueError(f"after {card}")

    job = pay.enqueue(card=CARD)
    work_off(app)

    assert "after ***" in caplog.text
    assert CARD not in everything_said(app, job.id, caplog)


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, CARD), (date, CARD), (list[int], [1, CARD]), (dict[str, int], {"number": CARD})],
)
def test_a_value_that_does_not_fit_is_refused_without_being_shown(
    app: Yaoki, kind: Any, value: Any
) -> None:
    def pay(card: Any) -> None: ...

    pay.__annotations__["card"] = kind
    job_type = app.job("pay", secret=("card",))(pay)

    with pytest.raises(InvalidArguments) as caught:
        job_type.enqueue(card=value)

    assert "card" in str(caught.value)
    assert CARD not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_the_value_of_another_argument_is_shown(app: Yaoki) -> None:
    """So that the one above proves something."""

    @app.job("paint")
    def paint(colour: Colour) -> None: ...

    with pytest.raises(InvalidArguments, match="green"):
        app.enqueue("paint", {"colour": "green"})


def test_a_result_that_cannot_be_stored_is_not_shown_in_the_log(
    app: Yaoki, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("pay", secret=("card",))
    def pay(card: str) -> object:
        return {"card": card, "amount": float("nan")}

    pay.enqueue(card=CARD)
    work_off(app)

    assert "its result cannot be stored" in caplog.text
    assert CARD not in caplog.text


def test_a_secret_that_is_no_argument_is_refused(app: Yaoki) -> None:
    with pytest.raises(InvalidOption, match="'cvv'"):

        @app.job("pay", secret=("cvv",))
        def pay(card: str) -> None: ...


def test_a_secret_in_an_idempotency_key_is_refused(app: Yaoki) -> None:
    with pytest.raises(InvalidOption, match="would show the secret argument 'card'"):

        @app.job("pay", secret=("card",), idempotency_key="pay-{card}")
        def pay(card: str) -> None: ...


def test_a_list_of_secrets_is_no_text(app: Yaoki) -> None:
    with pytest.raises(InvalidOption, match="list"):

        @app.job("pay", secret="card")  # type: ignore[arg-type]
        def pay(card: str) -> None: ...
