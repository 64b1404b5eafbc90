"""What a site answered last to a request that was given up, as bytes beside its dead letter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
from backports import zstd

from orbweb.errors import OrbwebError
from orbweb.model.request import Request

if TYPE_CHECKING:
    from orbweb.model.response import Response

VERSION = 1
MOST_HEADERS = 100
LONGEST_HEADER = 8192
"""Characters of a header's or cookie's value that are kept."""
LONGEST_HISTORY = 50
MOST_UNPACKED = 256 * 1024 * 1024
"""Bytes at most that reading one answer takes, whatever the bytes say."""


class UnreadableAnswerError(OrbwebError):
    """The bytes are no answer that this version can read."""


class _Wire(msgspec.Struct, omit_defaults=True, frozen=True, gc=False):
    u: str
    """url"""
    s: int
    """status"""
    n: int
    """bytes of the whole body"""
    b: bytes = b""
    """the body, as far as it is kept"""
    h: dict[str, str] = {}
    """headers"""
    c: dict[str, str] = {}
    """cookies"""
    e: float | None = None
    """elapsed"""
    y: list[str] = []
    """history"""


@dataclass(frozen=True, slots=True)
class Answer:
    """A kept response."""

    response: Response
    whole_bytes: int
    """Length of the body that was received."""

    @property
    def is_whole(self) -> bool:
        """The body is kept to its end."""
        return len(self.response.content) == self.whole_bytes


_PREFIX = bytes((VERSION,))
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Wire).decode


def pack_answer(response: Response, most_bytes: int) -> bytes:
    """The response as bytes, its body cut at `most_bytes`; headers are bounded too."""
    wire = _Wire(
        response.url,
        response.status_code,
        len(response.content),
        response.content[:most_bytes],
        _bounded(response.headers),
        _bounded(response.cookies),
        response.elapsed,
        response.history[-LONGEST_HISTORY:],
    )
    try:
        return _PREFIX + zstd.compress(_encode(wire), level=6)
    except UnicodeEncodeError:  # half a surrogate pair in a header: the body says more than those
        bare = msgspec.structs.replace(wire, h={}, c={}, y=[])
        return _PREFIX + zstd.compress(_encode(bare), level=6)


def unpack_answer(packed: bytes, request: Request | None = None) -> Answer:
    """What `pack_answer` wrote; nothing in it is executed. Raises `UnreadableAnswerError`."""
    if packed[:1] != _PREFIX:
        known = f"this version of Orbweb reads {VERSION}"
        raise UnreadableAnswerError(f"answer of version {packed[:1].hex() or 'none'}; {known}")
    try:
        wire = _decode(zstd.ZstdDecompressor().decompress(packed[1:], MOST_UNPACKED))
    except (zstd.ZstdError, EOFError, ValueError) as error:
        raise UnreadableAnswerError(f"no answer of version {VERSION}: {error}") from error
    from orbweb.model.response import Response  # its parser takes longer than all else here

    response = Response(
        wire.u,
        wire.s,
        wire.b,
        wire.h,
        wire.c,
        request,
        elapsed=wire.e,
        history=wire.y,
    )
    return Answer(response, wire.n)


def _bounded(values: dict[str, str]) -> dict[str, str]:
    kept = list(values.items())[:MOST_HEADERS]
    return {name: value[:LONGEST_HEADER] for name, value in kept}
