import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.cli.program import Program, on_both
from yaoki import Yaoki

pytestmark = on_both


def test_the_id_of_the_new_job_is_all_that_is_printed(yaoki: Program, app: Yaoki) -> None:
    ran = yaoki("enqueue", "mail", '{"to": "山田", "n": 100000000000000000000000}')

    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "1\n"
    assert app.get(1).payload == {"to": "山田", "n": 10**23}


def test_every_option_lands_on_the_job(yaoki: Program, app: Yaoki) -> None:
    yaoki(
        *("enqueue", "mail", "--key", "k-1", "--priority", "HIGH", "--queue", "slow"),
        *("--max-attempts", "7", "--timeout", "1h30m", "--tag", "a", "--tag", "b"),
        *("--run-at", "2031-12-24T18:00+09:00"),
    )

    job = app.get(1)
    assert job.payload == {}
    assert (job.idempotency_key, job.priority, job.queue) == ("k-1", 20, "slow")
    assert (job.max_attempts, job.timeout, job.tags) == (7, 5_400.0, ("a", "b"))
    assert job.run_at == datetime(2031, 12, 24, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    ("said", "seconds"), [("30", 30), ("30s", 30), ("5m", 300), ("2h", 7_200), ("1d", 86_400)]
)
def test_a_delay_is_counted_from_now(yaoki: Program, app: Yaoki, said: str, seconds: int) -> None:
    yaoki("enqueue", "mail", "--delay", said)

    job = app.get(1)
    assert job.run_at - job.created_at == timedelta(seconds=seconds)


def test_a_known_key_gives_the_existing_job_and_says_so(yaoki: Program) -> None:
    first = yaoki("enqueue", "mail", "--key", "welcome-7")

    second = yaoki("enqueue", "mail", "--key", "welcome-7")

    assert second.code == 0
    assert second.out == first.out
    assert second.err == "yaoki: job 1 has this key already (ready), so no other was made\n"


def test_a_key_of_another_type_is_refused(yaoki: Program) -> None:
    yaoki("enqueue", "mail", "--key", "7")

    ran = yaoki("enqueue", "fax", "--key", "7")

    assert (ran.code, ran.out) == (1, "")
    assert "belongs to job 1 of type 'mail'" in ran.err


def test_the_payload_may_come_from_standard_input(yaoki: Program, app: Yaoki) -> None:
    yaoki("enqueue", "mail", "-", stdin='{"to": "from a pipe"}\n')

    assert app.get(1).payload == {"to": "from a pipe"}


def test_with_an_app_its_definition_decides_what_was_not_said(yaoki: Program, app: Yaoki) -> None:
    ran = yaoki("--app", "shop:app", "enqueue", "mail", '{"to": "a"}')

    assert ran.out == "1\n"
    assert app.get(1).queue == "mail"


def test_a_refused_payload_does_not_show_its_secret(yaoki: Program) -> None:
    ran = yaoki("--app", "shop:app", "enqueue", "mail", json.dumps({"to": 5, "card": "4111111"}))

    assert ran.code == 2
    assert "4111111" not in ran.err
