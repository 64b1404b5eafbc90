"""One frontier in memory and one on each server, taken through the same steps and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from tests.lua.direct import DirectClient, run_now, run_together
from tests.lua.state import FAR, Dumper, State, check_sound, comparable, living, told

from orbweb.errors import RunLost
from orbweb.frontier.base import Held, NewRequest, RunConfig
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.memory_state import MemoryShard
from orbweb.frontier.scripts import TRANSITIONS, Script, assemble, lua_text
from orbweb.frontier.valkey import ScriptCaller, ValkeyFrontier

KEYS = ShardKeys("p")
OPERATOR_FIELDS = ("limit", "limit_until", "paused", "ceiling", "ceiling_until")
JOBS = (("a", "r1"), ("a", "r2"), ("b", ""))


def small_buckets(shard: str) -> str:
    """`shard.lua` with buckets so small that a dozen fingerprints split them."""
    text = "BUCKET_LOAD = 192"
    assert text in shard
    return shard.replace(text, "BUCKET_LOAD = 2")


def build_scripts(changed: Mapping[str, str] | None = None) -> dict[str, Script]:
    """All transitions with small buckets; `changed` replaces Lua files by name."""
    texts = dict(changed or {})
    texts["shard"] = small_buckets(texts.get("shard") or lua_text("shard"))
    return {name: assemble(name, texts) for name in TRANSITIONS}


class Backend:
    """A server under test."""

    def __init__(self, client: DirectClient, scripts: dict[str, Script]) -> None:
        self.client = client
        self.dumper = Dumper(client)
        self.scripts = scripts

    def frontier(self, job: str, run: str, new_epoch: Any) -> ValkeyFrontier:
        frontier = ValkeyFrontier(
            self.client,  # type: ignore[arg-type]
            prefix="p",
            job=job,
            run=run,
            new_epoch=new_epoch,
        )
        frontier.caller.scripts = self.scripts
        return frontier


class Twins:
    """The frontiers of three runs: two of one job, one of another; all crawl the same hosts."""

    def __init__(self, backends: list[Backend], counts: Counter[str]) -> None:
        self.wall = 1_000
        self.epochs = 0
        self.backends = backends
        self.counts = counts
        self.shard = MemoryShard(lambda: self.wall, self.epoch)
        self.memory = [MemoryFrontier(self.shard, job, run) for job, run in JOBS]
        self.servers = []
        for backend in backends:
            backend.client.call("FLUSHALL")
            self.servers.append([backend.frontier(job, run, self.epoch) for job, run in JOBS])
        self.collect_at: dict[str, float] = {}

    def epoch(self) -> str:
        return f"e{self.epochs}"

    def step(self, run: int, name: str, *args: Any, **kwargs: Any) -> Any:
        """One transition everywhere. Returns the answer, or `RunLost` when that was raised."""
        self.counts["ops"] += 1
        frontiers = [frontiers[run] for frontiers in self.servers]
        for frontier in frontiers:
            frontier.caller.time = self.wall
        answers = run_together(
            [getattr(twin, name)(*args, **kwargs) for twin in (self.memory[run], *frontiers)]
        )
        answers = [RunLost if isinstance(answer, RunLost) else answer for answer in answers]
        for answer in answers[1:]:
            assert answer == answers[0], f"{name}{args}: memory {answers[0]}, server {answer}"
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def open(self, run: int, config: RunConfig) -> Any:
        self.epochs += 1
        answer = self.step(run, "open", config)
        job, run_id = JOBS[run]
        name = f"{job}:{run_id}"
        ttl = config.run_ttl_ms if run_id else 0
        alive = {f"{name}:{answer.epoch}"}
        for other in [key for key in self.collect_at if key.rpartition(":")[0] == name]:
            if other not in alive:
                del self.collect_at[other]
        self.collect_at[f"{name}:{answer.epoch}"] = self.wall + ttl if ttl else float("inf")
        return answer

    def renew(self, run: int, node: str, lease_ms: int, held: list[Held]) -> Any:
        answer = self.step(run, "renew", node, lease_ms, held, b"beat")
        name = self.memory[run]._base
        ttl = self.shard.runs[name].config.run_ttl_ms if name in self.shard.runs else 0
        if JOBS[run][1] and ttl and name in self.collect_at:
            self.collect_at[name] = self.wall + ttl
        return answer

    def steer(self, host: str, fields: dict[str, int]) -> None:
        """Set what an operator may say of a host; an empty dict takes all of it back."""
        record = self.shard.hosts.records.setdefault(host, {})
        for name in OPERATOR_FIELDS:
            record.pop(name, None)
        record |= {name: float(value) for name, value in fields.items()}
        for backend in self.backends:
            backend.client.call("HDEL", KEYS.host(host), *OPERATOR_FIELDS)
            for name, value in fields.items():
                backend.client.call("HSET", KEYS.host(host), name, value)

    def give_load(self, run: int, node: str, load: int) -> None:
        """As if the node had been handed out so much before."""
        memory = self.shard.runs.get(self.memory[run]._base)
        if memory is None:
            return
        memory.loads[node] = load
        for backend, frontiers in zip(self.backends, self.servers, strict=True):
            backend.client.call("HSET", frontiers[run].run.loads, node, load)

    def pause(self, run: int) -> None:
        """Pause the run, or let it go on."""
        memory = self.shard.runs.get(self.memory[run]._base)
        if memory is None:
            return
        memory.paused = not memory.paused
        for backend, frontiers in zip(self.backends, self.servers, strict=True):
            meta = frontiers[run].run.meta
            backend.client.call(
                *(("HSET", meta, "paused", FAR) if memory.paused else ("HDEL", meta, "paused"))
            )

    def fsck(self, run: int) -> None:
        """The repair finds nothing, and changes nothing but the clocks, as `recover` does."""
        if self.memory[run]._base not in self.shard.runs:
            return
        run_now(self.memory[run].recover())
        for frontiers in self.servers:
            frontiers[run].caller.time = self.wall
            assert run_now(frontiers[run].fsck()) == 0, "repairs in a sound state"

    def reset(self, run: int, seen: bool) -> None:
        job, run_id = JOBS[run]
        epoch = self.shard.current.pop((job, run_id), None)
        if epoch is not None:
            self.shard.forget(f"{job}:{run_id}:{epoch}")
            self.collect_at.pop(f"{job}:{run_id}:{epoch}")
        if seen:
            self.shard.job_seen.pop(job, None)
        for backend in self.backends:
            found = self._shard_call(backend, "reset", job, run_id, int(seen))
            assert found == (epoch is not None)

    def collect(self) -> None:
        """Unlink all that is due; nothing of it may be left."""
        due = [name for name, at in self.collect_at.items() if at <= self.wall]
        for name in due:
            del self.collect_at[name]
            self.shard.forget(name)
            job, run_id, _ = name.split(":")
            del self.shard.current[job, run_id]
            self.counts["collected"] += 1
        for backend in self.backends:
            for _ in range(200):
                self._shard_call(backend, "collect", 3)
                raw = run_now(backend.dumper.raw())
                if KEYS.garbage not in raw and set(raw.get(KEYS.runs, ())) == set(self.collect_at):
                    break
            else:
                raise AssertionError("collecting does not end")

    def _shard_call(self, backend: Backend, name: str, *args: Any) -> Any:
        caller = ScriptCaller(backend.client, self.wall)  # type: ignore[arg-type]
        caller.scripts = backend.scripts
        return run_now(caller.call(name, (KEYS.tag,), args))

    def compare(self) -> None:
        """Every key of every server holds what the twin in memory says, and the state is sound."""
        expected = told(self.shard, KEYS, self.collect_at)
        compared: list[Any] = []
        for read in run_together([backend.dumper.read() for backend in self.backends]):
            if isinstance(read, Exception):
                raise read
            if read in compared:
                continue
            compared.append(read)
            state = comparable(living(Dumper.parse(read), KEYS), KEYS, self.shard)
            if state != expected:
                raise AssertionError(difference(expected, state))
            check_sound(state, KEYS)


def difference(expected: State, state: State) -> str:
    lines = []
    for key in sorted(expected.keys() | state.keys()):
        if expected.get(key) != state.get(key):
            lines.append(f"{key}: memory {expected.get(key)}, server {state.get(key)}")
    return "\n".join(lines)


def new_request(code: int) -> NewRequest:
    """One of 14 requests on three hosts, with one of five priorities, deduplicated or not."""
    which, rest = code % 14, code // 14
    fingerprint = FINGERPRINTS[which] if rest // 5 else None
    return NewRequest(f"u{which}", f"h{which % 3}", rest % 5 - 2, fingerprint, b"pay%d" % which)


REQUEST_CODES = 14 * 5 * 2
FINGERPRINTS = (
    -(2**63),
    2**63 - 1,
    0,
    -5,
    17,
    -123456789,
    -12345678,
    *(pow(7, 25 + n, 2**63) * (-1) ** n for n in range(7)),
)
