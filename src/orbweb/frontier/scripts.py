"""The Lua transitions as the server runs them: one file each, with what it stands on in front."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
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
    "seen_check": DRAINING,
    "seen_forget": DRAINING,
    "seen_learn": "",
    "journal": DRAINING,
    "restore": "",
}
"""Name of each transition and its script flags. The names are those of the files in `lua/`."""

PUSHING = frozenset({"ack", "emit", "seed_push", "add"})
"""Transitions that let requests in."""

SEEING = PUSHING | {"visit", "seen_check", "seen_forget", "seen_learn"}
"""Transitions that look at which requests are seen: there is one script of each for every kind."""

SHARED = ("shard", "seen", "push")
"""Files that stand in front of transitions and are none, besides those of `SEEN_KINDS`."""

SEEN_KINDS: dict[str, str] = {
    "exact": "seen_exact",
    "compact": "seen_compact",
    "set": "seen_set",
    "bloom": "seen_bloom",
    "bloom-module": "seen_bloom_module",
    "local": "seen_local",
}
"""Files of the kinds in which seen requests are remembered."""


@dataclass(frozen=True, slots=True)
class Script:
    """A transition's source and the name under which the server keeps it."""

    name: str
    source: bytes
    sha: str


def lua_text(name: str) -> str:
    return files("orbweb.frontier").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def assemble(name: str, kind: str = "exact", text: Callable[[str], str] = lua_text) -> Script:
    """Put in front of a transition what it uses, with the flags that the server reads.

    `kind` counts only for transitions in `SEEING`. `text` gives the Lua of a file by its name.
    """
    flags = TRANSITIONS[name]
    pieces = [f"#!lua flags={flags}" if flags else "#!lua", text("shard")]
    pieces.append("if KEYS[2] then use(KEYS[2]) end")
    if name in SEEING:
        pieces += [text(SEEN_KINDS[kind]), text("seen")]
    if name in PUSHING:
        pieces.append(text("push"))
    source = "\n".join([*pieces, text(name)]).encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


@cache
def script(name: str, kind: str = "exact") -> Script:
    return assemble(name, kind)
