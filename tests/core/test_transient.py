"""Errors that tend to go away by themselves are known by the names of their classes."""

import asyncio
import errno
import http.client
import io
import smtplib
import socket
import ssl
import urllib.error
from email.message import Message
from types import SimpleNamespace
from typing import Any

import pytest

from yaoki.core.errors import TimeLimitExceeded
from yaoki.core.transient import transient


def of(name: str, *bases: type[BaseException], **attributes: object) -> Any:
    """An instance of a class with this full name, as a library that is not installed has it."""
    module, _, qualname = name.rpartition(".")
    cls = type(qualname, bases or (Exception,), {"__module__": module})
    error = cls()
    vars(error).update(attributes)
    return error


def answered(name: str, status: object) -> Any:
    return of(name, response=SimpleNamespace(status_code=status))


def http_error(code: int) -> urllib.error.HTTPError:
    return urllib.error.HTTPError("http://shop", code, "", Message(), io.BytesIO())


RequestsIOError = type(of("requests.exceptions.RequestException", OSError))
UrllibHTTPError = type(of("urllib3.exceptions.HTTPError"))
AiohttpConnection = type(of("aiohttp.client_exceptions.ClientConnectionError"))
HttpxTransport = type(of("httpx.TransportError"))
PsycopgOperational = type(of("psycopg.OperationalError"))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError(),
        ConnectionResetError(),
        BrokenPipeError(),
        TimeoutError(),
        TimeLimitExceeded(),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        OSError(errno.ENETUNREACH, "Network is unreachable"),
        socket.gaierror(-3, "Temporary failure in name resolution"),
        ssl.SSLEOFError(),
        asyncio.IncompleteReadError(b"", 3),
        http.client.RemoteDisconnected(""),
        http.client.IncompleteRead(b""),
        urllib.error.URLError(ConnectionRefusedError()),
        urllib.error.URLError(socket.gaierror()),
        urllib.error.URLError("timed out"),
        http_error(408),
        http_error(425),
        http_error(429),
        http_error(500),
        http_error(503),
        http_error(599),
        smtplib.SMTPServerDisconnected(),
        smtplib.SMTPConnectError(421, "try again later"),
        smtplib.SMTPDataError(451, "greylisted"),
        smtplib.SMTPAuthenticationError(454, b"temporary failure"),
        smtplib.SMTPRecipientsRefused({"a@b": (450, b"greylisted")}),
        of("requests.exceptions.ConnectionError", RequestsIOError),
        of("requests.exceptions.Timeout", RequestsIOError),
        of("requests.exceptions.ChunkedEncodingError", RequestsIOError),
        answered("requests.exceptions.HTTPError", 503),
        of("httpx.ConnectError", HttpxTransport),
        of("httpx.TransportError"),
        answered("httpx.HTTPStatusError", 429),
        of("aiohttp.client_exceptions.ServerDisconnectedError", AiohttpConnection),
        of("aiohttp.client_exceptions.ServerTimeoutError"),
        of("aiohttp.client_exceptions.ClientPayloadError"),
        of("aiohttp.client_exceptions.ClientResponseError", status=502),
        of("urllib3.exceptions.ProtocolError", UrllibHTTPError),
        of("urllib3.exceptions.TimeoutError", UrllibHTTPError),
        of("urllib3.exceptions.NewConnectionError", UrllibHTTPError),
        of("urllib3.exceptions.MaxRetryError", UrllibHTTPError),
        of("psycopg.OperationalError"),
        of("psycopg.errors.SerializationFailure", PsycopgOperational),
        of("psycopg.errors.DeadlockDetected", PsycopgOperational),
    ],
    ids=repr,
)
def test_an_error_of_the_network_is_transient(error: BaseException) -> None:
    assert transient(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        EOFError(),
        FileNotFoundError(),
        OSError(errno.ENOSPC, "No space left"),
        OSError(),
        SystemExit(),
        ssl.SSLCertVerificationError(),
        urllib.error.URLError("unknown url type: gopher"),
        urllib.error.URLError(FileNotFoundError()),
        urllib.error.URLError(ssl.SSLCertVerificationError()),
        http_error(400),
        http_error(404),
        smtplib.SMTPException(),
        smtplib.SMTPDataError(550, "no such user"),
        smtplib.SMTPAuthenticationError(535, b"wrong password"),
        smtplib.SMTPRecipientsRefused({"a@b": (550, b"no such user")}),
        of("requests.exceptions.InvalidURL", RequestsIOError),
        answered("requests.exceptions.HTTPError", 404),
        answered("requests.exceptions.HTTPError", None),
        of("requests.exceptions.HTTPError", response=None),
        of("requests.exceptions.HTTPError"),
        answered("httpx.HTTPStatusError", 401),
        of("httpx.UnsupportedProtocol", HttpxTransport),
        of("aiohttp.client_exceptions.ClientResponseError", status=404),
        of("aiohttp.client_exceptions.ClientConnectorCertificateError", AiohttpConnection),
        of("urllib3.exceptions.LocationParseError", UrllibHTTPError),
        of("psycopg.errors.UniqueViolation"),
        of("shop.ConnectionError"),
        of("requests_mock.ConnectionError"),
    ],
    ids=repr,
)
def test_an_error_that_would_come_again_is_not_transient(error: BaseException) -> None:
    assert not transient(error)


@pytest.mark.parametrize(
    ("error", "distance"),
    [
        (ConnectionError(), 0),
        (ConnectionResetError(), 1),
        (TimeLimitExceeded(), 2),
        (http.client.RemoteDisconnected(""), 0),
        (http_error(503), 0),
        (http_error(404), None),
        (ValueError(), None),
    ],
    ids=repr,
)
def test_the_distance_is_that_of_the_nearest_class_it_knows(
    error: BaseException, distance: int | None
) -> None:
    assert transient.distance(error) == distance


def test_a_class_without_a_module_is_no_class_it_knows() -> None:
    error = of("shop.Homeless")
    type(error).__module__ = None  # type: ignore[assignment]

    assert not transient(error)


def test_it_is_shown_by_the_name_it_is_imported_under() -> None:
    assert repr(transient) == "yaoki.transient"
