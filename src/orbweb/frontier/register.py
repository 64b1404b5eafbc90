"""The register of rates in the store: what was asked for, approved and revoked for each host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orbweb.frontier.operator import AuditLine, Author, OperatorStore, until
from orbweb.frontier.rates import Rate, approved, pack, requested, revoked, unpack
from orbweb.model.rate import rate_text

PAGE = 500


@dataclass(frozen=True, slots=True)
class RateChange:
    """What became of an entry of the register."""

    before: Rate | None
    after: Rate
    at_ms: int


class RateRegister:
    """See `Rate`. The approved rate also stands at the host, where each claim obeys it."""

    def __init__(self, store: OperatorStore) -> None:
        self._store = store

    async def find(self, host: str) -> Rate | None:
        """The host's entry."""
        text = await self._stored(host)
        return unpack(host, text) if text else None

    async def all(self) -> list[Rate]:
        """Every entry, by host."""
        found: dict[str, Rate] = {}
        for shard in self._store.shards:
            cursor = -1
            while cursor != 0:
                scan = self._store.client(shard).hscan(shard.rates, max(0, cursor), count=PAGE)
                cursor, page = await self._store.read(scan)
                for name, text in page.items():
                    host = name.decode(errors="replace")
                    found[host] = unpack(host, text)
        return [found[name] for name in sorted(found)]

    async def request(self, host: str, gap_ms: int, author: Author, contact: str) -> RateChange:
        """Ask for a rate; nothing changes until it is approved.

        Raises `ConfigError` when that rate is approved already.
        """

        def change(old: Rate | None, at_ms: int) -> Rate:
            return requested(
                old, host, gap_ms, by=author.by, contact=contact, why=author.why, at_ms=at_ms
            )

        return await self._change(host, "request", author, change)

    async def approve(
        self, host: str, gap_ms: int | None, author: Author, for_ms: int
    ) -> RateChange:
        """Make a rate (None: the one that was asked for) the ceiling of the host for a time.

        Raises `ConfigError` when none was asked for and none is named.
        """

        def change(old: Rate | None, at_ms: int) -> Rate:
            ends = until(at_ms, for_ms)
            return approved(old, host, gap_ms, by=author.by, expires_ms=ends, at_ms=at_ms)

        return await self._change(host, "approve", author, change)

    async def revoke(self, host: str, author: Author) -> RateChange:
        """Take an approval back, or turn a request down. Raises `ConfigError` if there is none."""

        def change(old: Rate | None, at_ms: int) -> Rate:
            return revoked(old, host, by=author.by, why=author.why, at_ms=at_ms)

        return await self._change(host, "revoke", author, change)

    async def _change(
        self, host: str, verb: str, author: Author, change: Callable[[Rate | None, int], Rate]
    ) -> RateChange:
        stored = await self._stored(host)
        at_ms = await self._store.now_ms()
        before = unpack(host, stored) if stored else None
        after = change(before, at_ms)
        line = AuditLine(
            at_ms,
            author.by,
            verb,
            host=host,
            before=before.text(at_ms) if before else "",
            after=_result(after, at_ms),
            why=author.why,
        )
        ceiling = after.ceiling_ms
        fields = {
            "ceiling": "" if ceiling is None else str(ceiling),
            "ceiling_until": "" if ceiling is None else str(after.expires_ms),
        }
        await self._store.steer(line, fields, (stored, pack(after)))
        return RateChange(before, after, at_ms)

    async def _stored(self, host: str) -> bytes:
        store, shard = self._store, self._store.shard(host)
        text = await store.read(store.client(shard).hget(shard.rates, host))
        return text or b""


def _result(rate: Rate, at_ms: int) -> str:
    if rate.asked_ms is not None:
        return f"requested {rate_text(rate.asked_ms)}"
    return rate.text(at_ms)
