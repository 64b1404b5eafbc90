"""A torn write of what is said beside the requests: no cut state is wrong, the next call mends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.lua.book_mutants import TORN_WORD_MUTANTS
from tests.lua.books import DAY_MS, RUN
from tests.lua.direct import DirectClient, run_now
from tests.lua.mutants import Mutant
from tests.lua.state import Dumper, State
from tests.lua.torn import KINDS, Commands, aof_of, page, parse_aof
from tests.lua.twins import KEYS, Scripts, build_scripts
from tests.servers import Server

from orbweb.frontier import totals as totals_module
from orbweb.frontier.base import Ack, HostPace, RunConfig, Tuning
from orbweb.frontier.totals import RunTotals
from orbweb.frontier.valkey import ScriptCaller, ValkeyFrontier

LEASE_MS = 2_000
CONFIG = RunConfig(lease_ms=6_000, host_delay_ms=500, host_concurrency=0)
PACES = {"h0": HostPace(2_000), "h1": HostPace(None, 0, 1)}
LIMIT = ("limit", "700", "limit_until", "9000", "limit_by", "ann")
NEXT_LIMIT = ("limit", "900", "limit_until", "20000", "limit_by", "bob")
ENTRIES = f"{KEYS.tag}:entries"


@pytest.fixture(autouse=True)
def few_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals_module, "FOLD_FROM", 1)


class Store:
    """A server on which acts are played."""

    def __init__(self, client: DirectClient, scripts: Scripts) -> None:
        self.client = client
        self.caller = ScriptCaller(client)  # type: ignore[arg-type]
        self.frontier = ValkeyFrontier(
            client,  # type: ignore[arg-type]
            prefix=KEYS.prefix,
            job="j",
            new_epoch=lambda: "e",
        )
        self.totals = RunTotals(client, KEYS.prefix, "j", "")  # type: ignore[arg-type]
        self.totals.attach("e")
        for caller in (self.caller, self.frontier.caller, self.totals._caller):
            caller.scripts = scripts

    def at(self, wall: int) -> Store:
        self.caller.time = self.frontier.caller.time = wall
        return self

    def call(self, name: str, *words: Any, keys: Sequence[str] = ()) -> Any:
        return run_now(self.caller.call(name, (KEYS.tag, *keys), words))

    def run(self, name: str, *words: Any) -> Any:
        if self.frontier.run is None and name != "open":
            self.frontier.attach("e")
        return run_now(getattr(self.frontier, name)(*words))

    def state(self) -> State:
        return run_now(Dumper(self.client).raw())


@dataclass(frozen=True)
class Act:
    """A call, and the one that comes next and mends what was torn."""

    name: str
    call: Callable[[Store], Any]
    then: Callable[[Store], Any] | None = None
    """None: only what must hold at any instant is looked at."""


def tune(
    wall: int, version: int, paces: dict[str, HostPace], delay_ms: int, node: str = "A"
) -> Any:
    tuning = Tuning(version, replace(CONFIG, host_delay_ms=delay_ms), paces, node)
    return lambda store: store.at(wall).run("tune", tuning)


def lead(wall: int, who: str, lease: int = LEASE_MS, rank: int = 1) -> Any:
    return lambda store: store.at(wall).call("lead", "judge", who, lease, rank)


def tell(node: str, number: int) -> Any:
    return lambda store: store.call("tell", node, number, 0, 1_000, keys=[RUN.base])


def fold(store: Store) -> int:
    return run_now(store.totals.fold(lambda found: b"%d" % sum(map(int, found))))


def steer(wall: int, fields: Sequence[str], entry: str) -> Any:
    return lambda store: store.at(wall).call("steer", "h0", "=", entry, "line", *fields)


def configure(made_from: int) -> Any:
    words = (made_from, f"v{made_from + 1}", f"line {made_from + 1}", 0)
    return lambda store: store.at(5_000).call("configure", *words)


def acknowledge(wall: int, node: str) -> Any:
    return lambda store: store.at(wall).call("acknowledge", node, "says")


def take(store: Store) -> Any:
    return store.at(9_000).call("take", "taken", "h1", 2, "", keys=[RUN.base, ENTRIES])


def fetch(store: Store) -> None:
    """One page of each host is fetched, so that both must be waited for."""
    claim = store.at(1_200).run("claim", "A", 1, 9, LEASE_MS)
    store.run("ack", [Ack(*lease.held, "done") for lease in claim.leases])


def again(name: str, call: Callable[[Store], Any]) -> Act:
    """An act that is mended when the same is done again."""
    return Act(name, call, call)


def set_up(store: Store) -> None:
    store.at(1_000).run("open", CONFIG)
    store.run("add", [page(f"p{n}") for n in range(6)])
    fetch(store)
    store.client.call("RPUSH", ENTRIES, "e1", "e2", "e3")


ACTS = (
    Act("a run with hosts that wait", set_up),
    again("tune", tune(1_300, 1, PACES, 900)),
    again("tune for longer", tune(1_400, 2, PACES | {"h0": HostPace(4_000)}, 5_000)),
    again("tune for less", tune(1_500, 3, {"h1": PACES["h1"]}, 100)),
    again("lead", lead(2_000, "a")),
    again("be the deputy", lead(2_100, "b")),
    again("lead in its place", lead(2_200, "b", rank=2)),
    again("put down", lambda store: store.call("record", "judge", 2_200, "words")),
    again("give back", lead(2_400, "b", 0)),
    *(again("tell", tell(node, number)) for node, number in (("a", 1), ("b", 2), ("c", 4))),
    again("fold", fold),
    *(again("tell", tell(node, number)) for node, number in (("d", 8), ("e", 16))),
    again("fold more", fold),
    again("limit", steer(3_000, LIMIT, "asked")),
    again("another limit", steer(3_000, NEXT_LIMIT, "approved")),
    again("no limit", steer(3_000, [w for name in LIMIT[::2] for w in (name, "")], "")),
    again("configure", configure(0)),
    again("configure again", configure(1)),
    Act("acknowledge", acknowledge(5_000, "a"), acknowledge(5_001 + DAY_MS, "b")),
    Act("take", take),
)


def torn(server: Server, scratch: DirectClient, scripts: Scripts) -> Iterator[str]:
    """Cut each act after each of its writes, let the next call come; tells what is wrong."""
    client = DirectClient(server.socket)
    try:
        yield from cut_each(client, aof_of(server), scratch, scripts)
    finally:
        client.close()


def cut_each(
    client: DirectClient, aof: Path, scratch: DirectClient, scripts: Scripts
) -> Iterator[str]:
    store, other = Store(client, scripts), Store(scratch, scripts)
    history: Commands = []
    read = aof.stat().st_size
    for act in ACTS:
        before = store.state()
        act.call(store)
        after, data = store.state(), aof.read_bytes()
        commands, read = parse_aof(data[read:]), len(data)
        mended = []
        for cut in range(len(commands), 0, -1):
            play(scratch, [*history, *commands[:cut]])
            where = f"{act.name} cut after {cut} of {len(commands)} writes"
            for fault in wrong(before, after, other.state()):
                yield f"{where}: {fault}"
            if act.then is None:
                continue
            act.then(other)
            mended.append(settled(other.state()))
            if mended[-1] != mended[0]:
                yield f"{where}: the next call leaves {mended[-1]}, not {mended[0]}"
        history += commands


def play(client: DirectClient, commands: Commands) -> None:
    client.call("FLUSHALL")
    for command in commands:
        client.send(*command)
    for _ in commands:
        client.answer()


def wrong(before: State, after: State, state: State) -> Iterator[str]:
    """What must hold at any instant, whatever is cut."""
    counts = [sum(map(int, each.get(RUN.counts, {}).values())) for each in (before, after, state)]
    if counts[2] not in counts[:2]:
        yield f"{counts[2]} is counted, not one of {counts[:2]}"
    for key, names in ((KEYS.host("h0"), LIMIT[::2]), (KEYS.tuned, ("h0",)), (KEYS.tuned, ("h1",))):
        words = [[each.get(key, {}).get(name) for name in names] for each in (before, after, state)]
        if words[2] not in words[:2]:
            yield f"{key} has {words[2]}, not one of {words[:2]}"
    version = int(state.get(KEYS.config, {}).get("version", 0))
    missed = {f"line {n + 1}" for n in range(version)} - set(state.get(KEYS.config_history, ()))
    if missed:
        yield f"version {version} is there without {missed}"
    bodies = "".join(state.get(RUN.body, {}).values())
    waiting = state.get(ENTRIES, ())
    lost = [each for each in before.get(ENTRIES, ()) if each not in waiting and each not in bodies]
    if lost:
        yield f"entries are lost: {lost}"


def settled(state: State) -> State:
    """A state without what a call that is made twice may leave twice."""
    lines = (KEYS.audit, KEYS.config_history)
    return state | {key: set(state[key]) for key in lines if key in state}


@pytest.mark.parametrize("server", KINDS, indirect=True)
def test_after_any_torn_word_the_next_call_mends(server: Server, scratch: DirectClient) -> None:
    assert list(torn(server, scratch, build_scripts())) == []


@pytest.mark.parametrize("mutant", TORN_WORD_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_wrong_order_of_writes_of_words_is_noticed(
    mutant: Mutant, server: Server, scratch: DirectClient
) -> None:
    assert next(torn(server, scratch, build_scripts(mutant.build())), None) is not None
