"""Notes that people and processes leave for the judge of alarms. Opaque values with a time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from redis.asyncio import Redis

from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.server import answer_of, wall_ms

MOST = 500
"""Notes of one kind; of more the oldest are removed by whoever reads them."""

KEPT_MS = 7 * 86_400_000
"""What is older counts as absent."""


class NoteKind(StrEnum):
    """What a note is about."""

    SILENCE = "silences"
    CONSUMER = "consumers"
    SCHEDULE = "schedules"
    IDLE = "idle"
    """A process found its run finished."""
    LOST = "lost"
    """A node found that its run is not in the store any more."""


class Note(NamedTuple):
    """A note: its name among those of its kind, when it was left (server's clock), what it says."""

    name: str
    at_ms: int
    said: Mapping[str, Any]


class NoteBook:
    """The notes of a prefix. All calls may raise `StoreUnavailable`."""

    def __init__(self, client: Redis, prefix: str) -> None:
        self._client = client
        self._keys = ShardKeys(prefix)

    async def now_ms(self) -> int:
        """The server's wall clock."""
        return await wall_ms(self._client)

    async def leave(self, kind: NoteKind, name: str, said: Mapping[str, Any]) -> None:
        """Leave a note in the place of the last one of that name."""
        words = f"{await self.now_ms()}\n{json.dumps(said, ensure_ascii=False)}"
        await answer_of(self._client.hset(self._keys.alerts(kind), name, words))

    async def take_back(self, kind: NoteKind, name: str) -> bool:
        """Remove a note; whether there was one."""
        return bool(await answer_of(self._client.hdel(self._keys.alerts(kind), name)))

    async def read(self, kind: NoteKind) -> list[Note]:
        """All notes of a kind, the latest first. Removes those that are too old or too many."""
        found = await answer_of(self._client.hgetall(self._keys.alerts(kind)))
        now = await self.now_ms()
        notes = [_note(name, words) for name, words in found.items()]
        notes.sort(key=lambda note: -note.at_ms)
        fresh = [note for note in notes if now - note.at_ms < KEPT_MS][:MOST]
        if old := [note.name for note in notes if note not in fresh]:
            await answer_of(self._client.hdel(self._keys.alerts(kind), *old))
        return fresh


def _note(name: bytes, words: bytes) -> Note:
    """What cannot be read says nothing, and is as old as can be."""
    at, _, text = words.partition(b"\n")
    try:
        said = json.loads(text)
        return Note(name.decode(), int(at), said if isinstance(said, dict) else {})
    except ValueError:
        return Note(name.decode(errors="replace"), 0, {})
