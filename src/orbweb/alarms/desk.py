"""Where people meet the watch: the role whose record they read, and the silences they leave."""

from __future__ import annotations

from orbweb.alarms.facts import number_of
from orbweb.alarms.notices import Silence
from orbweb.frontier.notes import Note

ROLE = "alerts"
"""The role of who judges the fleet; what it records is a `Docket`."""


def silence_of(note: Note) -> Silence:
    """A silence as somebody has left it in the store."""
    said = note.said
    return Silence(
        pattern=note.name,
        until_ms=int(number_of(said.get("until_ms"))),
        by=str(said.get("by", "")),
        reason=str(said.get("reason", "")),
    )
