"""The rules of a robots.txt for one crawler: groups as RFC 9309 has them, patterns by Protego."""

from __future__ import annotations

import re
from typing import NamedTuple

from protego import Protego

_LINE_END = re.compile(r"\r\n|\r|\n")
_TOKEN = re.compile(r"[A-Za-z_-]+|\*(?=\s|$)")
_AGENT = re.compile(r"user[- ]?agent\s*(?::|\s)\s*(.*)", re.IGNORECASE)
_KNOWN = re.compile(r"allow|di?s?a?s?s?all?[oa]w|crawl[- ]delay|site-?maps?", re.IGNORECASE)
"""Records of which Protego takes note, as sites write them."""
_RULE = re.compile(r"(?:allow|di?s?a?s?s?all?[oa]w)\s*:", re.IGNORECASE)
_OURS = "ours"
_OTHERS = "other"


class Rules:
    """What a file says to the crawler whose product token is `agent`."""

    def __init__(self, body: bytes, agent: str) -> None:
        text = body.decode("utf-8-sig", "replace")
        lines = (_read(line, agent.lower()) for line in _LINE_END.split(text))
        self._rules = Protego.parse("\n".join(line for line in lines if line))

    def allow(self, url: str) -> bool:
        """Whether the URL may be fetched."""
        return self._rules.can_fetch(url, _OURS)

    @property
    def crawl_delay(self) -> float | None:
        """Seconds between two fetches, if the file says."""
        return self._rules.crawl_delay(_OURS)

    @property
    def sitemaps(self) -> tuple[str, ...]:
        """The sitemaps of the site, for every crawler."""
        return tuple(self._rules.sitemaps)


class Decision(NamedTuple):
    """The rule of a file that decides about a URL."""

    line: int
    """Its number in the file, from 1."""
    text: str
    allows: bool


def deciding_rule(body: bytes, agent: str, url: str) -> Decision | None:
    """The rule with the longest pattern among those of our group that fit (RFC 9309, 2.2.2).

    None when no rule fits, or the crawl, which asks `Rules`, would not agree. Slow: for people.
    """
    found: list[tuple[int, bool, Decision]] = []
    for number, line in _own_lines(body, agent.lower()):
        field, _, pattern = (part.strip() for part in line.partition(":"))
        allows = field.lower() == "allow"
        if pattern and not Protego.parse(f"User-agent: *\nDisallow: {pattern}").can_fetch(url, "*"):
            found.append((len(pattern), allows, Decision(number, line, allows)))
    if not found:
        return None
    decision = max(found)[2]
    return decision if decision.allows == Rules(body, agent).allow(url) else None


def _own_lines(body: bytes, agent: str) -> list[tuple[int, str]]:
    """The rules of the group that is ours, else of everybody's, with their numbers."""
    groups: dict[str, list[tuple[int, str]]] = {}
    current: set[str] = set()
    naming = False
    for number, raw in enumerate(_LINE_END.split(body.decode("utf-8-sig", "replace")), 1):
        line = _read(raw, agent)
        if line.startswith("User-agent: "):
            current = {*(current if naming else ()), line.removeprefix("User-agent: ")}
            naming = True
            for name in current:
                groups.setdefault(name, [])
        elif line:
            naming = False
            if _RULE.match(line):
                for name in current:
                    groups[name].append((number, line))
    return groups.get(_OURS, groups.get("*", []))


def _read(line: str, agent: str) -> str:
    """The line as Protego is to see it; empty when it says nothing.

    Protego takes a name for ours that is the beginning of it, and lets a field that nobody knows
    end a group of user agents. RFC 9309 (2.2.1 and 2.2.4) wants neither.
    """
    content = line.partition("#")[0].strip()
    agents = _AGENT.fullmatch(content)
    if agents is not None:
        return f"User-agent: {_group(agents[1], agent)}"
    field, colon, _ = content.partition(":")
    return content if not colon or _KNOWN.fullmatch(field.strip()) else ""


def _group(value: str, agent: str) -> str:
    """Whose group it is: ours, everybody's, or another crawler's."""
    token = _TOKEN.match(value)
    if token is None:
        return _OTHERS
    if token[0] == "*":
        return "*"
    return _OURS if token[0].lower() == agent else _OTHERS
