"""The frontier on Valkey or Redis: the one place where Python meets Lua."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from orbweb.errors import ConfigError, RunLost, StoreUnavailable
from orbweb.frontier.base import (
    PRIORITY_LIMIT,
    SLACK_MS,
    Ack,
    Claim,
    Held,
    Lease,
    Nack,
    NackResult,
    NewRequest,
    Opened,
    Permit,
    PermitCode,
    RunConfig,
    RunState,
    SeedCode,
    SeedReply,
    Signal,
    Status,
    clock_step_ms,
    new_epoch,
)
from orbweb.frontier.keys import RunKeys, ShardKeys, clean
from orbweb.frontier.scripts import Script, script
from orbweb.frontier.server import refuses_us

Word = bytes | str | int

PERMIT_CODES = (PermitCode.GRANTED, PermitCode.LATER, PermitCode.LOST)
NACK_RESULTS = (NackResult.LOST, NackResult.REQUEUED, NackResult.DEAD)
UNAVAILABLE = (
    ConnectionError,
    TimeoutError,
    BusyLoadingError,
    ReadOnlyError,
    TryAgainError,
    OSError,
)
TAKES_NO_WRITES = (OutOfMemoryError, ClusterDownError, MasterDownError)
REFUSALS = ("OOM", "MISCONF", "NOREPLICAS", "BUSY")
"""How the server's other refusals begin: its disk, its replicas, somebody else's long script."""


class ScriptCaller:
    """Calls transitions on a server; converts what goes wrong into Orbweb's own errors."""

    def __init__(self, client: Redis, now: int | None = None) -> None:
        self.client = client
        self.time: Word = "" if now is None else now
        """Tests set this to turn the clock; empty is the server's own."""
        self.scripts: dict[str, Script] = {}
        """Replaces transitions, for tests that break them on purpose."""

    async def execute(self, *words: Word) -> Any:
        return await self.client.execute_command(*words)  # type: ignore[no-untyped-call]

    async def call(self, name: str, keys: Sequence[str], args: Iterable[Word]) -> Any:
        """Run one transition. Raises `StoreUnavailable` when it is unknown whether it happened."""
        wanted = self.scripts.get(name) or script(name)
        words = (len(keys), *keys, self.time, *args)
        try:
            try:
                return await self.execute("EVALSHA", wanted.sha, *words)
            except NoScriptError:
                return await self.execute("EVAL", wanted.source, *words)
        except (RedisError, OSError) as error:
            raise self._refused(name, error) from error

    def _refused(self, name: str, error: Exception) -> Exception:
        text = str(error)
        if refuses_us(error):
            return ConfigError(f"the server refuses these credentials: {text}")
        if isinstance(error, UNAVAILABLE) or not isinstance(error, ResponseError):
            return StoreUnavailable(f"{name}: {type(error).__name__}: {text}")
        if "RUNLOST" in text:
            return RunLost(
                "the run is not in the store any more: it was reset, the server was flushed, or "
                "REDIS_URL names another database. Nothing was marked as done."
            )
        if isinstance(error, TAKES_NO_WRITES) or text.startswith(REFUSALS):
            return StoreUnavailable(f"{name}: the server takes no writes now: {text}")
        return error


def request_words(requests: Sequence[NewRequest]) -> Iterable[Word]:
    """Five words a request, as `push_argv` in `shard.lua` reads them."""
    for id, host, priority, fingerprint, payload in requests:
        if not -PRIORITY_LIMIT <= priority <= PRIORITY_LIMIT:
            raise ValueError(f"priority {priority} of {id} is not within ±{PRIORITY_LIMIT}")
        yield from (id, host, int(priority), "" if fingerprint is None else fingerprint, payload)


def policy_words(config: RunConfig) -> str:
    """What a run wants of hosts, as `read_policy` in `host.lua` reads it."""
    return " ".join(
        str(int(value))
        for value in (
            config.randomize_delay,
            config.host_backlog_limit,
            config.refused_pause_ms,
            config.circuit_threshold,
            config.circuit_cooldown_ms,
            config.autothrottle,
            config.autothrottle_start_ms,
            config.autothrottle_longest_ms,
            config.require_approval,
            config.unapproved_delay_ms,
        )
    )


def parse_body(
    id: str, token: str, body: bytes, deliveries: int, start_ms: int = 0, mark: int = 0
) -> Lease:
    """A lease from the stored form of a request: host, priority, retries, payload in lines."""
    host, priority, retries, payload = body.split(b"\n", 3)
    return Lease(
        id, token, host.decode(), int(priority), int(retries), deliveries, payload, start_ms, mark
    )


class ValkeyFrontier:
    """See `Frontier` and `RunControl`.

    The client must answer in bytes and must not repeat calls by itself: repeating is the session's
    business, which does it with the same arguments.
    """

    def __init__(
        self,
        client: Redis,
        *,
        prefix: str,
        job: str,
        run: str = "",
        shard: int = 0,
        now: int | None = None,
        revive: Callable[[], Awaitable[None]] | None = None,
        new_epoch: Callable[[], str] = new_epoch,
    ) -> None:
        """`revive` starts the server again if it is ours to start; `recover` calls it first."""
        self.caller = ScriptCaller(client, now)
        self._revive = revive
        self._new_epoch = new_epoch
        self.shard = ShardKeys(prefix, shard)
        self.job = job
        self.run_id = run
        self.run: RunKeys | None = None
        self._server = b""

    @property
    def client(self) -> Redis:
        return self.caller.client

    async def _call(self, name: str, *args: Word) -> Any:
        if self.run is None:
            raise RunLost(f"{name} was called before the run was opened")
        return await self.caller.call(name, (self.shard.tag, self.run.base), args)

    async def open(self, config: RunConfig) -> Opened:
        state, epoch = await self.caller.call(
            "open",
            (self.shard.tag,),
            (
                clean(self.job),
                clean(self.run_id),
                self._new_epoch(),
                config.finished_ttl_ms,
                config.run_ttl_ms if self.run_id else 0,
                int(config.keep_alive),
                config.dedup_scope,
                config.host_concurrency,
                config.host_delay_ms,
                config.fetch_timeout_ms,
                clock_step_ms(config),
                config.max_retries,
                config.max_deliveries,
                policy_words(config),
            ),
        )
        self.attach(epoch.decode())
        self._server = await self._server_id()
        return Opened(RunState(state.decode()), epoch.decode(), await self.status())

    def attach(self, epoch: str) -> None:
        """Work on this incarnation of the run without opening it (a node's second connection)."""
        self.run = self.shard.run(self.job, self.run_id, epoch)

    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        answer = await self._call("claim", node, seq, want, lease_ms)
        _, state, pending, wait, stopping, paused, wall = answer[:7]
        token = f"{node}:{seq}"
        leases = tuple(
            parse_body(
                answer[i].decode(),
                token,
                answer[i + 1],
                answer[i + 2],
                answer[i + 3],
                int(answer[i + 4]),
            )
            for i in range(7, len(answer), 5)
        )
        return Claim(
            leases,
            RunState(state.decode()),
            pending,
            wait,
            bool(stopping),
            paused=bool(paused),
            at_ms=int(wall),
        )

    async def renew(
        self, node: str, lease_ms: int, held: Sequence[Held], beat: bytes = b""
    ) -> tuple[list[Held], bool]:
        words = [word for pair in held for word in pair]
        stopping, *lost = await self._call("renew", node, lease_ms, beat, *words)
        return [held[place] for place in lost], bool(stopping)

    async def fetched(self, held: Sequence[Held]) -> None:
        await self._call("fetched", *(word for pair in held for word in pair))

    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        words: list[Word] = []
        for ack in acks:
            words += (ack.id, ack.token, str(ack.reason), ack.items, ack.error, ack.emitted)
            words += (len(ack.children), len(ack.skipped))
            words += request_words(ack.children)
            for reason, number in ack.skipped:
                words += (str(reason), number)
        return [bool(flag) for flag in await self._call("ack", *words)]

    async def emit(self, id: str, token: str, step: int, children: Sequence[NewRequest]) -> bool:
        words = request_words(children)
        return bool(await self._call("emit", id, token, step, len(children), *words))

    async def nack(self, nacks: Sequence[Nack]) -> list[NackResult]:
        words: list[Word] = []
        for nack in nacks:
            kind = 2 if nack.fatal else int(nack.counted)
            payload = b"" if nack.payload is None else nack.payload
            words += (
                nack.id,
                nack.token,
                nack.backoff_ms,
                kind,
                str(nack.reason),
                nack.error,
                payload,
            )
        return [NACK_RESULTS[code] for code in await self._call("nack", *words)]

    async def permit(self, id: str, token: str, mark: int, slack_ms: int = SLACK_MS) -> Permit:
        code, start_ms, reserved = await self._call("permit", id, token, mark, slack_ms)
        return Permit(PERMIT_CODES[code], start_ms, int(reserved))

    async def report(self, signals: Sequence[Signal]) -> None:
        await self._call("report", *(word for signal in signals for word in signal))

    async def hold_off(self, pauses: Sequence[tuple[str, int]]) -> None:
        await self._call("hold_off", *(word for pause in pauses for word in pause))

    async def visit(self, id: str, token: str, fingerprint: int) -> bool | None:
        code = await self._call("visit", id, token, fingerprint)
        return None if code < 0 else bool(code)

    async def recover(self) -> int:
        if self._revive:
            await self._revive()
        server = await self._server_id()
        if server == self._server:
            return 0
        fixed = await self.fsck()
        self._server = server
        return fixed

    async def fsck(self) -> int:
        """Repair the run piece by piece, beside all else; returns the repairs made."""
        part, cursor, fixed = b"body", b"0", 0
        while part != b"end":
            part, cursor, more = await self._call("fsck", part, cursor)
            fixed += more
        return fixed

    async def seed_claim(self, node: str, seq: int, lease_ms: int) -> SeedReply:
        code, cursor, token = await self._call("seed_claim", node, seq, lease_ms)
        held = token.decode() if code == b"ok" else ""
        return SeedReply(SeedCode(code.decode()), cursor, held)

    async def seed_push(
        self, token: str, batch: int, final: bool, requests: Sequence[NewRequest]
    ) -> SeedReply:
        code, cursor, added = await self._call(
            "seed_push", token, batch, int(final), len(requests), *request_words(requests)
        )
        return SeedReply(SeedCode(code.decode()), cursor, "", added)

    async def add(self, requests: Sequence[NewRequest]) -> int:
        return int(await self._call("add", len(requests), *request_words(requests)))

    async def redrive(self, ids: Sequence[str], *, drop: bool = False) -> int:
        """Let dead letters return to their queues, or drop them; returns how many were found."""
        return int(await self._call("redrive", "drop" if drop else "retry", *ids))

    async def stop(self) -> None:
        await self._call("stop")

    async def status(self) -> Status:
        return parse_status(await self._call("status"))

    async def settled(self) -> bool:
        try:
            # Valkey and Redis from 7.2 say when the write is on disk; without an AOF they refuse.
            await self.caller.execute("WAITAOF", 1, 0, 2000)
        except ResponseError:
            pass
        except (*UNAVAILABLE, RedisError) as error:
            raise StoreUnavailable(f"waitaof: {error}") from error
        return (await self.status()).state is RunState.DONE

    async def _server_id(self) -> bytes:
        try:
            info = await self.client.info("server")
        except (*UNAVAILABLE, RedisError) as error:
            raise StoreUnavailable(f"info: {error}") from error
        return str(info["run_id"]).encode()


def parse_status(answer: Sequence[Any]) -> Status:
    """The counts of a run from what `status.lua` returns."""
    state = RunState(answer[0].decode())
    pending, leased, delayed, dead, hosts, items, retried, reaped, fenced, repaired, seeds = answer[
        1:12
    ]
    seeding, seeder, hold, stopping, paused, started, finished = answer[12:19]
    idle_seed = seeding - seeder
    return Status(
        state=state,
        pending=pending,
        queued=pending - leased - delayed - hold - idle_seed,
        leased=leased - seeder,
        delayed=delayed,
        dead=dead,
        hosts=hosts,
        items=items,
        retried=retried,
        reaped=reaped,
        fenced=fenced,
        repaired=repaired,
        seeds=seeds,
        seeding=bool(seeding),
        hold=bool(hold),
        stopping=bool(stopping),
        paused=bool(paused),
        started_at_ms=started,
        finished_at_ms=finished,
        reasons={answer[i].decode(): int(answer[i + 1]) for i in range(19, len(answer), 2)},
    )
