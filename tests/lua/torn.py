"""All ways in which a transition can be torn: each prefix of what it wrote, then the repair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import hiredis
import pytest
from tests.lua.direct import DirectClient, run_now
from tests.lua.state import Dumper, check_sound
from tests.lua.twins import KEYS
from tests.servers import Server, redis_binary

from orbweb.frontier.base import Ack, Held, Nack, NewRequest, RunConfig, RunState, SeedCode
from orbweb.frontier.scripts import Script
from orbweb.frontier.valkey import ValkeyFrontier

LEASE_MS = 2_000
CONFIG = RunConfig(
    lease_ms=6_000,
    max_retries=1,
    max_deliveries=2,
    host_concurrency=0,
    tells_done=True,
    tells_failed=True,
)
LIST = "list"
SEEDS = ("p0", "p1", "p2", "p3")
LINKS = {f"p{n}": (f"p{2 * n + 4}", f"p{2 * n + 5}", f"p{n // 2}") for n in range(5)}
LINKS |= {"t1.task": ("t1.p20", "t1.p21"), "t1.p20": ("t1.p22",)}
Commands = list[list[bytes]]
KINDS = [
    "valkey",
    pytest.param(
        "redis",
        marks=pytest.mark.skipif(
            redis_binary() is None, reason="redis-server (Debian package) is not installed"
        ),
    ),
]
"""Servers whose log is torn: parameters of the fixture `server`."""


def aof_of(server: Server) -> Path:
    return max((server.directory / "appendonlydir").glob("*.incr.aof"))


def page(id: str) -> NewRequest:
    number = int(id.rpartition("p")[2])
    fingerprint = pow(7, 25 + number, 2**63)
    return NewRequest(id, f"h{number % 2}", number % 3, fingerprint, id.encode())


def links(id: str) -> list[NewRequest]:
    return [page(link) for link in LINKS.get(id, ())]


@dataclass(frozen=True, slots=True)
class Written:
    """One transition: what it wrote, and what was settled before it."""

    name: str
    commands: Commands
    known: frozenset[str]
    done: frozenset[str]
    ending: frozenset[str]
    """Requests that this transition finishes: gone or not, their links must be known."""


class Recorder:
    """Runs transitions on a server with an AOF and keeps what each one wrote."""

    def __init__(self, client: DirectClient, aof: Path, scripts: dict[str, Script]) -> None:
        self.client = client
        self.aof = aof
        self.frontier = ValkeyFrontier(client, prefix="p", job="j")  # type: ignore[arg-type]
        self.frontier.caller.scripts = scripts
        self.wall = 1_000
        self.seq = 0
        self.known: set[str] = set()
        self.done: set[str] = set()
        self.written: list[Written] = []
        self.read = aof.stat().st_size

    def step(self, name: str, *args: object, adds: Sequence[str] = (), ends: Sequence[str] = ()):
        self.frontier.caller.time = self.wall
        before = frozenset(self.known), frozenset(self.done)
        answer = run_now(getattr(self.frontier, name)(*args))
        data = self.aof.read_bytes()
        commands = parse_aof(data[self.read :])
        self.read = len(data)
        self.written.append(Written(name, commands, *before, frozenset(ends)))
        self.known.update(adds)
        self.done.update(ends)
        return answer

    def push_tasks(self, *names: str) -> None:
        """Let tasks wait in their list: a write of its own."""
        for name in names:
            self.client.call("RPUSH", KEYS.task_list(LIST), f'{name} "{name}"')
        data = self.aof.read_bytes()
        commands = parse_aof(data[self.read :])
        self.read = len(data)
        known = frozenset(self.known), frozenset(self.done)
        self.written.append(Written("push_tasks", commands, *known, frozenset()))
        self.known.update(f"{name}{what}" for name in names for what in (".task", "@end"))

    def claim(self, want: int = 1) -> list[Held]:
        self.seq += 1
        claim = self.step("claim", "A", self.seq, want, LEASE_MS)
        return [lease.held for lease in claim.leases]

    def ack(self, *held: Held) -> None:
        acks = [Ack(*one, "done", 1, links(one.id)) for one in held]
        found = [link for one in held for link in LINKS.get(one.id, ())]
        self.step("ack", acks, adds=found, ends=[one.id for one in held])

    def play(self) -> None:
        """A little of everything that moves requests."""
        self.step("open", CONFIG)
        token = self.step("seed_claim", "A", 1, LEASE_MS).token
        self.step("seed_push", token, 1, True, [page(id) for id in SEEDS], adds=SEEDS)
        one, two = self.claim(2)
        self.ack(one)
        self.step("nack", [Nack(*two, 300, reason="timeout")])
        (three,) = self.claim()
        self.step("emit", *three, 1, links(three.id), adds=LINKS[three.id])
        self.step("fetched", [three])
        self.wall += 900
        four, five = self.claim(2)
        self.step("nack", [Nack(*four, reason="timeout"), Nack(*five, counted=False)])
        self.ack(three)
        self.ack(*self.claim(2))
        (failed,) = self.claim()
        found = links(failed.id)
        ack = Ack(*failed, "callback_error", 0, found, "broke", response=b"refused")
        self.step("ack", [ack], adds=[link.id for link in found])
        for _ in range(7):  # nobody answers: the first one is given up
            self.wall += 1_000
            self.claim(1)
        dead = run_now(self.frontier.status()).reasons
        assert {"poison", "callback_error"} <= set(dead), dead
        self.step("redrive", [failed.id])
        self.step("add", [page("p14")], adds=["p14"])
        self.wall += 3_000
        held = self.claim(3)
        self.step("nack", [Nack(*one, fatal=True, reason="dns") for one in held])
        self.step("stop")

    def play_tasks(self) -> None:
        """The life of two tasks: one is given up, retried and told again."""
        self.step("open", CONFIG)
        token = self.step("seed_claim", "A", 1, LEASE_MS).token
        self.push_tasks("t1", "t2")
        self.step("take_tasks", token, 1, False, 5, LIST)
        self.step("take_tasks", token, 2, True, 5, LIST)
        one, two = self.claim(2)
        self.step("emit", *one, 1, links(one.id)[:1], adds=["t1.p20"])
        ack = Ack(*one, "done", 0, links(one.id), emitted=1)
        self.step("ack", [ack], adds=LINKS[one.id], ends=[one.id])
        self.step("nack", [Nack(*two, fatal=True, reason="dns")])
        for _ in range(4):
            for held in self.claim(9):
                if held.id == "t1.p21":
                    self.step("nack", [Nack(*held, fatal=True, reason="dns")])
                else:
                    self.ack(held)
        assert run_now(self.frontier.status()).reasons["task_failed"] == 2
        self.step("redrive", ["t1.p21", "t2.task"])
        for _ in range(3):
            self.ack(*self.claim(9))
        assert run_now(self.frontier.status()).state is RunState.DONE


def parse_aof(data: bytes) -> Commands:
    """The writes in a piece of an append-only file, without the frames of transactions."""
    reader = hiredis.Reader()
    reader.feed(data)
    commands = list(iter(reader.gets, False))
    frames = (b"MULTI", b"EXEC", b"SELECT")
    return [command for command in commands if command[0].upper() not in frames]


def torn_faults(
    written: Sequence[Written],
    client: DirectClient,
    scripts: dict[str, Script],
    epoch: str,
    seeds: Sequence[str] = SEEDS,
) -> Iterator[str]:
    """Cut each transition after each of its writes, repair, end the crawl; tells what is wrong."""
    history: Commands = []
    for transition in written:
        for cut in range(1, len(transition.commands) + 1):
            client.call("FLUSHALL")
            for command in [*history, *transition.commands[:cut]]:
                client.send(*command)
            for _ in range(len(history) + cut):
                client.answer()
            where = f"{transition.name} cut after {cut} of {len(transition.commands)} writes"
            whole = cut == len(transition.commands)
            for fault in _repair(transition, client, scripts, epoch, whole, seeds):
                yield f"{where}: {fault}"
        history += transition.commands


def _repair(
    written: Written,
    client: DirectClient,
    scripts: dict[str, Script],
    epoch: str,
    whole: bool,
    seeds: Sequence[str],
) -> Iterator[str]:
    frontier = ValkeyFrontier(client, prefix="p", job="j", now=50_000)  # type: ignore[arg-type]
    frontier.caller.scripts = scripts
    if written.name == "open" and not whole:
        run_now(frontier.open(CONFIG))  # nobody has joined a run whose making was torn
    else:
        frontier.attach(epoch)
    repairs = run_now(frontier.fsck())
    if whole and repairs:
        yield f"{repairs} repairs in a sound state"
    if again := run_now(frontier.fsck()):
        yield f"the second repair finds {again}"
    try:
        raw = run_now(Dumper(client).raw())
        # A bucket of fingerprints may keep a superfluous copy, and their number may lag behind.
        check_sound({key: value for key, value in raw.items() if ":seen" not in key}, KEYS)
    except AssertionError as error:
        yield f"unsound: {error}"
    try:
        done = written.done | drain(frontier, seeds)
    except AssertionError as error:
        yield str(error)
        return
    raw = run_now(Dumper(client).raw())
    dead = set(raw.get(f"{frontier.run.base}:dead", ())) if frontier.run else set()
    if lost := (written.known | set(seeds)) - done - dead - written.ending:
        yield f"lost {lost}"
    for id in done | written.ending:
        if lost := set(LINKS.get(id, ())) - done - dead - written.ending:
            yield f"{id} is done, its links {lost} are lost"


def drain(frontier: ValkeyFrontier, names: Sequence[str] = SEEDS) -> set[str]:
    """Crawl what is left; returns what was finished."""
    wall, done = 60_000, set[str]()
    for seq in range(1_000, 1_100):
        wall += 1_000
        frontier.caller.time = wall
        seeding = run_now(frontier.seed_claim("Z", seq, LEASE_MS))
        if seeding.code is SeedCode.OK:
            run_now(frontier.take_tasks(seeding.token, seeding.cursor + 1, False, 9, LIST))
            seeds = [page(id) for id in names]
            run_now(frontier.seed_push(seeding.token, seeding.cursor + 2, True, seeds))
        claim = run_now(frontier.claim("Z", seq, 100, LEASE_MS))
        run_now(frontier.ack([Ack(*one.held, "done", 0, links(one.id)) for one in claim.leases]))
        done |= {lease.id for lease in claim.leases}
        if claim.state is RunState.DONE:
            return done
    raise AssertionError(f"the run does not end: {run_now(frontier.status())}")
