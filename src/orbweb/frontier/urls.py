"""What the store knows of one request: where it is, how it ended, whether it counts as seen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from orbweb.frontier.base import DeadLetter, Lease
from orbweb.frontier.keys import RunKeys, ShardKeys
from orbweb.frontier.routes import shard_of
from orbweb.frontier.seen import SeenKind
from orbweb.frontier.server import answer_of
from orbweb.frontier.servers import Servers
from orbweb.frontier.valkey import ScriptCaller, parse_body
from orbweb.model.reasons import Reason

_NODE = re.compile(r"[^\s:]*").fullmatch
"""What may be the name of a node; the text of an error has a space or a colon in its first line."""


class Place(StrEnum):
    """Where a pending request stands."""

    QUEUED = "queued"
    DELAYED = "delayed"
    LEASED = "leased"
    NOWHERE = ""
    """It is not pending."""


@dataclass(frozen=True, slots=True)
class SeenMark:
    """Whether a request counts as seen, and by what."""

    kind: SeenKind
    shared: bool
    """All runs of the job share what they have seen."""
    part: int = 0
    """Number of the generation or layer that has it; 0: it is not seen."""
    begun_ms: int = 0
    """When that part began."""
    parts: int = 1
    exactly: bool = False
    """It stands in the set beside a filter that may err (`dedup="exact"`)."""
    host_forgotten: int = 0
    """How often all URLs of its host were forgotten."""

    @property
    def seen(self) -> bool:
        return self.part > 0 or self.exactly


@dataclass(frozen=True, slots=True)
class UrlState:
    """A request at one instant. Times are wall clock, in ms, of the server; 0 = not known."""

    at_ms: int
    run_state: str
    place: Place
    seen: SeenMark
    request: Lease | None = None
    """As it is stored, while it is pending; without its token."""
    before: int = 0
    """Queued: how many stand before it at its host."""
    until_ms: int = 0
    """Delayed: when it returns to its queue; leased: when its lease ends unless it is renewed."""
    token: str = ""
    since_ms: int = 0
    """Leased: when its fetch began, while that lasts."""
    dead: DeadLetter | None = None
    taken_by: str = ""
    """Id of the request that was redirected to its page and has taken it."""
    parked: bool = False
    """A link to it enters if the request that has taken its page dies."""

    @property
    def node(self) -> str:
        """Leased: the name of the node."""
        return self.token.rpartition(":")[0]

    @property
    def known(self) -> bool:
        """Whether the store has anything to say of it."""
        return bool(self.request or self.dead or self.taken_by or self.seen.seen)


class Wanted(NamedTuple):
    """The request that is asked for."""

    id: str
    fingerprint: int
    host: str


class UrlAdmin:
    """Looks single requests up. Each look is one read-only call to the shard of its host, and takes
    the same time however many URLs are known: hashes, ranks and set members, never a list."""

    def __init__(self, servers: Servers, prefix: str) -> None:
        self._servers = servers
        self._prefix = prefix
        self.now: int | None = None
        """Tests set this to turn the clock; None is the server's own."""

    async def look(self, job: str, run: str, epoch: str, shards: int, wanted: Wanted) -> UrlState:
        """What is known of a request in a run. Raises `StoreUnavailable`, `RunLost`."""
        shard = ShardKeys(self._prefix, shard_of(wanted.host, shards))
        client = self._servers.of_shard(shard.shard)
        keys: RunKeys = shard.run(job, run, epoch)
        kind = await answer_of(client.hget(keys.meta, "kind"))
        answer = await ScriptCaller(client, self.now).call(
            "explain",
            (shard.tag, keys.base),
            (wanted.id, wanted.fingerprint, wanted.host),
            kind.decode() if kind else SeenKind.EXACT,
        )
        return _read(wanted.id, answer)


def _read(id: str, answer: Sequence[Any]) -> UrlState:
    at_ms, state, body, place, before, until, token, since, deliveries, *rest = answer
    dead_body, why, taken_by, parked, part, begun, parts, shared, kind, exactly, forgotten = rest
    return UrlState(
        at_ms=int(at_ms),
        run_state=state.decode(),
        place=Place(place.decode()),
        seen=SeenMark(
            SeenKind(kind.decode() or SeenKind.EXACT),
            bool(shared),
            int(part),
            int(begun),
            int(parts),
            bool(exactly),
            int(forgotten),
        ),
        request=parse_body(id, "", body, int(deliveries)) if body else None,
        before=int(before),
        until_ms=int(until),
        token=token.decode(),
        since_ms=int(since),
        dead=dead_letter(id, dead_body, why) if dead_body and why else None,
        taken_by=taken_by.decode(),
        parked=bool(parked),
    )


def dead_letter(id: str, body: bytes, why: bytes) -> DeadLetter:
    """A dead letter from its stored form, as far as that can be read; else its error says so.

    What an older version wrote does not say which node had it.
    """
    try:
        lease = parse_body(id, "", body, 0)
        first, tries, at_ms, *rest = why.decode(errors="replace").split("\n", 4)
        reason, counts = first, (int(tries), int(at_ms))
        node = rest.pop(0) if len(rest) == 2 and _NODE(rest[0]) else ""
        error = "\n".join(rest)
    except ValueError:
        lease, counts, node = Lease(id, "", "", 0, 0, 0, b""), (0, 0), ""
        reason, error = Reason.UNDECODABLE, f"this record cannot be read: {body + why!r:.200}"
    return DeadLetter(id, reason, error, *counts, lease.host, lease.priority, lease.payload, node)
