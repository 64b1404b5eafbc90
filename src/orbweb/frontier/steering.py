"""What an operator sees of hosts, and says of hosts and runs: limits, pauses, approved rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redis.asyncio import Redis

from orbweb.frontier.hosts import Limit, Pause, in_force
from orbweb.frontier.hosttable import HostRow, HostTable, Others, Sort
from orbweb.frontier.keys import ShardKeys, split_run_name
from orbweb.frontier.operator import AuditLine, Author, OperatorStore, until
from orbweb.frontier.register import RateRegister
from orbweb.model.rate import rate_text


@dataclass(frozen=True, slots=True)
class LimitChange:
    """What became of a limit. Only what was in force counts as `before`."""

    before: Limit | None
    after: Limit | None
    clamped: bool
    """It was asked to be above the approved ceiling and was set to that."""
    at_ms: int


@dataclass(frozen=True, slots=True)
class PauseChange:
    """What became of a pause. Only what was in force counts as `before`."""

    before: Pause | None
    after: Pause | None
    at_ms: int


class HostAdmin:
    """Looks at the hosts of a prefix and steers them. All calls may raise `StoreUnavailable`.

    Every act holds for all jobs and nodes, stands in the trail in the same step, and acts at once.
    """

    def __init__(
        self,
        client_of: Callable[[int], Redis],
        prefix: str,
        now: int | None = None,
        *,
        shards: int = 1,
    ) -> None:
        """`client_of` gives the client for each of so many shards."""
        self._store = OperatorStore(client_of, prefix, now, shards=shards)
        self.rates = RateRegister(self._store)

    def turn(self, now_ms: int) -> None:
        """Set the clock, for tests that turn it."""
        self._store.turn(now_ms)

    async def hosts(
        self, sort: Sort = Sort.BACKLOG, most: int = 20, job: str | None = None
    ) -> tuple[int, list[HostRow]]:
        """How many hosts there are, and the first `most` of them (0 = all).

        With `job` only those for which that job has work. Looks at each host once, in bounded
        calls; what changes meanwhile is counted as it was or as it is.
        """
        total, rows = 0, list[HostRow]()
        for shard in self._store.shards:
            runs = await self._living(shard, job)
            table = HostTable(self._store.caller(shard), shard)
            more, found = await table.top(runs, sort, most, everywhere=job is None)
            total, rows = total + more, rows + found
        rows.sort(key=lambda row: (-row.weight(sort), row.host.name))
        return total, rows[: most or None]

    async def look(self, host: str) -> HostRow:
        """All about a host, also when nobody knows it."""
        (row,) = await self.look_at([host])
        return row

    async def look_at(self, hosts: Sequence[str]) -> list[HostRow]:
        """All about these hosts, in their order; requests that are delayed or in work left out."""
        rows: dict[str, HostRow] = {}
        for shard in self._store.shards:
            names = [host for host in hosts if self._store.shard(host) == shard]
            runs = await self._living(shard) if names else []
            table = HostTable(self._store.caller(shard), shard)
            found = await table.rows(runs, names, Others(Counter(), Counter()))
            rows.update(zip(names, found, strict=True))
        return [rows[host] for host in hosts]

    async def knows(self, host: str) -> bool:
        """Whether something waits for the host, is fetched from it, or is remembered of it."""
        row = await self.look(host)
        if row.waiting or row.host.slots:
            return True
        shard = self._store.shard(host)
        remembered = await self._store.read(self._store.client(shard).exists(shard.host(host)))
        return bool(remembered) or await self.rates.find(host) is not None

    async def limit(
        self, host: str, gap_ms: int | None, author: Author, for_ms: int = 0
    ) -> LimitChange:
        """Set the fastest pace of a host, or take that away (None); `for_ms` 0 = without end.

        Never above the approved ceiling: what is asked for beyond it is set to it.
        """
        now = (await self.look(host)).host
        clamped = gap_ms is not None and now.ceiling_ms is not None and gap_ms < now.ceiling_ms
        if gap_ms is None and now.limit is None:
            return LimitChange(None, None, False, now.at_ms)
        gap: float | None = now.ceiling_ms if clamped else gap_ms
        after = None if gap is None else Limit(gap, until(now.at_ms, for_ms), *author)
        line = AuditLine(
            now.at_ms,
            author.by,
            "limit",
            host=host,
            before=_limit_text(now.limit),
            after=_limit_text(after),
            why=author.why,
        )
        fields = {
            "limit": f"{after.gap_ms:g}" if after else "",
            "limit_until": str(after.until_ms) if after else "",
            "limit_by": author.by if after else "",
            "limit_why": author.why if after else "",
        }
        await self._store.steer(line, fields)
        return LimitChange(now.limit, after, clamped, now.at_ms)

    async def pause(self, host: str, author: Author, for_ms: int = 0) -> PauseChange:
        """Fetch nothing from a host; `for_ms` 0 = until it is resumed."""
        return await self._pause(host, author, for_ms)

    async def resume(self, host: str, author: Author) -> PauseChange:
        """Let a host be fetched again."""
        return await self._pause(host, author, None)

    async def pause_run(
        self, job: str, run: str, epoch: str, author: Author, for_ms: int = 0
    ) -> PauseChange:
        """Hand out nothing of a run; `for_ms` 0 = until it is resumed. Raises `RunLost`."""
        return await self._pause_run(job, run, epoch, author, for_ms)

    async def resume_run(self, job: str, run: str, epoch: str, author: Author) -> PauseChange:
        """Let a run go on. Raises `RunLost`."""
        return await self._pause_run(job, run, epoch, author, None)

    async def trail(self, host: str | None = None) -> list[AuditLine]:
        """What operators did, the latest first; at most the last 10,000 acts of a shard."""
        return await self._store.trail(host)

    async def _pause(self, host: str, author: Author, for_ms: int | None) -> PauseChange:
        now = (await self.look(host)).host
        if for_ms is None and now.pause is None:
            return PauseChange(None, None, now.at_ms)
        after = None if for_ms is None else Pause(until(now.at_ms, for_ms), *author)
        line = AuditLine(
            now.at_ms,
            author.by,
            "pause" if after else "resume",
            host=host,
            before=_pause_text(now.pause),
            after=_pause_text(after),
            why=author.why,
        )
        fields = {
            "paused": str(after.until_ms) if after else "",
            "paused_by": author.by if after else "",
            "paused_why": author.why if after else "",
        }
        await self._store.steer(line, fields)
        return PauseChange(now.pause, after, now.at_ms)

    async def _pause_run(
        self, job: str, run: str, epoch: str, author: Author, for_ms: int | None
    ) -> PauseChange:
        at_ms = await self._store.now_ms()
        after = None if for_ms is None else Pause(until(at_ms, for_ms), *author)
        line = AuditLine(
            at_ms,
            author.by,
            "pause" if after else "resume",
            job=job,
            run=run,
            after=_pause_text(after),
            why=author.why,
        )
        before: Pause | None = None
        for shard in self._store.shards:
            ends, by, why = await self._store.caller(shard).call(
                "pause",
                (shard.tag, shard.run(job, run, epoch).base),
                (str(after.until_ms) if after else "", *author, line.pack()),
            )
            if ends and in_force(int(ends), at_ms):
                before = Pause(int(ends), by.decode(), why.decode())
        return PauseChange(before, after, at_ms)

    async def _living(self, shard: ShardKeys, job: str | None = None) -> list[tuple[str, str, str]]:
        """Job, run and base of the runs that have not ended."""
        runs = []
        current = await self._store.read(self._store.client(shard).hgetall(shard.current))
        for name, epoch in current.items():
            its_job, run, _ = split_run_name(f"{name.decode()}:{epoch.decode()}")
            if job in (None, its_job):
                runs.append((its_job, run, shard.run(its_job, run, epoch.decode()).base))
        rules, _ = await HostTable(self._store.caller(shard), shard).look(runs, ())
        return [run for run, its in zip(runs, rules, strict=True) if not its.done]


def _limit_text(limit: Limit | None) -> str:
    return f"limit {rate_text(limit.gap_ms)}" if limit else "no limit"


def _pause_text(pause: Pause | None) -> str:
    return "paused" if pause else "not paused"
