"""The Lua transitions as the server runs them: one file each, with what it stands on in front."""

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
    "take_tasks": "",
    "add": "",
    "take": "",
    "redrive": DRAINING,
    "stop": DRAINING,
    "pause": DRAINING,
    "steer": DRAINING,
    "tune": DRAINING,
    "configure": DRAINING,
    "acknowledge": DRAINING,
    "hosts": "no-writes",
    "look": "no-writes",
    "explain": "no-writes",
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
    "lay": DRAINING,
    "outbox": "no-writes",
    "deliver": DRAINING,
    "trim": DRAINING,
    "close": DRAINING,
    "reopen": DRAINING,
    "open_tasks": "no-writes",
    "idle_tasks": "no-writes",
    "look_at_tasks": "no-writes",
    "settle_tasks": DRAINING,
    "lead": DRAINING,
    "record": DRAINING,
    "tell": "",
    "fold": DRAINING,
}
"""Name of each transition and its script flags. The names are those of the files in `lua/`."""

PUSHING = frozenset({"ack", "emit", "seed_push", "take_tasks", "add", "deliver"})
"""Transitions that let requests in."""

SEEING = PUSHING | {"visit", "explain", "seen_check", "seen_forget", "seen_learn"}
"""Transitions that look at which requests are seen: there is one script of each for every kind."""

SEEN_KINDS: dict[str, str] = {
    "exact": "seen_exact",
    "compact": "seen_compact",
    "set": "seen_set",
    "bloom": "seen_bloom",
    "bloom-module": "seen_bloom_module",
    "local": "seen_local",
}
"""Files of the kinds in which seen requests are remembered."""

PIECES: dict[str, tuple[str, ...]] = {
    "claim": ("host", "turn"),
    "permit": ("host",),
    "report": ("host",),
    "hold_off": ("host",),
    "steer": ("host",),
    "tune": ("host",),
    "hosts": ("host",),
    "seed_push": ("batch",),
    "take_tasks": ("batch",),
}
"""Further files that stand between `shard.lua` and a transition."""


@dataclass(frozen=True, slots=True)
class Script:
    """A transition's source and the name under which the server keeps it."""

    name: str
    source: bytes
    sha: str


def lua_text(name: str) -> str:
    return files("orbweb.frontier").joinpath("lua", f"{name}.lua").read_text(encoding="utf-8")


def parts(name: str, kind: str = "exact") -> tuple[str, ...]:
    """The files that a transition is made of, in their order.

    `kind` is that of what is seen; it counts only for transitions in `SEEING`.
    """
    seen = (SEEN_KINDS[kind], "seen") if name in SEEING else ()
    push = ("push",) if name in PUSHING else ()
    return ("shard", *PIECES.get(name, ()), *seen, *push, name)


_FUNCTION = re.compile(
    r"^local function (\w+)\((?:[^\n]* end\n|[^\n]*\n.*?^end\n)", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)
_NUMBER = re.compile(r"^local ([A-Z][A-Z_]*) = (-?\d+(?:\.\d+)?)(?: *--.*)?\n", re.MULTILINE)


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


def numbers_written_out(source: str) -> str:
    """A script with its named numbers in the places where they are used.

    Lua allows a script 200 names, and the claim had come to them all.
    """
    numbers = {found[1]: found[2] for found in _NUMBER.finditer(source)}
    if not numbers:
        return source
    use = re.compile(rf"(?<![\w'])(?:{'|'.join(numbers)})(?![\w'])")
    return use.sub(lambda found: numbers[found[0]], _NUMBER.sub("", source))


def assemble(name: str, kind: str = "exact", instead: Mapping[str, str] | None = None) -> Script:
    """A transition behind the shared pieces that it needs, with the flags that the server reads.

    `instead` replaces files, for tests that break them on purpose.
    """
    flags = TRANSITIONS[name]
    first = f"#!lua flags={flags}\n" if flags else "#!lua\n"
    texts = [(instead or {}).get(part) or lua_text(part) for part in parts(name, kind)]
    shard, *pieces, transition = texts
    use = "if KEYS[2] then use(KEYS[2]) end\n"
    shared = without_unused("\n".join([shard, use, *pieces]), transition)
    written = numbers_written_out(f"{_COMMENT.sub('', shared)}{transition}")
    source = f"{first}{written}".encode()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


@cache
def script(name: str, kind: str = "exact") -> Script:
    return assemble(name, kind)
