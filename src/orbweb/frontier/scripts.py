"""The Lua transitions as the server runs them: one file each, with `shard.lua` in front."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
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
    "permit": DRAINING,
    "report": DRAINING,
    "hold_off": DRAINING,
    "seed_claim": "",
    "seed_push": "",
    "add": "",
    "redrive": DRAINING,
    "stop": DRAINING,
    "pause": DRAINING,
    "steer": DRAINING,
    "hosts": "no-writes",
    "look": "no-writes",
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


PIECES: dict[str, tuple[str, ...]] = {
    "claim": ("host", "turn"),
    "ack": ("push",),
    "emit": ("push",),
    "seed_push": ("push",),
    "add": ("push",),
    "deliver": ("push",),
    "visit": ("push",),
    "permit": ("host",),
    "report": ("host",),
    "hold_off": ("host",),
    "steer": ("host",),
}
"""Files that stand between `shard.lua` and a transition."""


@dataclass(frozen=True, slots=True)
class Script:
    """A transition's source and the name under which the server keeps it."""

    name: str
    source: bytes
    sha: str


def lua_text(name: str) -> str:
    return files("orbweb.frontier").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def parts(name: str) -> tuple[str, ...]:
    """The files that a transition is made of, in their order."""
    return ("shard", *PIECES.get(name, ()), name)


_FUNCTION = re.compile(r"^local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def without_unused(shared: str, transition: str) -> str:
    """The shared pieces without the functions that a transition does not come to.

    The server makes all functions of a script anew at each call, which costs more than many a
    transition itself, and Lua allows a script only 200 names.
    """
    functions = {found[1]: found[0] for found in _FUNCTION.finditer(shared)}
    unread = [_FUNCTION.sub("", shared), transition]
    needed: set[str] = set()
    while unread:
        words = set(re.findall(r"\w+", _COMMENT.sub("", unread.pop())))
        found_now = (words & functions.keys()) - needed
        needed |= found_now
        unread += [functions[name] for name in found_now]
    return _FUNCTION.sub(lambda found: found[0] if found[1] in needed else "", shared)


def assemble(name: str, instead: Mapping[str, str] | None = None) -> Script:
    """A transition behind the shared pieces that it needs, with the flags that the server reads.

    `instead` replaces files, for tests that break them on purpose.
    """
    flags = TRANSITIONS[name]
    first = f"#!lua flags={flags}\n" if flags else "#!lua\n"
    texts = [(instead or {}).get(part) or lua_text(part) for part in parts(name)]
    shard, *pieces, transition = texts
    use = "if KEYS[2] then use(KEYS[2]) end\n"
    shared = without_unused("\n".join([shard, use, *pieces]), transition)
    source = f"{first}{_COMMENT.sub('', shared)}{transition}".encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


@cache
def script(name: str) -> Script:
    return assemble(name)
