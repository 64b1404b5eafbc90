"""The Lua transitions as the server runs them: one file each, with `shard.lua` in front."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

DRAINING = "allow-oom"
"""Flag of transitions that must work on a full server, so that it can drain."""

TRANSITIONS: dict[str, str] = {
    "open": "",
    "claim": "",
    "renew": DRAINING,
    "fetched": DRAINING,
    "ack": DRAINING,
    "emit": DRAINING,
    "nack": DRAINING,
    "hold_off": DRAINING,
    "seed_claim": "",
    "seed_push": "",
    "add": "",
    "redrive": DRAINING,
    "stop": DRAINING,
    "status": "no-writes",
    "visit": "",
    "fsck": DRAINING,
    "reset": DRAINING,
    "collect": DRAINING,
    "lay": DRAINING,
    "outbox": "no-writes",
    "deliver": DRAINING,
    "trim": DRAINING,
    "close": DRAINING,
    "reopen": DRAINING,
}
"""Name of each transition and its script flags. The names are those of the files in `lua/`."""


@dataclass(frozen=True, slots=True)
class Script:
    """A transition's source and the name under which the server keeps it."""

    name: str
    source: bytes
    sha: str


def lua_text(name: str) -> str:
    return files("orbweb.frontier").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def assemble(name: str, shard: str, transition: str) -> Script:
    """Put the shared pieces in front of a transition, with the flags that the server reads."""
    flags = TRANSITIONS[name]
    first = f"#!lua flags={flags}\n" if flags else "#!lua\n"
    source = f"{first}{shard}\nif KEYS[2] then use(KEYS[2]) end\n{transition}".encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


@cache
def script(name: str) -> Script:
    return assemble(name, lua_text("shard"), lua_text(name))
