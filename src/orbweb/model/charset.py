"""Which encoding a body is in: byte order mark, header, the document's own word, then a guess."""

from __future__ import annotations

import codecs
from functools import lru_cache

from w3lib.encoding import (
    html_body_declared_encoding,
    http_content_type_encoding,
    read_bom,
    resolve_encoding,
)

_GUESS_BYTES = 65_536
"""A guess looks at this much of the body; more takes longer and is hardly ever better."""

_LAST_RESORT = "cp1252"

UTF16_BOMS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def encoding_of(body: bytes, content_type: str) -> str:
    """Return the name of a codec that Python knows, under the rules that browsers follow.

    The order is that of the WHATWG (Encoding §6, HTML §13.2.3): a byte order mark wins over
    the header, the header over a `<meta>` or XML declaration in the first 4 KB. Without any of
    them it is UTF-8 when the body is valid UTF-8, else what charset-normalizer finds likeliest.
    """
    mark = read_bom(body)[0]
    if mark is not None:
        return mark
    declared = _header_encoding(content_type) or _readable(html_body_declared_encoding(body))
    return declared or _guess(body)


def known_encoding(label: str) -> str | None:
    """Return the codec that a label means to browsers (`gb2312` is GB 18030), None if unknown."""
    return _readable(resolve_encoding(label))


@lru_cache(maxsize=256)
def _header_encoding(content_type: str) -> str | None:
    return _readable(http_content_type_encoding(content_type)) if content_type else None


@lru_cache(maxsize=256)
def _readable(encoding: str | None) -> str | None:
    """The encoding, unless it is none of text: Python also has codecs such as `hex` and `idna`."""
    try:
        return encoding if encoding and b"a".decode(encoding, "replace") is not None else None
    except (LookupError, ValueError):
        return None


def _guess(body: bytes) -> str:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        from charset_normalizer import from_bytes  # takes memory, and few pages need it

        best = from_bytes(body[:_GUESS_BYTES]).best()
        return _LAST_RESORT if best is None else best.encoding
    return "utf-8"
