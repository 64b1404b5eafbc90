"""How requests travel through a frontier: as bytes through a store, as copies within a process."""

from __future__ import annotations

from typing import Any

from orbweb.model.codec import decode, encode
from orbweb.model.request import Request


class WireCodec:
    """Requests as bytes. See `Codec`."""

    def encode(self, request: Request) -> bytes:
        return encode(request)

    def decode(self, payload: Any) -> Request:
        return decode(payload)


class ObjectCodec:
    """Requests as copies of themselves, so that they can carry anything. See `Codec`."""

    def encode(self, request: Request) -> Request:
        return request.copy()

    def decode(self, payload: Any) -> Request:
        copy: Request = payload.copy()
        return copy
