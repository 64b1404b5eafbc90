"""The frontier on Valkey or Redis: the one place where Python meets Lua."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import (
    AskError,
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
    HostPace,
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
    SettledTask,
    Signal,
    Status,
    TaskLook,
    Tuning,
    clock_step_ms,
    new_epoch,
    wrong_shards,
)
from orbweb.frontier.keys import RunKeys, ShardKeys, clean
from orbweb.frontier.scripts import Script, script
from orbweb.frontier.seen import SeenConfig, SeenKind, other_kind
from orbweb.frontier.server import refuses_us
from orbweb.log import event, get_logger

Word = bytes | str | int

PERMIT_CODES = (PermitCode.GRANTED, PermitCode.LATER, PermitCode.LOST)
NACK_RESULTS = (NackResult.LOST, NackResult.REQUEUED, NackResult.DEAD)
UNAVAILABLE = (
    ConnectionError,
    TimeoutError,
    BusyLoadingError,
    ReadOnlyError,
    TryAgainError,
    AskError,
    OSError,
)
log = get_logger("orbweb.frontier")
TAKES_NO_WRITES = (OutOfMemoryError, ClusterDownError, MasterDownError)
REPLICA_MS = 500
"""How long a replica may take for the last writes."""
REFUSALS = ("OOM", "MISCONF", "NOREPLICAS", "BUSY")
"""How the server's other refusals begin: its disk, its replicas, somebody else's long script."""


class ScriptCaller:
    """Calls transitions on a server; converts what goes wrong into Orbweb's own errors."""

    def __init__(self, client: Redis, now: int | None = None) -> None:
        self.client = client
        self.time: Word = "" if now is None else now
        """Tests set this to turn the clock; empty is the server's own."""
        self.scripts: dict[tuple[str, str], Script] = {}
        """Replaces transitions of a kind, for tests that break them on purpose."""

    async def execute(self, *words: Word) -> Any:
        return await self.client.execute_command(*words)  # type: ignore[no-untyped-call]

    async def call(
        self, name: str, keys: Sequence[str], args: Iterable[Word], kind: str = SeenKind.EXACT
    ) -> Any:
        """Run one transition. Raises `StoreUnavailable` when it is unknown whether it happened.

        `kind` says how seen requests are remembered; it matters for those in `SEEING`.
        """
        wanted = self.scripts.get((name, kind)) or script(name, kind)
        words = (len(keys), *keys, self.time, *args)
        try:
            try:
                return await self.execute("EVALSHA", wanted.sha, *words)
            except NoScriptError:
                return await self.execute("EVAL", wanted.source, *words)
        except (RedisError, OSError) as error:
            raise self._refused(name, error) from error

    async def replicated(self, keys: Sequence[str]) -> bool:
        """Wait until a replica has all that was written before; False when that takes too long.

        WAIT speaks of what its own connection has written, so a write that changes nothing but the
        clocks goes before it.
        """
        tick = script("hold_off")
        try:
            async with self.client.pipeline(transaction=False) as pipe:
                pipe.execute_command("EVAL", tick.source, len(keys), *keys, self.time)
                pipe.execute_command("WAIT", 1, REPLICA_MS)
                _, copies = await pipe.execute()
        except (RedisError, OSError) as error:
            raise self._refused("wait", error) from error
        return int(copies) > 0

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


def request_words(requests: Sequence[NewRequest], kind: SeenKind) -> Iterable[Word]:
    """Five words a request, as `push_argv` in `push.lua` reads them."""
    errs = kind.errs
    for id, host, priority, fingerprint, payload, sure, _ in requests:
        if not -PRIORITY_LIMIT <= priority <= PRIORITY_LIMIT:
            raise ValueError(f"priority {priority} of {id} is not within ±{PRIORITY_LIMIT}")
        mark: Word = "" if fingerprint is None else fingerprint
        if sure and errs and fingerprint is not None:
            mark = f"={fingerprint}"
        yield from (id, host, int(priority), mark, payload)


def pack_row(request: NewRequest) -> bytes:
    """A request of another shard as one word of the outbox."""
    if request.shard is None or request.fingerprint is None:
        raise ValueError(f"{request.id} cannot go to another shard without a fingerprint")
    head = (
        request.shard,
        request.id,
        request.host,
        request.priority,
        request.fingerprint,
        int(request.sure),
        "",
    )
    payload: bytes = request.payload
    return "\n".join(map(str, head)).encode() + payload


def unpack_row(row: bytes) -> NewRequest:
    """See `pack_row`."""
    shard, id, host, priority, fingerprint, sure, payload = row.split(b"\n", 6)
    return NewRequest(
        id.decode(),
        host.decode(),
        int(priority),
        int(fingerprint),
        payload,
        sure == b"1",
        int(shard),
    )


def entering(requests: Sequence[NewRequest], kind: SeenKind) -> tuple[int, int, list[Word]]:
    """How many requests are of this shard, how many of others, and the words of all."""
    here = [request for request in requests if request.shard is None]
    words: list[Word] = list(request_words(here, kind))
    if len(here) < len(requests):
        words += (pack_row(request) for request in requests if request.shard is not None)
    return len(here), len(requests) - len(here), words


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


def said_lines(hosts: Mapping[str, HostPace], source: str) -> str:
    """What a node says of single hosts, as `tune.lua` reads it."""
    return "".join(f"{host} {hosts[host].words()} {source}\n" for host in sorted(hosts))


def tells_words(config: RunConfig) -> str:
    """Which ends of tasks the spider wants to be told."""
    wanted = {"done": config.tells_done, "failed": config.tells_failed}
    return " ".join(name for name, wants in wanted.items() if wants)


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
        shards: int = 1,
        replicated: bool = False,
        now: int | None = None,
        revive: Callable[[], Awaitable[None]] | None = None,
        new_epoch: Callable[[], str] = new_epoch,
    ) -> None:
        """`replicated`: a replica may take the place of the shard's server, and of no other's.

        What must not be lost then waits until a replica has it. `revive` starts the server again
        if it is ours to start; `recover` calls it first.
        """
        self.caller = ScriptCaller(client, now)
        self._revive = revive
        self._new_epoch = new_epoch
        self.shard = ShardKeys(prefix, shard)
        self.shards = shards
        self.replicated = replicated
        self.job = job
        self.run_id = run
        self.epoch = ""
        self.run: RunKeys | None = None
        self._kind: SeenKind | None = None
        self._server = b""
        self._alone = True
        """No replica was connected when it was last asked."""

    @property
    def client(self) -> Redis:
        return self.caller.client

    async def _call(self, name: str, *args: Word) -> Any:
        return await self.caller.call(name, self._keys(name), args)

    def _keys(self, name: str = "a call") -> tuple[str, str]:
        if self.run is None:
            raise RunLost(f"{name} was called before the run was opened")
        return self.shard.tag, self.run.base

    async def _call_seeing(self, name: str, kind: SeenKind, *args: Word) -> Any:
        if self.run is None:
            raise RunLost(f"{name} was called before the run was opened")
        return await self.caller.call(name, (self.shard.tag, self.run.base), args, kind)

    async def kind(self) -> SeenKind:
        """How the run remembers seen requests; asked of the store when the run was not opened."""
        if self._kind is None:
            if self.run is None:
                raise RunLost("the run was not opened")
            try:
                found = await self.caller.execute("HGET", self.run.meta, "kind")
            except (RedisError, OSError) as error:
                raise StoreUnavailable(f"kind: {error}") from error
            if found is None:
                raise RunLost(f"there is no run {self.run.base} in the store")
            self._kind = SeenKind(found.decode())
        return self._kind

    async def seen_base(self) -> str:
        """The key of what the run has seen; empty when the run is gone."""
        if self.run is None:
            return ""
        try:
            found = await self.caller.execute("HGET", self.run.meta, "seen")
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"seen: {error}") from error
        return found.decode() if found else ""

    async def open(self, config: RunConfig) -> Opened:
        answer = await self._open(config, self._new_epoch(), config.keep_alive)
        state, _, laid, _ = answer
        return Opened(RunState(state.decode()), self.epoch, await self.status(), bool(laid))

    async def open_part(self, config: RunConfig, whole: Opened) -> None:
        part = (whole.status.started_at_ms, int(not whole.laid))
        await self._open(config, whole.epoch, False, part)

    async def _open(
        self, config: RunConfig, epoch: str, hold: bool, part: tuple[Word, Word] = ("", 0)
    ) -> Sequence[Any]:
        seen, first = config.seen, config.seen.layers()[0]
        words: tuple[Word, ...] = (
            clean(self.job),
            clean(self.run_id),
            epoch,
            config.finished_ttl_ms,
            config.run_ttl_ms if self.run_id else 0,
            int(hold),
            config.dedup_scope,
            config.host_concurrency,
            config.host_delay_ms,
            config.fetch_timeout_ms,
            clock_step_ms(config),
            config.max_retries,
            config.max_deliveries,
            policy_words(config),
            seen.kind,
            seen.plan(),
            first.size,
            first.capacity,
            seen.generation_ms,
            self.shards,
            *part,
            int(config.polls),
            tells_words(config),
            config.kept_responses,
        )
        answer: Sequence[Any] = await self.caller.call("open", (self.shard.tag,), words)
        self._raise_refused(answer, seen)
        self.attach(answer[1].decode())
        self._kind = seen.kind
        self._server = await self._server_id()
        if (plan := answer[3].decode()) != seen.plan():
            event(
                log,
                "dedup_plan_kept",
                level=logging.WARNING,
                job=self.job,
                kind=str(seen.kind),
                kept=plan,
                settings=seen.plan(),
            )
        return answer

    async def tune(self, tuning: Tuning) -> bool:
        """See `Tunable`."""
        config = tuning.config
        words: list[Word] = [
            tuning.version,
            config.host_concurrency,
            config.host_delay_ms,
            config.fetch_timeout_ms,
            config.max_retries,
            policy_words(config),
        ]
        said = said_lines(tuning.hosts, "s") + said_lines(tuning.others, "o")
        waiting: Word = -1 if tuning.repeats else 0
        own = waiting
        while True:
            done, waiting, own = await self._call("tune", *words, waiting, own, tuning.node, said)
            if waiting == own == b"-1":
                break
            said = "-"
        return bool(done)

    def _raise_refused(self, answer: Sequence[Any], seen: SeenConfig) -> None:
        """The error that an `open` which did nothing stands for."""
        code = answer[0].decode()
        if code == "shards":
            raise wrong_shards(int(answer[1]), self.shards)
        if code == "kind":
            raise other_kind(answer[1].decode(), self.job, answer[2].decode(), seen.kind)
        if code == "module":
            raise ConfigError(
                f"DEDUP_FILTER is {seen.kind}, but this server refuses BF.RESERVE "
                f"({answer[1].decode()}). Right would be a server with the module (valkey-bloom, "
                "RedisBloom), or DEDUP_FILTER = compact, which needs none and can forget"
            )

    def attach(self, epoch: str) -> None:
        """Work on this incarnation of the run without opening it (a node's second connection)."""
        self.epoch = epoch
        self.run = self.shard.run(self.job, self.run_id, epoch)
        self._kind = None

    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        answer = await self._call("claim", node, seq, want, lease_ms)
        _, state, pending, wait, stopping, paused, away, wall, idle_tasks = answer[:9]
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
            for i in range(9, len(answer), 5)
        )
        return Claim(
            leases,
            RunState(state.decode()),
            pending,
            wait,
            bool(stopping),
            paused=bool(paused),
            away=away,
            idle_tasks=idle_tasks,
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
        kind = await self.kind()
        words: list[Word] = []
        for ack in acks:
            words += (ack.id, ack.token, str(ack.reason), ack.items, ack.error, ack.response)
            here, others, children = entering(ack.children, kind)
            words += (ack.emitted, here, others, len(ack.skipped), *children)
            for reason, number in ack.skipped:
                words += (str(reason), number)
        return [bool(flag) for flag in await self._call_seeing("ack", kind, *words)]

    async def emit(self, id: str, token: str, step: int, children: Sequence[NewRequest]) -> bool:
        kind = await self.kind()
        here, others, words = entering(children, kind)
        return bool(await self._call_seeing("emit", kind, id, token, step, here, others, *words))

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

    async def visit(self, id: str, token: str, fingerprint: int, host: str = "") -> bool | None:
        kind = await self.kind()
        code = await self._call_seeing("visit", kind, id, token, fingerprint, host)
        return None if code < 0 else bool(code)

    async def recover(self) -> int:
        if self._revive:
            await self._revive()
        server = await self._server_id()
        if server == self._server:
            return 0
        fixed = await self.fsck(server)
        self._server = server
        return fixed

    async def fsck(self, check: Word = "") -> int:
        """Repair the run piece by piece, beside all else; returns the repairs made here.

        All who name the same `check` share the pieces; without a name it is a check of its own.
        """
        check = check or uuid.uuid4().hex
        left, fixed = 1, 0
        while left:
            left, more = await self._call("fsck", check)
            fixed += more
        return fixed

    async def seed_claim(self, node: str, seq: int, lease_ms: int) -> SeedReply:
        code, cursor, token = await self._call("seed_claim", node, seq, lease_ms)
        held = token.decode() if code == b"ok" else ""
        return SeedReply(SeedCode(code.decode()), cursor, held)

    async def seed_push(
        self,
        token: str,
        batch: int,
        final: bool,
        requests: Sequence[NewRequest],
        refused: Sequence[tuple[str, int]] = (),
    ) -> SeedReply:
        kind = await self.kind()
        here, others, words = entering(requests, kind)
        words += (word for pair in refused for word in pair)
        code, cursor, added = await self._call_seeing(
            "seed_push", kind, token, batch, int(final), here, others, *words
        )
        return SeedReply(SeedCode(code.decode()), cursor, "", added)

    async def take_tasks(
        self, token: str, batch: int, final: bool, most: int, key: str
    ) -> SeedReply:
        kind = await self.kind()
        code, cursor, added = await self._call_seeing(
            "take_tasks", kind, token, batch, int(final), most, clean(key)
        )
        return SeedReply(SeedCode(code.decode()), cursor, "", added)

    async def open_tasks(self) -> list[tuple[str, bytes]]:
        # A task that ends while this reads on becomes what tells of its end, which is read later.
        found: dict[str, bytes] = {}
        for part in ("tasks", "body", "dead"):
            cursor: Word = 0
            while True:
                cursor, *words = await self._call("open_tasks", part, cursor)
                for i in range(0, len(words), 2):
                    found.setdefault(words[i].decode(), words[i + 1])
                if cursor == b"0":
                    break
        return list(found.items())

    async def add(self, requests: Sequence[NewRequest]) -> int:
        kind = await self.kind()
        here, others, words = entering(requests, kind)
        return int(await self._call_seeing("add", kind, here, others, *words))

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
        await self._replicate()
        return (await self.status()).state is RunState.DONE

    # -- one shard of several; see `ShardControl`

    async def lay(self) -> None:
        await self._call("lay")

    async def outbox(self, limit: int) -> list[NewRequest]:
        return [unpack_row(row) for row in await self._call("outbox", limit)]

    async def deliver(self, requests: Sequence[NewRequest]) -> int:
        kind = await self.kind()
        words = request_words(requests, kind)
        added = int(await self._call_seeing("deliver", kind, len(requests), *words))
        await self._replicate()
        return added

    async def trim(self, requests: Sequence[NewRequest]) -> None:
        await self._call("trim", *map(pack_row, requests))

    async def close(self, version: int) -> bool:
        return bool(await self._call("close", version))

    async def reopen(self) -> None:
        await self._call("reopen")

    # -- tasks over several shards; see `TaskControl`

    async def idle_tasks(self, limit: int) -> list[str]:
        return [task.decode() for task in await self._call("idle_tasks", limit)]

    async def look_at_tasks(self, tasks: Sequence[str]) -> list[TaskLook]:
        words = await self._call("look_at_tasks", *tasks)
        return [
            TaskLook(bool(words[i]), *(word.decode() for word in words[i + 1 : i + 4]))
            for i in range(0, len(words), 4)
        ]

    async def settle_tasks(self, settled: Sequence[SettledTask]) -> list[bool]:
        words = (str(word) for task in settled for word in task)
        return [bool(flag) for flag in await self._call("settle_tasks", *words)]

    async def _replicate(self) -> None:
        """Return when a replica has what was written, if there is one that could take over."""
        if not self.replicated or (self._alone and not await self._has_replica()):
            return  # WAIT would wait in vain
        if await self.caller.replicated(self._keys()):
            return
        if await self._has_replica():
            raise StoreUnavailable("no replica has taken the last writes yet")

    async def _has_replica(self) -> bool:
        replicas = (await self._info("replication")).get("connected_slaves")
        self._alone = not replicas
        return not self._alone

    async def _server_id(self) -> bytes:
        return str((await self._info("server"))["run_id"]).encode()

    async def _info(self, section: str) -> dict[str, Any]:
        try:
            return await self.client.info(section)
        except (*UNAVAILABLE, RedisError) as error:
            raise StoreUnavailable(f"info: {error}") from error


def parse_status(answer: Sequence[Any]) -> Status:
    """The counts of a run from what `status.lua` returns."""
    state = RunState(answer[0].decode())
    pending, leased, delayed, dead, hosts, items, retried, reaped, fenced, repaired, seeds = answer[
        1:12
    ]
    seeding, seeder, hold, stopping, paused, started, finished = answer[12:19]
    away, version, shards, tasks = answer[19:23]
    idle_seed = seeding - seeder
    return Status(
        state=state,
        pending=pending,
        queued=pending - leased - delayed - hold - idle_seed - away,
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
        away=away,
        version=version,
        shards=shards,
        tasks=tasks,
        reasons={answer[i].decode(): int(answer[i + 1]) for i in range(23, len(answer), 2)},
    )
