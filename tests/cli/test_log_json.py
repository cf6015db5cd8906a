"""--log json: one object for each event, with what it is about."""

import json
import logging
import re
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.cli.program import Program
from yaoki import Yaoki
from yaoki.cli.logs import JsonLine

SHOP = """
import logging

from yaoki import JobContext, RetryPolicy, Yaoki, fixed

app = Yaoki()
log = logging.getLogger("shop")


@app.job("mail", retry=RetryPolicy(max_attempts=2, backoff=fixed(0.05)))
def mail(ctx: JobContext) -> None:
    log.info("to %s", "aiko", extra={"order": 7})
    if ctx.attempt == 1:
        raise ConnectionError("refused\\nby the server")


@app.job("async")
async def coroutine() -> None:
    log.warning("slow", extra={"took": float("nan"), "by": object()})


log.info("imported before logging is set up")
"""


@pytest.fixture
def shop(yaoki: Program) -> Program:
    (yaoki.folder / "shop.py").write_text(SHOP, "utf-8")
    return yaoki


def events(err: str) -> list[dict[str, Any]]:
    """Every line of stderr, each of which is an object."""
    return [json.loads(line, parse_constant=_refused) for line in err.splitlines()]


def _refused(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_every_line_is_an_object_that_says_which_attempt_it_is_about(
    shop: Program, app: Yaoki
) -> None:
    mail, coroutine = app.enqueue("mail"), app.enqueue("async")

    ran = shop("--app", "shop:app", "worker", "--until-empty", "--log", "json")
    said = events(ran.err)

    assert ran.code == 0
    for event in said:
        assert datetime.fromisoformat(event["time"]).utcoffset() == timedelta(0)
        assert event["level"] in ("info", "warning", "error")
        assert isinstance(event["message"], str)
    by_name = {event["event"]: event for event in said if "event" in event}
    assert {"ready", "draining", "ended", "retried"} <= by_name.keys()
    assert re.fullmatch(r"[\w.-]+:\d+:\w+", by_name["ready"]["worker"])
    retried = by_name["retried"]
    assert (retried["job"], retried["type"], retried["attempt"]) == (mail.id, "mail", 1)
    assert retried["worker"] == by_name["ready"]["worker"]
    assert 0 <= retried["duration"] < 10
    assert "refused by the server" in retried["message"]
    own = [event for event in said if event["logger"] == "shop"]
    assert [(one["job"], one["type"], one["attempt"], one["message"]) for one in own[:1]] == [
        (mail.id, "mail", 1, "to aiko")
    ]
    assert {one["job"] for one in own} == {mail.id, coroutine.id}
    assert own[0]["order"] == 7
    assert {one["worker"] for one in own} == {retried["worker"]}


def test_begin_and_end_of_each_attempt_are_told_at_debug(shop: Program, app: Yaoki) -> None:
    job = app.enqueue("mail")

    ran = shop(
        *("--app", "shop:app", "worker", "--until-empty", "--log", "json"), "--log-level", "debug"
    )
    of_jobs = [
        (event["event"], event["level"], event["attempt"])
        for event in events(ran.err)
        if event.get("job") == job.id and "event" in event
    ]

    assert of_jobs == [
        ("started", "debug", 1),
        ("retried", "warning", 1),
        ("started", "debug", 2),
        ("completed", "debug", 2),
    ]


def test_logging_that_the_app_set_up_gives_way_to_json_and_its_files_stay(
    shop: Program, app: Yaoki
) -> None:
    (shop.folder / "shop.py").write_text(
        "import logging\n"
        "logging.basicConfig(level='INFO', format='OWN %(message)s')\n"
        "logging.getLogger().addHandler(logging.FileHandler('shop.log'))\n" + SHOP,
        "utf-8",
    )
    app.enqueue("mail")

    ran = shop("--app", "shop:app", "worker", "--until-empty", "--log", "json")

    lines = [line for line in ran.err.splitlines() if not line.startswith("OWN imported before")]
    assert any(event["message"] == "to aiko" for event in events("\n".join(lines)))
    assert "to aiko" in (shop.folder / "shop.log").read_text("utf-8")


def test_an_error_is_told_with_its_traceback() -> None:
    try:
        raise ValueError("no\ndisk")
    except ValueError as raised:
        told = (type(raised), raised, raised.__traceback__)
    record = logging.LogRecord("yaoki.loop", logging.ERROR, "", 1, "%s failed", ("x",), told)
    event = json.loads(JsonLine().format(record))

    assert (event["message"], event["error"]) == ("x failed", "ValueError: no\ndisk")
    assert event["traceback"].startswith("Traceback")


@pytest.mark.parametrize(
    "odd", [float("inf"), {1: 2, (3, 4): 5}, "half \ud83d", b"\xff", {float("nan")}]
)
def test_whatever_is_said_the_line_is_json(odd: object) -> None:
    record = logging.makeLogRecord({"msg": "odd", "levelname": "INFO", "odd": odd})

    assert json.loads(JsonLine().format(record), parse_constant=_refused)["message"] == "odd"


def test_what_is_said_with_extra_does_not_hide_the_time_or_the_message() -> None:
    record = logging.makeLogRecord({"msg": "hello", "time": "now", "level": 9, "logger": "x"})
    event = json.loads(JsonLine().format(record))

    assert event["message"] == "hello"
    assert event["level"] != 9
    assert event["time"] != "now"
