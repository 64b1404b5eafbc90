"""What the errors of Scrapy's downloader mean, in the words that Orbweb has for them."""

from __future__ import annotations

from scrapy.exceptions import IgnoreRequest

from orbweb.model.reasons import Reason

_BY_NAME = (
    ("Timeout", Reason.TIMEOUT),
    ("TimedOut", Reason.TIMEOUT),
    ("DNS", Reason.DNS),
    ("CannotResolve", Reason.DNS),
    ("SSL", Reason.TLS),
    ("TLS", Reason.TLS),
    ("Certificate", Reason.TLS),
    ("UnsupportedURLScheme", Reason.SCHEME),
    ("NotSupported", Reason.SCHEME),
    ("Tunnel", Reason.PROXY),
    ("Proxy", Reason.PROXY),
    ("Cancelled", Reason.TOO_LARGE),
    ("Connect", Reason.CONNECTION),
    ("Response", Reason.CONNECTION),
)
"""Parts of names of classes: Twisted, aiohttp and Scrapy have one each for most of these."""

_IGNORED = (
    ("robots.txt", Reason.ROBOTS_DISALLOWED),
    ("offsite", Reason.OFFSITE),
    ("max redirections", Reason.REDIRECT_LOOP),
)


def reason_of(error: BaseException) -> Reason:
    """One word for why a request did not get its response."""
    if isinstance(error, IgnoreRequest):
        text = str(error).lower()
        return next((reason for part, reason in _IGNORED if part in text), Reason.CANCELLED)
    for kind in type(error).__mro__:
        for part, reason in _BY_NAME:
            if part in kind.__name__:
                return reason
    return Reason.CONNECTION if isinstance(error, OSError) else Reason.MIDDLEWARE_ERROR


def text_of(error: BaseException) -> str:
    """What is kept of an error."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
