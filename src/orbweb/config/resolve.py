"""Which of all live values hold in one node: the most specific of those that concern it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orbweb.config.place import Place, Scope
from orbweb.config.source import Document
from orbweb.config.values import Entry, LiveValues
from orbweb.errors import ConfigError


@dataclass(frozen=True, slots=True)
class StoreDocument(Document):
    """What the store says: its values have authors, ends and canaries."""

    live: LiveValues = field(default_factory=LiveValues)
    at_ms: int = 0
    """The store's wall clock when it was read."""


@dataclass(frozen=True, slots=True)
class Identity:
    """For whom values are looked up."""

    job: str = ""
    run: str = ""
    node: str = ""
    machine: str = ""

    def is_meant(self, place: Place) -> bool:
        """Whether what holds at a place concerns this node. A host concerns every node."""
        if place.scope is Scope.JOB:
            return place.whose == self.job
        if place.scope is Scope.RUN:
            return place.whose == f"{self.job}:{self.run}"
        if place.scope is Scope.NODE:
            return place.whose == self.machine or self.node.startswith(place.whose)
        return True


class Found(NamedTuple):
    """A value that holds in a node, as it was given, and where it comes from."""

    value: Any
    place: Place
    origin: str
    textual: bool
    """It is text that is to be read, as in the environment."""
    until_ms: int = 0
    by_store: bool = False
    """The store says so: every node that can ask it knows that."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """All that holds in a node, not judged yet."""

    values: Mapping[str, Found] = field(default_factory=dict)
    hosts: Mapping[str, Mapping[str, Found]] = field(default_factory=dict)
    """By host what holds for it alone, where nothing more specific does."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Texts of places that nobody can read, and why."""


def resolve(documents: Sequence[Document], identity: Identity, now_ms: int) -> Resolution:
    """What holds for a node at that time of the store's clock.

    The most specific place wins; at one place the later document.
    """
    refused: dict[str, str] = {}
    found: dict[Place, Found] = {}
    for document in documents:
        for place, value in _of(document, identity, now_ms, refused):
            if identity.is_meant(place):
                found[place] = value
    values: dict[str, Found] = {}
    for place in sorted(found, key=lambda place: (place.scope, len(place.whose), place.whose)):
        if place.scope is not Scope.HOST:
            values[place.key] = found[place]
    hosts: dict[str, dict[str, Found]] = {}
    for place, value in found.items():
        winner = values.get(place.key)
        if place.scope is Scope.HOST and (winner is None or winner.place.scope < Scope.HOST):
            hosts.setdefault(place.whose, {})[place.key] = value
    return Resolution(values, hosts, refused)


def _of(
    document: Document, identity: Identity, now_ms: int, refused: dict[str, str]
) -> Iterable[tuple[Place, Found]]:
    if isinstance(document, StoreDocument):
        yield from _of_store(document, identity, now_ms, refused)
        return
    for text, value in document.values.items():
        place = _place(text, refused)
        if place is not None:
            yield place, Found(value, place, document.origin, isinstance(value, str))


def _of_store(
    document: StoreDocument, identity: Identity, now_ms: int, refused: dict[str, str]
) -> Iterable[tuple[Place, Found]]:
    """Canaries come last, so that they win where the node is one of them."""
    for entry in sorted(document.live.entries, key=lambda entry: entry.slot):
        place = _place(entry.place, refused)
        now = _holds(entry, identity, now_ms)
        if place is not None and now is not None:
            origin = f"live v{now.version} ({place.holder})"
            yield place, Found(now.value, place, origin, False, now.until_ms, by_store=True)


def _holds(entry: Entry, identity: Identity, now_ms: int) -> Entry | None:
    now = entry.at(now_ms)
    if now is None or (now.canary is not None and not now.canary.takes(identity.node)):
        return None
    return now


def _place(text: str, refused: dict[str, str]) -> Place | None:
    try:
        return Place.read(text)
    except ConfigError as error:
        refused[text] = str(error)
        return None
