"""How a node tells the store which live values it goes by."""

from __future__ import annotations

import msgspec


class Ack(msgspec.Struct, omit_defaults=True):
    """What a node says of the live values that it goes by."""

    version: int
    """Of the store's values."""
    job: str = ""
    run: str = ""
    machine: str = ""
    pid: int = 0
    keys: dict[str, str] = {}
    """By place of each value that concerns the node: empty when it holds, else why not."""
    sources: dict[str, str] = {}
    """Sources that are away, and why."""

    def pack(self) -> bytes:
        return msgspec.json.encode(self)
