"""Under which number a Scrapy job remembers a page, for commands that only know its URL."""

from __future__ import annotations

from scrapy import Request
from scrapy.utils.request import fingerprint

from orbweb.adapters.scrapy.dupefilter import set_fingerprint
from orbweb.errors import ConfigError
from orbweb.model.url import host_of

MADE_BY = ("scrapy", "scrapy-redis")
"""Scrapy's own fingerprint, or that of `ORBWEB_FINGERPRINT = "scrapy-redis"`."""


def link_key(url: str, made_by: str) -> tuple[int, str]:
    """The frontier's fingerprint of a GET of this URL, and its host.

    Raises `ConfigError` for an unknown `made_by`, `ValueError` for what is no URL.
    """
    if made_by not in MADE_BY:
        raise ConfigError(f"fingerprints are made by {' or '.join(MADE_BY)}, not {made_by!r}")
    request = Request(url)
    if made_by == "scrapy":
        return signed(fingerprint(request)), host_of(request.url)
    return signed(bytes.fromhex(set_fingerprint(request))), host_of(request.url)


def signed(digest: bytes) -> int:
    """The first 64 bits of a digest as the frontier counts them."""
    return int.from_bytes(digest[:8], "big", signed=True)
