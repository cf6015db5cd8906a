import logging

from yaoki.cli.logs import OneLine


def test_an_exception_is_told_in_the_line_of_its_event() -> None:
    line = OneLine().format(_record("exchange failed", ValueError("no\ndisk")))

    assert len(line.splitlines()) == 1
    assert "error   exchange failed [ValueError: no\\ndisk, " in line
    assert line.endswith(f"{__file__} line {_record.__code__.co_firstlineno + 3}]")


def test_a_logger_of_the_app_is_named() -> None:
    record = logging.LogRecord("shop.mail", logging.INFO, "", 1, "sent %d", (3,), None)

    assert OneLine().format(record).endswith(" info    shop.mail: sent 3")


def _record(message: str, error: Exception) -> logging.LogRecord:
    """A record of an event that an exception belongs to."""
    try:
        raise error
    except ValueError as raised:
        told = (type(raised), raised, raised.__traceback__)
    return logging.LogRecord("yaoki.loop", logging.ERROR, "", 1, message, (), told)
