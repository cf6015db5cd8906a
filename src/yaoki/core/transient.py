"""Errors that tend to go away by themselves: the network's, in the libraries that people use.

Classes are known by name, so that no library has to be installed. A name is the package's and
the class's: `requests.ConnectionError` is requests.exceptions.ConnectionError.
"""

import errno
from collections.abc import Callable
from typing import Any


class Transient:
    """A rule for `retry_on` and `give_up_on`: does this error tend to go away by itself?"""

    def __call__(self, error: BaseException) -> bool:
        return self.distance(error) is not None

    def distance(self, error: BaseException) -> int | None:
        """How far up the error's classes the one is that makes it transient, if one does.

        The nearest class that is known decides: a urllib HTTPError of 404 is not transient,
        although it is a URLError too.
        """
        for distance, cls in enumerate(type(error).__mro__):
            tends_to_pass = _KNOWN.get(_name(cls))
            if tends_to_pass is not None:
                return distance if tends_to_pass(error) else None
        return None

    def __repr__(self) -> str:
        return "yaoki.transient"


transient = Transient()


def _name(cls: type) -> str:
    return f"{str(cls.__module__).partition('.')[0]}.{cls.__qualname__}"


def _always(error: Any) -> bool:
    return True


def _never(error: Any) -> bool:
    return False


def _by_errno(error: Any) -> bool:
    return getattr(error, "errno", None) in _NETWORK_IS_DOWN


def _by_reason(error: Any) -> bool:
    reason = getattr(error, "reason", None)
    if isinstance(reason, BaseException):
        return transient(reason)
    return not str(reason).startswith(("unknown url type", "no host given"))


def _by_code(error: Any) -> bool:
    return _http_says_later(getattr(error, "code", None))


def _by_status(error: Any) -> bool:
    return _http_says_later(getattr(error, "status", None))


def _by_response(error: Any) -> bool:
    return _http_says_later(getattr(getattr(error, "response", None), "status_code", None))


def _http_says_later(status: object) -> bool:
    return isinstance(status, int) and (status in {408, 425, 429} or 500 <= status <= 599)


def _by_smtp_code(error: Any) -> bool:
    return _smtp_says_later(getattr(error, "smtp_code", None))


def _by_recipients(error: Any) -> bool:
    return any(_smtp_says_later(code) for code, _ in getattr(error, "recipients", {}).values())


def _smtp_says_later(code: object) -> bool:
    return isinstance(code, int) and 400 <= code <= 499


_NETWORK_IS_DOWN = {
    errno.ENETDOWN,
    errno.ENETUNREACH,
    errno.ENETRESET,
    errno.EHOSTDOWN,
    errno.EHOSTUNREACH,
}

_KNOWN: dict[str, Callable[[Any], bool]] = {
    "builtins.ConnectionError": _always,
    "builtins.TimeoutError": _always,
    "builtins.OSError": _by_errno,
    "socket.gaierror": _always,
    "socket.herror": _always,
    "ssl.SSLError": _always,
    "ssl.SSLCertVerificationError": _never,
    "asyncio.IncompleteReadError": _always,
    "http.RemoteDisconnected": _always,
    "http.IncompleteRead": _always,
    "urllib.URLError": _by_reason,
    "urllib.HTTPError": _by_code,
    "smtplib.SMTPServerDisconnected": _always,
    "smtplib.SMTPConnectError": _always,
    "smtplib.SMTPResponseException": _by_smtp_code,
    "smtplib.SMTPRecipientsRefused": _by_recipients,
    "requests.ConnectionError": _always,
    "requests.Timeout": _always,
    "requests.ChunkedEncodingError": _always,
    "requests.HTTPError": _by_response,
    "httpx.TransportError": _always,
    "httpx.UnsupportedProtocol": _never,
    "httpx.LocalProtocolError": _never,
    "httpx.HTTPStatusError": _by_response,
    "aiohttp.ClientConnectionError": _always,
    "aiohttp.ServerTimeoutError": _always,
    "aiohttp.ClientPayloadError": _always,
    "aiohttp.ClientConnectorCertificateError": _never,
    "aiohttp.ServerFingerprintMismatch": _never,
    "aiohttp.ClientResponseError": _by_status,
    "urllib3.ProtocolError": _always,
    "urllib3.TimeoutError": _always,
    "urllib3.NewConnectionError": _always,
    "urllib3.MaxRetryError": _always,
    "urllib3.ProxyError": _always,
    "psycopg.OperationalError": _always,
    "psycopg2.OperationalError": _always,
}
