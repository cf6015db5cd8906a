"""app.on() and once() on psycopg2's connections, whatever was registered with it."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import psycopg2
import psycopg2.extensions
import psycopg2.extras
import pytest

from yaoki import KeyConflict, NotInTransaction, StoreUnavailable, WrongConnection, Yaoki, once


@pytest.fixture
def mine(postgres_url: str) -> Iterator[Any]:
    with closing(psycopg2.connect(postgres_url)) as connection:
        yield connection


def test_types_that_were_registered_do_not_matter(app: Yaoki, mine: Any) -> None:
    odd = psycopg2.extensions.new_type((20, 23, 25, 16), "ODD", lambda value, cursor: "odd")
    psycopg2.extensions.register_type(odd, mine)
    mine.cursor_factory = psycopg2.extras.RealDictCursor

    with app.on(mine):
        job = app.enqueue("ship", {"to": "x"}, idempotency_key="k")
        assert not app.enqueue("ship", idempotency_key="k").created
        [listed] = app.jobs()
        assert (listed.id, listed.payload) == (job.id, {"to": "x"})
    mine.commit()

    assert app.get(job) == job


TEXTS = ["'; DROP TABLE yaoki.jobs; --", "\\", "\\'", "\\\\'", "%s %(a)s %", "$1", "é 東 😀"]


@pytest.mark.parametrize("conforming", ["on", "off"])
@pytest.mark.parametrize("text", TEXTS)
def test_every_text_arrives_as_it_is(app: Yaoki, mine: Any, text: str, conforming: str) -> None:
    with mine.cursor() as cursor:
        cursor.execute(f"SET standard_conforming_strings = {conforming}")
    with mine, app.on(mine):
        job = app.enqueue("ship", {"to": text}, idempotency_key=text)
        assert (job.payload, job.idempotency_key) == ({"to": text}, text)

    assert app.get(job).payload == {"to": text}
    assert app.get(job).idempotency_key == text


def test_in_autocommit_mode_each_call_is_a_transaction(app: Yaoki, mine: Any) -> None:
    mine.autocommit = True
    with app.on(mine):
        job = app.enqueue("ship", idempotency_key="k")
        assert app.get(job) == job
        with pytest.raises(KeyConflict):
            app.enqueue("mail", idempotency_key="k")
        app.cancel(job)
    with pytest.raises(NotInTransaction):
        once(mine, "k")

    assert mine.get_transaction_status() == psycopg2.extensions.TRANSACTION_STATUS_IDLE
    assert app.get(job).status == "cancelled"


def test_nothing_is_committed_behind_the_callers_back(app: Yaoki, mine: Any) -> None:
    with app.on(mine):
        app.enqueue("ship")
        app.enqueue_many("mail", [{}])
    mine.rollback()

    assert app.jobs() == []


def test_a_connection_that_was_closed_is_said_to_be_closed(app: Yaoki, mine: Any) -> None:
    mine.close()

    with app.on(mine), pytest.raises(StoreUnavailable, match="closed"):
        app.enqueue("ship")


def test_a_cursor_is_no_connection(app: Yaoki, mine: Any) -> None:
    with pytest.raises(WrongConnection), app.on(mine.cursor()):
        app.enqueue("ship")


def test_a_schema_with_a_dollar_sign_in_its_name_is_no_placeholder(
    postgres_url: str, mine: Any
) -> None:
    app = Yaoki(f"{postgres_url}?schema=a$1")
    app.migrate()

    with mine, app.on(mine):
        job = app.enqueue("ship")

    assert app.get(job).status == "pending"
    app.close()
