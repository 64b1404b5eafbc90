"""The whole state of a frontier as plain values: read from a server, or told by the twin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import sha1
from typing import Any

from tests.lua.direct import DirectClient

from orbweb.frontier.base import RunState, clock_step_ms
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.memory_hosts import Hosts
from orbweb.frontier.memory_seen import BloomMarks, Seen
from orbweb.frontier.memory_state import MemoryShard, Place, Run
from orbweb.frontier.operator import Author
from orbweb.frontier.valkey import pack_row, policy_words, said_lines, tells_words

READ_ALL = b"""
local out = {}
local keys = redis.call('KEYS', '*')
table.sort(keys)
for _, key in ipairs(keys) do
  local kind = redis.call('TYPE', key).ok
  local value
  if kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'set' then value = redis.call('SMEMBERS', key)
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  else value = redis.call('GET', key) end
  out[#out + 1] = {key, kind, value}
end
return out
"""

State = dict[str, Any]

FAR = 10**15
"""A time that no test comes to (ms)."""

AUTHOR = Author("ann", "429s")
"""Who pauses runs, and why."""


class Dumper:
    """Reads every key of a server in one call. Knows nothing of what should be there."""

    def __init__(self, client: DirectClient) -> None:
        self._client = client
        self._sha = client.call("SCRIPT", "LOAD", READ_ALL)

    async def read(self) -> list[Any]:
        """Keys with their types and values, as they come over the wire."""
        answer: list[Any] = await self._client.execute_command("EVALSHA", self._sha, 0)
        return answer

    async def raw(self) -> State:
        """Every key and its value."""
        return self.parse(await self.read())

    @staticmethod
    def parse(answer: list[Any]) -> State:
        state: State = {}
        for key, kind, value in answer:
            name = key.decode()
            if kind == b"hash":
                texts = [word.decode() for word in value]
                state[name] = dict(zip(texts[::2], texts[1::2], strict=True))
            elif kind == b"zset":
                members = [word.decode() for word in value[::2]]
                state[name] = dict(zip(members, map(float, value[1::2]), strict=True))
            elif kind == b"list":
                state[name] = [word.decode() for word in value]
            elif kind == b"set":
                state[name] = {word.decode() for word in value}
            else:
                state[name] = value
        return state


def fold_seen(raw: State) -> State:
    """Put all keys of what is seen into one value by its base; see `seen_state` for its form."""
    state = {key: value for key, value in raw.items() if ":seen" not in key}
    for base in {key.partition(":seen")[0] + ":seen" for key in raw if ":seen" in key}:
        keys = {key: raw[key] for key in raw if key == base or key.startswith(f"{base}:")}
        state[base] = _fold_seen(base, keys)
    return state


def _fold_seen(base: str, keys: State) -> State:
    head = keys.pop(base)
    records = {int(n): record.split() for n, record in keys.pop(f"{base}:parts", {}).items()}
    records[int(head["part"])] = [
        head[name] for name in ("count", "size", "capacity", "layer", "begun")
    ]
    assert min(records) == int(head["first"]), (head, records)
    folded: State = {
        "sure": {int(mark) for mark in keys.pop(f"{base}:sure", ())},
        "hosts": {host: int(times) for host, times in keys.pop(f"{base}:hosts", {}).items()},
    }
    for number, (count, size, capacity, layer, begun) in records.items():
        prefix = f"{base}:{number}"
        pieces = {key: keys.pop(key) for key in list(keys) if f"{key}:".startswith(f"{prefix}:")}
        pieces = {
            key.removeprefix(prefix).removeprefix(":"): piece for key, piece in pieces.items()
        }
        marks = FOLDS[head["kind"]](pieces, int(size))
        folded[str(number)] = (int(count), int(capacity), int(layer), int(begun), marks)
    assert not keys, f"keys of no part: {set(keys)}"
    return folded


def _fold_exact(buckets: State, size: int) -> set[int]:
    """The members; each must lie where it will be looked for."""
    members = set()
    low = 1 << (size.bit_length() - 1)
    for start, bucket in buckets.items():
        for member in bucket:
            spread = float(member) / 18446744073709555712 + 0.5
            level = low * 2 if int(spread * low) < size - low else low
            right = int(spread * level) * (2**32 // level)
            assert right == int(start, 16), f"{member} lies in bucket {start}, not in {right}"
            assert int(member) not in members
            members.add(int(member))
    return members


def _fold_compact(buckets: State, size: int) -> set[tuple[int, int]]:
    assert all(int(number) < size for number in buckets)
    return {(int(number), int(member)) for number, bucket in buckets.items() for member in bucket}


def _fold_set(keys: State, size: int) -> set[int]:
    return {int(member) for member in keys.get("", ())}


def _fold_bloom(segments: State, size: int) -> dict[int, bytes]:
    return {int(number): segment.rstrip(b"\0") for number, segment in segments.items()}


FOLDS: dict[str, Callable[[State, int], Any]] = {
    "exact": _fold_exact,
    "compact": _fold_compact,
    "set": _fold_set,
    "bloom": _fold_bloom,
}


def seen_state(seen: Seen | None) -> State | None:
    """What the twin in memory says of it, in the form of `fold_seen`."""
    if seen is None:
        return None
    folded: State = {"sure": seen.sure, "hosts": dict(seen.forgotten)}
    for part in seen.parts:
        marks: Any = part.marks
        if isinstance(marks, BloomMarks):
            held: Any = {n: bytes(bits).rstrip(b"\0") for n, bits in marks.segments.items()}
        else:
            held = marks.members
        folded[str(part.number)] = (part.count, part.capacity, part.layer, part.begun, held)
    return folded


def living(raw: State, keys: ShardKeys) -> State:
    """The state without what waits to be unlinked."""
    garbage = raw.pop(keys.garbage, ())
    parts = {name.partition(" ")[0] for name in garbage if " " in name}
    runs = tuple(f"{base}:" for base in garbage if " " not in base)
    pieces = tuple(f"{part}:" for part in parts)
    raw = {
        key: value
        for key, value in raw.items()
        if key not in parts and not key.startswith((*runs, *pieces))
    }
    return fold_seen(raw)


def told(shard: MemoryShard, keys: ShardKeys, collect_at: dict[str, float]) -> State:
    """What the server's keys must hold when the twin in memory is right."""
    state: State = dict(_shard_state(shard, keys))
    state[keys.runs] = dict(collect_at)
    for run in shard.runs.values():
        state.update(_run_state(run, keys))
    return {key: value for key, value in state.items() if value}


def _shard_state(shard: MemoryShard, keys: ShardKeys) -> Iterator[tuple[str, Any]]:
    runs = f"{keys.tag}:run:"
    hosts = shard.hosts
    if hosts.clock.wall is not None:
        clock = {"wall": hosts.clock.wall, "log": hosts.clock.log}
        if hosts.rate:
            clock |= {"rate": hosts.rate, "rate_at": hosts.rate_at}
        yield keys.clock, {name: str(value) for name, value in clock.items()}
    for host, slots in hosts.slots.items():
        yield keys.slots(host), {runs + member: float(end) for member, end in slots.items()}
    yield keys.next_allowed, {host: float(at) for host, at in hosts.next_allowed.at.items()}
    for host, bases in hosts.waiting.items():
        yield keys.waiting(host), {runs + base: float(at) for base, at in bases.items()}
    for host, record in hosts.records.items():
        last = {"last": runs + hosts.last[host]} if host in hosts.last else {}
        yield keys.host(host), {name: float(value) for name, value in record.items()} | last
    yield (
        keys.pace,
        {
            runs + base: f"{run.delay} {run.concurrency} {spoke}"
            for base, (run, spoke) in hosts.pace.items()
        },
    )
    yield keys.tuned, _tuned(hosts)
    yield keys.tuned_by, _said(hosts)
    for key, rows in shard.task_lists.items():
        yield keys.task_list(key), [f"{task} {value.decode()}" for task, value in rows]
    yield keys.current, {f"{job}:{run}": epoch for (job, run), epoch in shard.current.items()}


def _tuned(hosts: Hosts) -> dict[str, str]:
    """The strictest words on single hosts, and from where nodes have them: s, or else o."""
    words = [
        (host, pace, source)
        for _, said in hosts.said.values()
        for source, of_hosts in (("s", said.hosts), ("o", said.others))
        if source == "o" or said.version == hosts.said_version
        for host, pace in of_hosts.items()
    ]

    def source_of(host: str, part: slice) -> str:
        holds = hosts.tuned[host][part]
        if holds[0] is None:
            return "-"
        return max(source for name, pace, source in words if name == host and pace[part] == holds)

    tuned = {
        host: f"{pace.words()} {source_of(host, slice(0, 2))} {source_of(host, slice(2, 4))}"
        for host, pace in hosts.tuned.items()
    }
    return tuned | ({"@": str(hosts.tuned_until)} if tuned else {})


def _said(hosts: Hosts) -> dict[str, str]:
    """What nodes say of single hosts: the same words are kept once."""
    said = {"@": str(hosts.said_version)} if hosts.said_version else {}
    for node, (until, tuning) in hosts.said.items():
        words = said_lines(tuning.hosts, "s") + said_lines(tuning.others, "o")
        name = sha1(words.encode(), usedforsecurity=False).hexdigest()
        said |= {node: f"{until} {tuning.version} {name}", f"={name}": words}
    return said


def _run_state(run: Run, keys: ShardKeys) -> Iterator[tuple[str, Any]]:
    base = f"{keys.tag}:run:{run.base}"
    tasks = run.tasks.items()
    yield f"{base}:meta", _meta(run)
    yield (
        f"{base}:body",
        {
            id: f"{task.host}\n{task.priority}\n{task.retries}\n{_text(task.payload)}"
            for id, task in tasks
        },
    )
    yield f"{base}:owner", {id: task.token for id, task in tasks if task.place is Place.LEASED}
    for host, queue in run.queues.items():
        yield (
            f"{base}:queue:{host}",
            {id: float(priority * 2**32 + order) for priority, order, id in queue},
        )
    for name, timed in (
        ("ready", run.ready),
        ("delayed", run.delayed),
        ("deadline", run.deadline),
        ("nodes", run.nodes),
    ):
        yield f"{base}:{name}", {member: float(at) for member, at in timed.at.items()}
    yield f"{base}:expired", {id: str(times) for id, times in run.expired.items()}
    yield f"{base}:emitted", {id: f"{by} {steps}" for id, (by, steps) in run.emitted.items()}
    yield f"{base}:visited", {str(mark): id for mark, id in run.visited.items()}
    yield (
        f"{base}:visits",
        {id: "".join(f" {mark}" for mark in marks) for id, marks in run.visits.items()},
    )
    yield (
        f"{base}:parked",
        {
            str(mark): f"{link.id}\n{link.host}\n{link.priority}\n0\n{_text(link.payload)}"
            for mark, link in run.parked.items()
        },
    )
    yield f"{base}:loads", {node: str(load) for node, load in run.loads.items()}
    if run.dealt_to:
        deal = "".join(f"{owner + 1:04}" for owner in run.deal)
        homes = {"nodes": "\n".join(run.dealt_to), "deal": deal}
        if run.heavy:
            homes["heavy"] = "\n".join(run.heavy)
        yield f"{base}:homes", homes
    yield f"{base}:hungry", {node: float(at) for node, at in run.hungry.items()}
    yield (
        f"{base}:claims",
        {node: f"{seq} {' '.join(ids)}" for node, (seq, ids) in run.claims.items()},
    )
    yield (
        f"{base}:dead",
        {
            id: f"{b.task.host}\n{b.task.priority}\n{b.task.retries}\n{_text(b.task.payload)}"
            for id, b in run.dead.items()
        },
    )
    yield (
        f"{base}:why",
        {
            id: f"{b.reason}\n{b.tries}\n{b.at_ms}\n{b.node}\n{b.error}"
            for id, b in run.dead.items()
        },
    )
    yield f"{base}:responses", {id: text.decode() for id, text in run.responses.items()}
    yield f"{base}:reasons", {str(reason): str(n) for reason, n in run.reasons.items()}
    yield (
        f"{base}:outbox",
        {pack_row(request).decode(): float(order) for request, order in run.outbox.items()},
    )
    yield f"{base}:seen", seen_state(run.own_seen)
    yield from _task_state(run, base)


def _task_state(run: Run, base: str) -> Iterator[tuple[str, Any]]:
    book = run.of_tasks
    yield f"{base}:tasks", {task: value.decode() for task, value in book.living.items()}
    yield f"{base}:failed_tasks", {task: value.decode() for task, value in book.failed.items()}
    for name, index in (("open", book.open), ("fallen", book.fallen)):
        yield f"{base}:{name}", {mark: 0.0 for marks in index.values() for mark in marks}
    yield f"{base}:faults", {task: f"{at}\n{why}" for task, (at, why) in book.faults.items()}
    yield f"{base}:moved", {task: str(seq) for task, seq in book.moved.items()}
    yield f"{base}:idle", {task: float(seq) for task, seq in book.idle.items()}


def _text(payload: bytes | None) -> str:
    return (payload or b"").decode()


def _meta(run: Run) -> dict[str, str]:
    """The hash `meta` without what only a server knows; zeros are left out."""
    numbers = {
        "started": run.started,
        "finished": run.finished,
        "seq": run.seq,
        "cursor": run.cursor,
        **{f"refused:{reason}": total for reason, total in run.refused.items()},
        "wall": run.clock.wall,
        "log": run.clock.log,
        "concurrency": run.concurrency,
        "delay": run.delay,
        "fetch": run.config.fetch_timeout_ms,
        "step": clock_step_ms(run.config),
        "retries": run.config.max_retries,
        "deliveries": run.config.max_deliveries,
        "stopping": int(run.stopping),
        "shards": run.shards if run.shards > 1 else 0,
        "laid": int(bool(run.laid)),
        "paused": FAR if run.paused else 0,
        "tuned": run.tuned,
        "policy": policy_words(run.config),
        "tells": tells_words(run.config),
        "responses": run.config.kept_responses,
        **{name: run.counters[name] for name in ("items", "retried", "reaped", "fenced")},
    }
    texts = {"state": "done" if run.state is RunState.DONE else "running"}
    if run.paused:
        texts |= {"paused_by": AUTHOR.by, "paused_why": AUTHOR.why}
    return texts | {name: str(n) for name, n in numbers.items() if n}


def comparable(state: State, keys: ShardKeys, shard: MemoryShard) -> State:
    """A server's state in the form of `told`: shared sets of fingerprints are checked here."""
    state = {key: value for key, value in state.items() if not key.endswith(":beats")}
    generations = state.pop(keys.jobs, {})
    for job, generation in generations.items():
        seen = state.pop(keys.job_seen(job, generation), None)
        assert seen == seen_state(shard.job_seen.get(job)), job
    for key, meta in state.items():
        if key.endswith(":meta"):
            meta = {name: value for name, value in meta.items() if value not in ("0", "")}
            for name in ("ttl", "check", "check_part", "check_cursor"):
                meta.pop(name, None)
            meta.pop("seen", None)
            meta.pop("kind", None)
            if "stopping" in meta:
                meta["stopping"] = "1"
            state[key] = meta
        elif key.startswith(keys.host("")):
            state[key] = {
                name: value if name == "last" else float(value) for name, value in meta.items()
            }
    return state


def check_sound(state: State, keys: ShardKeys) -> None:
    """The invariants of the protocol on a server's state."""
    runs = [key.removesuffix(":meta") for key in state if key.endswith(":meta")]
    for base in runs:
        body = set(state.get(f"{base}:body", ()))
        owner, deadline = state.get(f"{base}:owner", {}), state.get(f"{base}:deadline", {})
        assert set(owner) == set(deadline), "who holds a request, and until when"
        prefix = f"{base}:queue:"
        queues = {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)}
        assert set(queues) == set(state.get(f"{base}:ready", ())), "ready: the hosts with a queue"
        places = [id for queue in queues.values() for id in queue]
        places += [*owner, *state.get(f"{base}:delayed", ())]
        places += [id for id in ("@seed", "@hold") if id in body and id not in owner]
        assert len(places) == len(set(places)), "no request stands in two places"
        assert set(places) == body, "every pending request stands somewhere, and nothing else does"
        meta, away = state[f"{base}:meta"], state.get(f"{base}:outbox")
        done = meta["state"] == "done"
        if "shards" in meta:
            assert not (done and (body or away)), "a run that is done has nothing left"
        else:
            assert done == (not body), "the end is exact"
            assert not away, "there is no other shard"
        dead = set(state.get(f"{base}:dead", ()))
        assert dead == set(state.get(f"{base}:why", ()))
        assert dead >= set(state.get(f"{base}:responses", ())), "of dead letters only"
        _check_tasks(state, base)


def _check_tasks(state: State, base: str) -> None:
    """What is known of tasks follows from what is pending and what is dead."""
    pending = {id for id in state.get(f"{base}:body", ()) if "." in id}
    away = {
        f"{row.split(chr(10), 2)[1]}>{int(order)}"
        for row, order in state.get(f"{base}:outbox", {}).items()
        if "." in row.split("\n", 2)[1]
    }
    assert set(state.get(f"{base}:open", ())) == pending | away, "open: all that is left of tasks"
    dead = {id for id in state.get(f"{base}:dead", ()) if "." in id}
    assert set(state.get(f"{base}:fallen", ())) == dead, "fallen: the dead letters of tasks"
    assert set(state.get(f"{base}:faults", ())) == {id.partition(".")[0] for id in dead}
    left = {id.partition(".")[0] for id in pending}
    living = state.get(f"{base}:tasks", ())
    for task in left:
        told = f"{task}@end" in state.get(f"{base}:body", ())
        assert not told or task in living, f"{task} has something left, and its end is told"
    if "shards" in state[f"{base}:meta"]:
        return
    for task in living:
        assert task in left, f"{task} has nothing left, and has not ended"
