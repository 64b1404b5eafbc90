"""A shared frontier with a filter of its own in each node, for those who want that all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orbweb.frontier.base import Ack, NewRequest, SeedCode, SeedReply
from orbweb.frontier.memory_seen import Seen
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.model.reasons import Reason


class LocalSeenFrontier(ValkeyFrontier):
    """See `Frontier` and `RunControl`. What was seen is known to this node alone, while it lives.

    A request counts as seen only when the store has taken it, so that a call which is repeated
    finds the same requests new.
    """

    def __init__(self, *args: Any, seen: Seen, wall_ms: Callable[[], int], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seen = seen
        self._wall_ms = wall_ms
        self._visits: dict[int, str] = {}

    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        kept = []
        for ack in acks:
            new = self._new(ack.children)
            skipped = list(ack.skipped)
            if dropped := len(ack.children) - len(new):
                skipped.append((Reason.DUPLICATE_REQUEST, dropped))
            kept.append(ack._replace(children=new, skipped=skipped))
        answer = await super().ack(kept)
        for ack, done in zip(kept, answer, strict=True):
            if done:
                self._remember(ack.children)
        return answer

    async def emit(self, id: str, token: str, step: int, children: Sequence[NewRequest]) -> bool:
        new = self._new(children)
        done = await super().emit(id, token, step, new)
        if done:
            self._remember(new)
        return done

    async def visit(self, id: str, token: str, fingerprint: int, host: str = "") -> bool | None:
        own = self._visits.get(fingerprint) == id  # an earlier attempt went there
        if not own and self._seen.has(fingerprint, host, self._wall_ms()):
            return False
        free = await super().visit(id, token, fingerprint, host)
        if free and not own:
            self._visits[fingerprint] = id
            self._seen.put(fingerprint, host)
        return free

    async def seed_push(
        self,
        token: str,
        batch: int,
        final: bool,
        requests: Sequence[NewRequest],
        refused: Sequence[tuple[str, int]] = (),
    ) -> SeedReply:
        new = self._new(requests)
        reply = await super().seed_push(token, batch, final, new, refused)
        if reply.code is SeedCode.OK:
            self._remember(new)
        return reply

    async def add(self, requests: Sequence[NewRequest]) -> int:
        new = self._new(requests)
        added = await super().add(new)
        self._remember(new)
        return added

    def _new(self, requests: Iterable[NewRequest]) -> list[NewRequest]:
        wall, new, marks = self._wall_ms(), [], set[int]()
        for request in requests:
            mark = request.fingerprint
            if mark is not None:
                if mark in marks or self._seen.has(mark, request.host, wall, sure=request.sure):
                    continue
                marks.add(mark)
            new.append(request)
        return new

    def _remember(self, requests: Iterable[NewRequest]) -> None:
        wall = self._wall_ms()
        for request in requests:
            mark, sure = request.fingerprint, request.sure
            if mark is not None and not self._seen.has(mark, request.host, wall, sure=sure):
                self._seen.put(mark, request.host, sure=sure)
