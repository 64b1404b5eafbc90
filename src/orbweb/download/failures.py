"""What each error of a download means: the one place that maps errors to reasons."""

from __future__ import annotations

import ssl
from collections.abc import Callable

import aiohttp

from orbweb import errors
from orbweb.download.base import DownloadError, Dropped, Failed
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.model.response import Response
from orbweb.model.url import BadUrlError

# The first class that fits decides, so subclasses stand before their bases.
_CLIENT_ERRORS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Reason], ...] = (
    (aiohttp.NonHttpUrlClientError, Reason.SCHEME),
    (aiohttp.InvalidURL, Reason.BAD_URL),
    ((aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError), Reason.PROXY),
    (aiohttp.ClientConnectorDNSError, Reason.DNS),
    ((aiohttp.ClientSSLError, aiohttp.ServerFingerprintMismatch, ssl.SSLError), Reason.TLS),
    (TimeoutError, Reason.TIMEOUT),
    (aiohttp.ClientResponseError, Reason.HTTP_ERROR),
    (aiohttp.ClientPayloadError, Reason.CONNECTION),
    ((aiohttp.ClientConnectionError, OSError), Reason.CONNECTION),
    (aiohttp.ClientError, Reason.HTTP_ERROR),
)

_ORBWEB_ERRORS: tuple[tuple[type[Exception], Reason], ...] = (
    (errors.NotRetryError, Reason.NOT_RETRY),
    (errors.ValidationError, Reason.VALIDATION),
    (errors.ContentTypeRejectedError, Reason.CONTENT_TYPE),
    (errors.ResponseTooLargeError, Reason.TOO_LARGE),
    (errors.AntiBotError, Reason.ANTIBOT),
    (errors.ProxyUnavailableError, Reason.PROXY),
    (errors.HttpStatusError, Reason.STATUS_REJECTED),
    (errors.UnserialisableError, Reason.NOT_SERIALIZABLE),
    (errors.RequestError, Reason.HTTP_ERROR),
)

_HOST_IS_AWAY = frozenset({502, 503, 504})
"""By these a proxy says that it cannot reach the host."""

CLIENT_ERRORS = (aiohttp.ClientError, OSError, ValueError)
"""What aiohttp raises for a request or an answer; `TimeoutError` is an `OSError`."""


def download_error(error: BaseException, url: str) -> DownloadError:
    """Translate one of `CLIENT_ERRORS`; the text names the URL and what went wrong."""
    for kind, reason in _CLIENT_ERRORS:
        if isinstance(error, kind):
            if reason is Reason.CONNECTION and _is_encoding_error(error):
                reason = Reason.HTTP_ERROR
            if isinstance(error, aiohttp.ClientHttpProxyError) and error.status in _HOST_IS_AWAY:
                reason = Reason.CONNECTION
            if isinstance(error.__cause__, ssl.SSLError):  # behind a socks5 proxy
                reason = Reason.TLS
            return DownloadError(reason, f"{url}: {_TEXTS.get(reason, _plain)(error)}")
    text = f"{url}: the request cannot be sent as it is: {_plain(error)}"
    return DownloadError(Reason.HTTP_ERROR, text, retry=False)


def failure(
    request: Request, error: Exception, response: Response | None = None
) -> Failed | Dropped:
    """Turn an error that ended an attempt into its outcome.

    Errors of Orbweb keep their meaning, whoever raised them; any other is a fault of the client.
    """
    if isinstance(error, DownloadError):
        return Failed(request, error.reason, error, error.retry, response=response)
    if isinstance(error, BadUrlError):
        return Failed(request, error.reason, error, retry=False, response=response)
    for kind, reason in _ORBWEB_ERRORS:
        if isinstance(error, kind):
            if reason is Reason.CONTENT_TYPE:
                return Dropped(request, reason, error)
            return Failed(request, reason, error, reason.retryable, response=response)
    return Failed(request, Reason.HTTP_ERROR, error, retry=True, response=response)


def _is_encoding_error(error: BaseException) -> bool:
    return isinstance(error, aiohttp.ClientPayloadError) and "content-encoding" in str(error)


def _last_line(error: BaseException) -> str:
    return str(error).strip().rpartition("\n")[2].strip()


def _plain(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _connect(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy cannot reach the host: {error.status} {error.message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {error.os_error.strerror or error.os_error}"
    if isinstance(error, aiohttp.ClientPayloadError):
        return f"the body ended before its end: {_last_line(error.__cause__ or error)}"
    return _plain(error)


def _timeout(error: BaseException) -> str:
    if isinstance(error, aiohttp.ConnectionTimeoutError):
        return "no connection within the connect timeout"
    if isinstance(error, aiohttp.SocketTimeoutError):
        return "the server sent nothing for as long as the read timeout"
    return "not finished within the request timeout"


def _malformed(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientResponseError):
        first_line = error.message.strip().partition("\n")[0].rstrip(": ")
        return f"the answer is not valid HTTP ({first_line or 'unreadable'})"
    if _is_encoding_error(error):
        return f"the body cannot be decompressed ({_last_line(error)})"
    return _plain(error)


def _proxy(error: BaseException) -> str:
    """Without the proxy's address, which may have a password."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"the proxy refused to connect: {error.status} {error.message}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"cannot connect to the proxy: {error.os_error.strerror or error.os_error}"
    return _plain(error)


_TEXTS: dict[Reason, Callable[[BaseException], str]] = {
    Reason.TIMEOUT: _timeout,
    Reason.HTTP_ERROR: _malformed,
    Reason.CONNECTION: _connect,
    Reason.DNS: _connect,
    Reason.PROXY: _proxy,
}
