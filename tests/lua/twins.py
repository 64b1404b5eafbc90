"""One frontier in memory and one on each server, taken through the same steps and compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from tests.lua.direct import DirectClient, run_now, run_together
from tests.lua.operators import Operators
from tests.lua.state import AUTHOR, FAR, Dumper, State, check_sound, comparable, living, told

from orbweb.errors import ConfigError, RunLost
from orbweb.frontier.base import Held, NewRequest, Opened, RunConfig
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.memory import MemoryFrontier
from orbweb.frontier.memory_seen import Seen
from orbweb.frontier.memory_state import MemoryShard
from orbweb.frontier.operator import UNTOUCHED
from orbweb.frontier.scripts import (
    SEEING,
    SEEN_KINDS,
    TRANSITIONS,
    Script,
    assemble,
    lua_text,
    parts,
)
from orbweb.frontier.valkey import ScriptCaller, ValkeyFrontier

KEYS = ShardKeys("p")
SEEN_OPERATIONS: dict[str, Callable[..., Any]] = {
    "check": lambda seen, wall, mark, host: [int(seen.has(mark, host, wall))],
    "forget": lambda seen, wall, mark, host: seen.forget(mark, host, wall),
    "forget host": lambda seen, wall, host: seen.forget_host(host, wall),
    "forget older": lambda seen, wall, age: seen.forget_older(age, wall),
    "learn": lambda seen, wall, *marks: sum(learn(seen, wall, mark) for mark in marks),
}
SEEN_SCRIPTS = {
    "check": ("seen_check",),
    "forget": ("seen_forget", "url"),
    "forget host": ("seen_forget", "host"),
    "forget older": ("seen_forget", "older"),
    "learn": ("seen_learn",),
}


def learn(seen: Seen, wall: int, mark: int) -> bool:
    """Let it count as seen; whether it did not."""
    is_new = not seen.has(mark, "", wall)
    if is_new:
        seen.put(mark, "")
    return is_new


OPERATOR_FIELDS = ("limit", "limit_until", "paused", "ceiling", "ceiling_until")
JOURNAL_MS = 30_000
JOBS = (("a", "r1"), ("a", "r2"), ("b", ""), ("c", ""))
SHARDS = (1, 1, 4, 4)
"""Over how many shards each is spread. This is shard 0 of the third run, another of the last."""


Scripts = dict[tuple[str, str], Script]


def build_scripts(changed: Mapping[str, str] | None = None) -> Scripts:
    """All transitions of all kinds; `changed` replaces Lua files by name.

    Buckets are so small that a dozen fingerprints split them.
    """
    changed = changed or {}
    texts = {**changed, SMALL: _small_buckets(changed.get(SMALL) or lua_text(SMALL))}
    return _scripts() | {
        (name, kind): assemble(name, kind, texts)
        for name, kind in _scripts()
        if not changed.keys().isdisjoint(parts(name, kind))
    }


SMALL = "seen_exact"


@cache
def _scripts() -> Scripts:
    texts = {SMALL: _small_buckets(lua_text(SMALL))}
    return {
        (name, kind): assemble(name, kind, texts)
        for name in TRANSITIONS
        for kind in (SEEN_KINDS if name in SEEING else ("exact",))
    }


def _small_buckets(text: str) -> str:
    assert text.count("BUCKET_LOAD = 128") == 1
    return text.replace("BUCKET_LOAD = 128", "BUCKET_LOAD = 2")


class Backend:
    """A server under test."""

    def __init__(self, client: DirectClient, scripts: Scripts) -> None:
        self.client = client
        self.dumper = Dumper(client)
        self.scripts = scripts

    def frontier(self, job: str, run: str, shards: int, new_epoch: Any) -> ValkeyFrontier:
        frontier = ValkeyFrontier(
            self.client,  # type: ignore[arg-type]
            prefix="p",
            job=job,
            run=run,
            shards=shards,
            new_epoch=new_epoch,
        )
        frontier.caller.scripts = self.scripts
        return frontier


class Twins:
    """The frontiers of four runs: two of one job, two of others; all crawl the same hosts."""

    def __init__(self, backends: list[Backend], counts: Counter[str]) -> None:
        self.wall = 1_000
        self.epochs = 0
        self.backends = backends
        self.counts = counts
        self.shard = MemoryShard(lambda: self.wall, self.epoch)
        self.operators = Operators(self.shard)
        runs = [(*names, shards) for names, shards in zip(JOBS, SHARDS, strict=True)]
        self.memory = [MemoryFrontier(self.shard, job, run, shards=n) for job, run, n in runs]
        self.servers = []
        for backend in backends:
            backend.client.call("FLUSHALL")
            self.servers.append([backend.frontier(*facts, self.epoch) for facts in runs])
        self.collect_at: dict[str, float] = {}
        self.beside: list[Callable[[], State]] = [lambda: self.operators.state(KEYS)]
        """Tell what the servers must hold beside what the frontier in memory knows."""

    def epoch(self) -> str:
        return f"e{self.epochs}"

    def step(self, run: int, name: str, *args: Any, **kwargs: Any) -> Any:
        """One transition everywhere. Returns the answer, or the class of the error."""
        self.counts["ops"] += 1
        frontiers = [frontiers[run] for frontiers in self.servers]
        for frontier in frontiers:
            frontier.caller.time = self.wall
        answers = run_together(
            [getattr(twin, name)(*args, **kwargs) for twin in (self.memory[run], *frontiers)]
        )
        answers = [told_error(answer) for answer in answers]
        for answer in answers[1:]:
            assert answer == answers[0], f"{name}{args}: memory {answers[0]}, server {answer}"
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    def open(self, run: int, config: RunConfig) -> Any:
        self.epochs += 1
        answer = self.step(run, "open", config)
        if answer is ConfigError:
            return answer
        self._note_opened(run, answer.epoch, config)
        return answer

    def open_part(self, run: int, config: RunConfig, whole: Opened) -> Any:
        answer = self.step(run, "open_part", config, whole)
        if answer not in (RunLost, ConfigError):
            self._note_opened(run, whole.epoch, config)
        return answer

    def _note_opened(self, run: int, epoch: str, config: RunConfig) -> None:
        job, run_id = JOBS[run]
        name = f"{job}:{run_id}"
        ttl = config.run_ttl_ms if run_id else 0
        for other in [key for key in self.collect_at if key.rpartition(":")[0] == name]:
            if other != f"{name}:{epoch}":
                del self.collect_at[other]
        self.collect_at[f"{name}:{epoch}"] = self.wall + ttl if ttl else float("inf")

    def renew(self, run: int, node: str, lease_ms: int, held: list[Held]) -> Any:
        answer = self.step(run, "renew", node, lease_ms, held, b"beat")
        name = self.memory[run]._base
        ttl = self.shard.runs[name].config.run_ttl_ms if name in self.shard.runs else 0
        if JOBS[run][1] and ttl and name in self.collect_at:
            self.collect_at[name] = self.wall + ttl
        return answer

    def seen_base(self, run: int, number: int) -> str | None:
        """Where the server keeps what the run has seen; None when the run is gone."""
        frontier = self.servers[number][run]
        assert frontier.run
        found = self.backends[number].client.call("HGET", frontier.run.meta, "seen")
        return found.decode() if found else None

    def look_at_seen(self, run: int, name: str, *words: Any) -> Any:
        """Check or forget what is seen, everywhere; returns what the twin in memory says."""
        seen = self.shard.runs.get(self.memory[run]._base)
        if seen is None:
            return RunLost
        self.counts["ops"] += 1
        kind = seen.config.seen.kind
        memory = SEEN_OPERATIONS[name](seen.seen, self.wall, *words)
        for number, backend in enumerate(self.backends):
            base = self.seen_base(run, number)
            assert base
            caller = ScriptCaller(backend.client, self.wall)  # type: ignore[arg-type]
            caller.scripts = backend.scripts
            script, *first = SEEN_SCRIPTS[name]
            answer = run_now(caller.call(script, (KEYS.tag, base), (*first, *words), kind))
            assert answer == memory, f"{name}{words}: memory {memory}, server {answer}"
        return memory

    def steer(
        self,
        host: str,
        fields: Mapping[str, int],
        entry: tuple[str, str] = (UNTOUCHED, UNTOUCHED),
        line: str = "",
    ) -> Any:
        """Set all that an operator may say of a host; what is not in `fields` is taken back."""
        words = {name: str(fields.get(name, "")) for name in OPERATOR_FIELDS}
        memory = self.operators.steer(self.wall, host, words, entry, line)
        pairs = [word for pair in words.items() for word in pair]
        for backend in self.backends:
            answer = self._shard_call(backend, "steer", host, *entry, line, *pairs)
            assert in_text(answer) == memory, f"steer{words}: memory {memory}, server {answer}"
        return memory

    def put_on_list(self, key: str, tasks: list[tuple[str, bytes]]) -> None:
        """Let tasks wait in a list that belongs to no run."""
        self.shard.task_lists.setdefault(key, []).extend(tasks)
        for backend in self.backends:
            for task, value in tasks:
                backend.client.call("RPUSH", KEYS.task_list(key), b"%s %s" % (task.encode(), value))

    def give_load(self, run: int, node: str, load: int) -> None:
        """As if the node had been handed out so much before."""
        memory = self.shard.runs.get(self.memory[run]._base)
        if memory is None:
            return
        memory.loads[node] = load
        for backend, frontiers in zip(self.backends, self.servers, strict=True):
            backend.client.call("HSET", frontiers[run].run.loads, node, load)

    def pass_time(self, ms: int) -> None:
        """As if the shard had been looked at all the while."""
        self.shard.hosts.clock.log += ms
        for backend in self.backends:
            backend.client.call("HINCRBY", KEYS.clock, "log", ms)

    def pause(self, run: int) -> None:
        """Pause the run, or let it go on."""
        if self.memory[run]._base not in self.shard.runs:
            return
        found = self.memory[run]._begin()
        until = "" if found.paused else str(FAR)
        memory = self.operators.pause(found, until, "line")
        for frontiers in self.servers:
            frontiers[run].caller.time = self.wall
            answer = run_now(frontiers[run]._call("pause", until, *AUTHOR, "line"))
            assert in_text(answer) == memory

    def journal(self, run: int, what: str) -> Any:
        """Begin, go on with or end noting what leaves the run."""
        answers = []
        for backend, frontiers in zip(self.backends, self.servers, strict=True):
            answers.append(
                self._shard_call(backend, "journal", what, JOURNAL_MS, run=frontiers[run])
            )
        assert len(set(answers)) == 1, f"journal {what}: {answers}"
        return answers[0]

    def noted(self, run: int) -> list[set[str]]:
        """On each server, the ids of requests that were noted as they left."""
        found = [
            backend.client.call("HKEYS", frontiers[run].run.left)
            for backend, frontiers in zip(self.backends, self.servers, strict=True)
        ]
        return [{id.decode() for id in ids} for ids in found]

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
            self.shard.job_shards.pop(job, None)
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

    def _shard_call(
        self, backend: Backend, name: str, *args: Any, run: ValkeyFrontier | None = None
    ) -> Any:
        caller = ScriptCaller(backend.client, self.wall)  # type: ignore[arg-type]
        caller.scripts = backend.scripts
        keys = (KEYS.tag, run.run.base) if run and run.run else (KEYS.tag,)
        return run_now(caller.call(name, keys, args))

    def compare(self) -> None:
        """Every key of every server holds what the twin in memory says, and the state is sound."""
        expected = told(self.shard, KEYS, self.collect_at)
        for beside in self.beside:
            expected |= beside()
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


def told_error(answer: Any) -> Any:
    """An answer, or the kind of error that stands for it."""
    for error in (RunLost, ConfigError):
        if isinstance(answer, error):
            return error
    return answer


def in_text(answer: list[Any]) -> list[Any]:
    """What a script returns, with its words as texts."""
    return [word.decode() if isinstance(word, bytes) else word for word in answer]


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
    host, payload = f"h{which % 3}", b"pay%d" % which
    return NewRequest(f"u{which}", host, rest % 5 - 2, fingerprint, payload, rest // 5 == 2)


def distant_request(code: int) -> NewRequest:
    """One of those requests, of another shard."""
    return new_request(code)._replace(shard=1 + code % 3, fingerprint=FINGERPRINTS[code % 14])


REQUEST_CODES = 14 * 5 * 3
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
