"""A Hypothesis machine that walks all transitions in any order, steered to rare places."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.lua.twins import FINGERPRINTS, JOBS, REQUEST_CODES, Backend, Twins, new_request

from orbweb.errors import ConfigError, RunLost
from orbweb.frontier.base import (
    HOLD_ID,
    SEED_ID,
    Ack,
    Claim,
    Held,
    Nack,
    NackResult,
    NewRequest,
    RunConfig,
    RunState,
    SeedCode,
    Signal,
)
from orbweb.frontier.seen import SeenConfig, SeenKind

codes = st.lists(st.integers(0, REQUEST_CODES - 1), max_size=4)
runs = st.integers(0, 2)
nodes = st.sampled_from("ABC")
recent = st.integers(0, 11)
some_recent = st.lists(recent, min_size=1, max_size=4)
LEASE_MS = 2_000
MAX_DELIVERIES = 3

seen_configs = st.builds(
    SeenConfig,
    kind=st.sampled_from(
        [SeenKind.EXACT, SeenKind.COMPACT, SeenKind.SET, SeenKind.BLOOM, SeenKind.BLOOM]
    ),
    capacity=st.integers(1, 4),
    error_rate=st.sampled_from([0.4, 0.01]),
    max_layers=st.integers(1, 3),
    generation_ms=st.sampled_from([0, 0, 2_000]),
)

configs = st.builds(
    RunConfig,
    host_concurrency=st.integers(0, 3),
    host_delay_ms=st.sampled_from([0, 0, 500]),
    fetch_timeout_ms=st.just(3_000),
    lease_ms=st.sampled_from([6_000, 1_200]),
    max_retries=st.integers(0, 2),
    max_deliveries=st.integers(1, MAX_DELIVERIES),
    kept_responses=st.sampled_from([0, 1, 9, 9]),
    keep_alive=st.sampled_from([False] * 5 + [True]),
    polls=st.booleans(),
    tells_done=st.sampled_from([True, True, False]),
    tells_failed=st.sampled_from([True, True, False]),
    dedup_scope=st.sampled_from(["run", "spider"]),
    finished_ttl_ms=st.sampled_from([0, 4_000, 10**9]),
    run_ttl_ms=st.sampled_from([0, 100_000]),
    randomize_delay=st.booleans(),
    host_backlog_limit=st.sampled_from([0, 0, 1]),
    refused_pause_ms=st.just(300),
    circuit_threshold=st.sampled_from([0, 3]),
    circuit_cooldown_ms=st.just(700),
    autothrottle=st.sampled_from([False, False, True]),
    autothrottle_start_ms=st.just(250),
    autothrottle_longest_ms=st.just(2_000),
    require_approval=st.sampled_from([False, False, False, True]),
    unapproved_delay_ms=st.just(400),
)
signals = st.builds(
    Signal,
    host=st.sampled_from(["h0", "h1", "h2"]),
    good=st.sampled_from([0, 1, 4]),
    bad=st.sampled_from([0, 0, 1, 3]),
    streak=st.integers(0, 3),
    refused=st.sampled_from([0, 0, 0, 1]),
    latency_ms=st.sampled_from([0, 90, 900, 5_000]),
    crawl_delay_ms=st.sampled_from([-1, -1, -1, 0, 600]),
)
steering = st.sampled_from(
    [
        {"limit": 700, "limit_until": 0},
        {"limit": 700, "limit_until": 9_000},
        {"paused": 0},
        {"paused": 9_000},
        {"ceiling": 900, "ceiling_until": 0},
        {"ceiling": 900, "ceiling_until": 9_000},
        {},
    ]
)


class FrontierMachine(RuleBasedStateMachine):
    """A rule is one transition, or a few, on all backends; the whole state is compared after it."""

    backends: ClassVar[list[Backend]]
    counts: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.counts["sequences"] += 1
        self.twins = Twins(self.backends, self.counts)
        self.opened: set[int] = set()
        self.seq = dict.fromkeys("ABCD", 0)
        self.seed_seq = 0
        self.held: list[list[Held]] = [[], [], []]
        self.marks: dict[Held, int] = {}
        self.seed_token = ["none"] * 3

    # -- how rules speak of runs and leases

    def run(self, wanted: int) -> int:
        """The run, or one that was opened."""
        return wanted if wanted in self.opened else min(self.opened)

    def memory(self, run: int) -> Any:
        return self.twins.shard.runs.get(self.twins.memory[run]._base)

    def cursor(self, run: int) -> int:
        memory = self.memory(run)
        return memory.cursor if memory else 0

    def last_claim(self, run: int, node: str) -> int:
        memory = self.memory(run)
        return memory.claims.get(node, (0, []))[0] if memory else 0

    def pick(self, run: int, which: list[int]) -> list[Held]:
        memory = self.memory(run)
        tasks = memory.tasks if memory else {}
        alive = [
            held
            for held in self.held[run]
            if held.id in tasks and tasks[held.id].token == held.token
        ]
        stale = [held for held in self.held[run][-4:] if held not in alive]
        known = [*alive[-9:], *stale]
        return list(dict.fromkeys(known[i % len(known)] for i in which if known))

    def note(self, event: str) -> None:
        self.counts[event] += 1

    # -- rules

    @initialize(first=configs, second=configs, seeds=codes, one=seen_configs, other=seen_configs)
    def start(
        self,
        first: RunConfig,
        second: RunConfig,
        seeds: list[int],
        one: SeenConfig,
        other: SeenConfig,
    ) -> None:
        self.seen = [one, one, other]
        for run, config in ((0, first), (2, second)):
            self.open(run, config)
            self.take_seeding(run, "A")
            self.push_seeds(run, 1, False, [*seeds, 70, 71, 72, 73, 88])
            self.seq["A"] += 1
            for _ in range(1 + len(seeds) % 2):  # its answer may have been lost
                self.claim_as(run, "A", self.seq["A"], 3)

    @rule(ms=st.sampled_from([-3_000, 1, 100, 400, 900, 2_500, 60_000]))
    def time(self, ms: int) -> None:
        self.twins.wall = max(1, self.twins.wall + ms)

    @rule(run=runs, config=configs)
    def open(self, run: int, config: RunConfig) -> None:
        known = self.twins.memory[run]._base
        answer = self.twins.open(run, replace(config, seen=self.seen[run]))
        self.opened.add(run)
        self.note(f"open {answer.state}")
        if known and self.twins.memory[run]._base != known:
            self.note("new incarnation")

    @rule(run=runs, config=configs, kind=st.sampled_from(list(SeenKind)[:4]))
    def open_with_another_kind(self, run: int, config: RunConfig, kind: SeenKind) -> None:
        had = self.seen[run]
        shared = JOBS[run][0] in self.twins.shard.job_seen and config.dedup_scope == "spider"
        if kind is had.kind or not (shared or self.memory(run)):
            return
        config = replace(config, seen=replace(had, kind=kind), finished_ttl_ms=10**9)
        assert self.twins.open(run, config) is ConfigError
        self.note("another kind is refused")

    @rule(run=runs, code=st.integers(0, REQUEST_CODES - 1))
    def is_seen(self, run: int, code: int) -> None:
        request = new_request(code)
        if request.fingerprint is not None:
            found = self.twins.look_at_seen(
                self.run(run), "check", request.fingerprint, request.host
            )
            self.note(f"check {found}")

    @rule(
        run=runs,
        code=st.integers(0, REQUEST_CODES - 1),
        what=st.sampled_from(["url", "url", "host", "older"]),
        age=st.sampled_from([0, 1_000, 5_000]),
    )
    def forget(self, run: int, code: int, what: str, age: int) -> None:
        run, request = self.run(run), new_request(code)
        if what == "older":
            found = self.twins.look_at_seen(run, "forget older", age)
            self.note("forgotten by age" if found is not RunLost and found else "nothing is old")
        elif what == "host":
            self.twins.look_at_seen(run, "forget host", request.host)
        elif request.fingerprint is not None:
            found = self.twins.look_at_seen(run, "forget", request.fingerprint, request.host)
            self.note(f"forget {found}")

    @rule(run=runs, code=st.integers(0, 13))
    def a_host_is_forgotten_again_and_again(self, run: int, code: int) -> None:
        run, page = self.run(run), new_request(code)
        mark = FINGERPRINTS[code]
        for time in range(3):
            link = NewRequest(f"again{code}{time}", page.host, 0, mark, b"again")
            self.twins.step(run, "add", [link])
            self.twins.look_at_seen(run, "forget host", page.host)
            self.twins.look_at_seen(run, "check", mark, page.host)

    @rule(run=runs, node=nodes)
    def claim_seeding(self, run: int, node: str) -> None:
        self.take_seeding(self.run(run), node)

    def take_seeding(self, run: int, node: str) -> None:
        self.seed_seq += 1
        answer = self.twins.step(run, "seed_claim", node, 1_000 + self.seed_seq, LEASE_MS)
        if answer is not RunLost:
            self.note(f"seeding {answer.code}")
            if answer.code is SeedCode.OK:
                self.seed_token[run] = answer.token

    @rule(run=runs, ahead=st.sampled_from([0, 1, 1, 1, 2]), last=st.integers(0, 4), seeds=codes)
    def seed(self, run: int, ahead: int, last: int, seeds: list[int]) -> None:
        run = self.run(run)
        self.push_seeds(run, self.cursor(run) + ahead, last == 0, seeds)

    def push_seeds(self, run: int, batch: int, final: bool, seeds: list[int]) -> None:
        token, requests = self.seed_token[run], [new_request(code) for code in seeds]
        refused = [("offsite", sum(seeds) % 5), ("scheme", len(seeds))]
        answer = self.twins.step(run, "seed_push", token, batch, final, requests, refused)
        if answer is not RunLost:
            self.note(f"seeds {answer.code}")

    @rule(
        run=runs,
        node=nodes,
        want=st.integers(1, 5),
        kind=st.sampled_from(["new", "new", "new", "again", "again", "old"]),
    )
    def claim(self, run: int, node: str, want: int, kind: str) -> None:
        run = self.run(run)
        last = self.last_claim(run, node)
        self.seq[node] += 1
        seq = last - (kind == "old") if kind != "new" and last else self.seq[node]
        answer = self.claim_as(run, node, seq, want)
        if answer is not RunLost and answer.leases:
            self.note(f"claim {kind}")

    def claim_as(self, run: int, node: str, seq: int, want: int) -> Any:
        last = self.last_claim(run, node)
        answer = self.twins.step(run, "claim", node, seq, want, LEASE_MS)
        if isinstance(answer, Claim):
            self.held[run] += [lease.held for lease in answer.leases]
            self.marks |= {lease.held: lease.mark for lease in answer.leases}
            if seq > last:  # what is given again may stand beside what others took meanwhile
                self.check_claim(run, answer)
        return answer

    def check_claim(self, run: int, claim: Claim) -> None:
        """A claim never takes a host beyond its limit, whoever holds the other slots."""
        hosts = self.twins.shard.hosts
        for lease in claim.leases:
            slots, limit = (
                hosts.slots.get(lease.host, {}),
                hosts.weigh(self.memory(run), lease.host),
            )
            assert sum(end > hosts.clock.log for end in slots.values()) <= limit.most
            assert lease.deliveries <= MAX_DELIVERIES

    @rule(
        run=runs,
        which=some_recent,
        children=codes,
        failed=st.sampled_from([False, False, True]),
        items=st.integers(0, 2),
        redirected=codes,
        remembers=st.sampled_from([True, True, False]),
    )
    def ack(
        self,
        run: int,
        which: list[int],
        children: list[int],
        failed: bool,
        items: int,
        redirected: list[int],
        remembers: bool,
    ) -> None:
        run = self.run(run)
        held = self.pick(run, which)
        requests = [new_request(code) for code in redirected]
        targets = [(each.fingerprint, each.host) for each in requests if each.fingerprint]
        error = "broke\nhalf-way" if failed else ""
        reason = "callback_error" if failed else "done"
        acks = [
            Ack(id, token, reason, items, links, error, [("offsite", 2)], emitted, response)
            for n, (id, token) in enumerate(held)
            for links in [[new_request(code) for code in children[n::2]]]
            for emitted in [self.emitted(run, id, token) + (not remembers)]
            for response in [b"refused" if failed and items < 2 else b""]
        ]
        for (id, token), target in zip(held, targets, strict=False):
            self.note(f"visit {self.twins.step(run, 'visit', id, token, *target)}")
        answer = self.twins.step(run, "ack", acks)
        if answer is not RunLost:
            self.counts["acks"] += sum(answer)
            self.counts["acks fenced"] += len(answer) - sum(answer)

    def emitted(self, run: int, id: str, token: str) -> int:
        memory = self.memory(run)
        by, steps = memory.emitted.get(id, ("", 0)) if memory else ("", 0)
        return steps if by == token else 0

    @rule(run=runs)
    def release_seeding(self, run: int) -> None:
        run = self.run(run)
        release = Nack(SEED_ID, self.seed_token[run], counted=False)
        answer = self.twins.step(run, "nack", [release])
        if answer is not RunLost:
            self.note(f"release of the seeding {answer[0]}")

    @rule(run=runs, which=recent, children=codes, ahead=st.sampled_from([0, 1, 1, 1, 2]))
    def emit(self, run: int, which: int, children: list[int], ahead: int) -> None:
        run = self.run(run)
        for id, token in self.pick(run, [which]):
            step, links = self.emitted(run, id, token) + ahead, [new_request(c) for c in children]
            answer = self.twins.step(run, "emit", id, token, step, links)
            self.note(f"emit {answer}")

    @rule(
        run=runs,
        node=nodes,
        which=recent,
        children=codes,
        dies=st.sampled_from([False, False, True]),
    )
    def long_page_again(
        self, run: int, node: str, which: int, children: list[int], dies: bool
    ) -> None:
        """A long page that a redirect led to fails after its first step and comes again."""
        run = self.run(run)
        links = [new_request(code) for code in children]
        for id, token in self.pick(run, [which]):
            step = self.emitted(run, id, token) + 1
            self.twins.step(run, "emit", id, token, step, links)
            target = next(
                ((link.fingerprint, link.host) for link in links if link.fingerprint), (4_711, "")
            )
            self.twins.step(run, "visit", id, token, *target)
            self.twins.step(run, "nack", [Nack(id, token, reason="timeout", fatal=dies)])
            self.seq[node] += 1
            answer = self.claim_as(run, node, self.seq[node], 5)
            if isinstance(answer, Claim):
                for lease in answer.leases:
                    self.twins.step(run, "emit", *lease.held, 1, links)
                    self.twins.step(run, "visit", *lease.held, *target)

    @rule(
        run=runs,
        which=recent,
        number=st.integers(0, 20),
        dies=st.booleans(),
        linked=st.booleans(),
    )
    def page_behind_a_redirect(
        self, run: int, which: int, number: int, dies: bool, linked: bool
    ) -> None:
        """A redirect takes a page; there may be a link to it before the request ends, and after."""
        run = self.run(run)
        target = NewRequest(f"t{number}", f"h{number % 3}", 0, 7_000 + number, b"target")
        for id, token in self.pick(run, [which]):
            page = (target.fingerprint, target.host)
            self.note(f"visit {self.twins.step(run, 'visit', id, token, *page)}")
            if linked:
                self.twins.step(run, "add", [target])
            if dies:
                self.twins.step(run, "nack", [Nack(id, token, fatal=True, reason="not_retry")])
            else:
                self.twins.step(run, "ack", [Ack(id, token, "done")])
            self.twins.step(run, "add", [target])

    @rule(
        run=runs,
        which=some_recent,
        backoff_ms=st.sampled_from([0, 300, 3_000]),
        kind=st.sampled_from(["release", "retry", "retry", "fatal"]),
        payload=st.sampled_from([None, b"changed\npay"]),
    )
    def nack(
        self, run: int, which: list[int], backoff_ms: int, kind: str, payload: bytes | None
    ) -> None:
        run = self.run(run)
        nacks = [
            Nack(
                id, token, backoff_ms, kind != "release", kind == "fatal", "timeout", "why", payload
            )
            for id, token in self.pick(run, which)
        ]
        answer = self.twins.step(run, "nack", nacks)
        if answer is not RunLost:
            for result in answer:
                self.note(f"nack {kind} {result}")

    @rule(run=runs, node=nodes, which=some_recent, seeder=st.booleans())
    def renew(self, run: int, node: str, which: list[int], seeder: bool) -> None:
        run = self.run(run)
        held = self.pick(run, which)
        if seeder:
            held.append(Held(SEED_ID, self.seed_token[run]))
        self.twins.renew(run, node, LEASE_MS, held)

    @rule(run=runs, host=st.integers(0, 2), ms=st.sampled_from([100, 900, 2_500]))
    def hold_off(self, run: int, host: int, ms: int) -> None:
        self.twins.step(self.run(run), "hold_off", [(f"h{host}", ms)])

    @rule(run=runs, met=st.lists(signals, min_size=1, max_size=3), ms=st.sampled_from([0, 400]))
    def report(self, run: int, met: list[Signal], ms: int) -> None:
        run = self.run(run)
        for _ in range(3):
            self.twins.step(run, "report", met)
            self.twins.wall += ms

    @rule(
        run=runs,
        which=recent,
        known=st.booleans(),
        late=st.sampled_from([0, 3, 200]),
        slack=st.sampled_from([5, 320]),
    )
    def permit(self, run: int, which: int, known: bool, late: int, slack: int) -> None:
        run = self.run(run)
        self.twins.wall += late
        for held in self.pick(run, [which]):
            mark = self.marks.get(held, 0) if known else 0
            answer = self.twins.step(run, "permit", *held, mark, slack)
            if answer is not RunLost:
                self.marks[held] = answer.mark
                self.note(f"permit {answer.code} {'of the last' if mark else 'anew'}")

    @rule(host=st.integers(0, 2), fields=steering)
    def steer(self, host: int, fields: dict[str, int]) -> None:
        """An operator limits, pauses, approves, or takes that back."""
        self.twins.steer(f"h{host}", fields)

    @rule(run=runs)
    def pause(self, run: int) -> None:
        self.twins.pause(self.run(run))

    @rule(run=runs, host=st.integers(0, 2), node=nodes, opened_for=st.sampled_from([0, 900]))
    def a_host_falls_ill(self, run: int, host: int, node: str, opened_for: int) -> None:
        run = self.run(run)
        self.twins.step(run, "add", [new_request(code) for code in range(70, 84)])
        self.twins.step(run, "report", [Signal(f"h{host}", bad=3, streak=3)])
        self.twins.wall += opened_for
        self.seq[node] += 1
        self.claim_as(run, node, self.seq[node], 5)

    @rule(run=runs, node=nodes)
    def only_one_run_lives(self, run: int, node: str) -> None:
        run = self.run(run)
        for _ in range(31):
            self.twins.wall += 1_000
            self.twins.renew(run, node, LEASE_MS, [])
        self.twins.step(run, "add", [new_request(code) for code in range(70, 84)])
        self.seq[node] += 1
        self.claim_as(run, node, self.seq[node], 9)
        self.seq[node] += 1
        self.claim_as(run, node, self.seq[node], 9)

    @rule(
        run=runs,
        node=nodes,
        want=st.integers(1, 3),
        times=st.integers(2, 5),
        had=st.sampled_from([0, 0, 300]),
        pause=st.sampled_from([20, 300]),
    )
    def nodes_take_turns(
        self, run: int, node: str, want: int, times: int, had: int, pause: int
    ) -> None:
        """Several nodes are known to live, and one of them asks again and again."""
        run = self.run(run)
        if had:
            self.twins.give_load(run, node, had)
        for name in "ABC":
            self.twins.renew(run, name, LEASE_MS, [])
            if name != node:
                self.seq[name] += 1
                self.claim_as(run, name, self.seq[name], 9)
        for _ in range(times):
            self.twins.step(run, "add", [new_request(code) for code in range(70, 84)])
            self.seq[node] += 1
            answer = self.claim_as(run, node, self.seq[node], want)
            if isinstance(answer, Claim):
                self.twins.step(run, "ack", [Ack(*each.held, "done") for each in answer.leases])
                self.twins.wall += pause
        if self.memory(run):
            self.note(f"turns {len(self.memory(run).loads) > 0}")

    @rule(run=runs, which=some_recent)
    def fetched(self, run: int, which: list[int]) -> None:
        run = self.run(run)
        self.twins.step(run, "fetched", self.pick(run, which))

    @rule(run=runs, requests=codes)
    def add(self, run: int, requests: list[int]) -> None:
        run = self.run(run)
        memory = self.memory(run)
        was_done = memory is not None and memory.state is RunState.DONE
        added = self.twins.step(run, "add", [new_request(code) for code in requests])
        if was_done and added is not RunLost and added:
            self.note("add reopened")

    @rule(run=runs, drop=st.sampled_from([False, False, True]), also=st.integers(0, 13))
    def redrive(self, run: int, drop: bool, also: int) -> None:
        run = self.run(run)
        memory = self.memory(run)
        ids = [*(list(memory.dead)[:2] if memory else ()), f"u{also}"]
        found = self.twins.step(run, "redrive", ids, drop=drop)
        if found is not RunLost and found:
            self.note("redriven")

    @rule(run=runs, node=nodes)
    def silence(self, run: int, node: str) -> None:
        """Nobody answers until leases run out."""
        run = self.run(run)
        before = self.memory(run).counters["reaped"] if self.memory(run) else 0
        for _ in range(4):
            self.twins.wall += 1_000
            self.seq["D"] += 1
            self.claim_as(run, "D", self.seq["D"], 1)
        if again := self.last_claim(run, node):
            self.claim_as(run, node, again, 1)
        if self.memory(run) and self.memory(run).counters["reaped"] > before:
            self.note("leases expired")
            if self.memory(run).reasons["poison"]:
                self.note("poison")

    @rule(run=runs, node=nodes, anew=st.sampled_from([False, False, True]))
    def drain(self, run: int, node: str, anew: bool) -> None:
        """Steer to where walks rarely come: the end of a run."""
        run = self.run(run)
        if self.memory(run) is None:
            return
        if HOLD_ID in self.memory(run).tasks:
            self.twins.step(run, "stop")
        for _ in range(9):
            if self.memory(run).state is RunState.DONE:
                self.note("end")
                if anew:
                    self.twins.wall += 5_000
                    self.open(run, self.memory(run).config)
                return
            self.twins.wall += 1_000
            if SEED_ID in self.memory(run).tasks:
                self.take_seeding(run, node)
                self.push_seeds(run, self.cursor(run) + 1, True, [])
            self.seq[node] += 1
            answer = self.claim_as(run, node, self.seq[node], 9)
            self.twins.step(run, "ack", [Ack(*lease.held, "done") for lease in answer.leases])

    @rule(run=runs, what=st.sampled_from(["status", "fsck", "stop", "reset", "collect", "collect"]))
    def operate(self, run: int, what: str) -> None:
        run = self.run(run)
        if what == "fsck":
            self.twins.fsck(run)
        elif what == "collect":
            self.twins.wall += 60_000
            self.twins.collect()
        elif what == "reset":
            # What a job has seen is forgotten only here where no other run of the job uses it.
            self.twins.reset(run, seen=run == 2 or len(self.opened & {0, 1}) < 2)
            self.note("reset")
        else:
            self.twins.step(run, what)

    @invariant()
    def nothing_differs(self) -> None:
        self.twins.compare()

    def teardown(self) -> None:
        for memory in self.twins.shard.runs.values():
            seen = memory.seen
            exact = seen.config.kind is SeenKind.EXACT
            self.counts["buckets split"] += exact and seen.parts[-1].count > 2
            self.counts["layers"] += seen.parts[-1].layer > 0
            self.counts["generations"] += len(seen.parts) > seen.parts[-1].layer + 1
            self.counts["sure"] += bool(seen.sure)
            self.counts["nack dead"] += any(b.reason == "timeout" for b in memory.dead.values())


RARE = (
    "open new",
    "open running",
    "open done",
    "new incarnation",
    "collected",
    "reset",
    "seeding ok",
    "seeding busy",
    "seeding done",
    "seeds ok",
    "seeds duplicate",
    "seeds gap",
    "seeds stale",
    "claim new",
    "claim again",
    "acks",
    "acks fenced",
    "emit True",
    "emit False",
    *(f"nack retry {result}" for result in NackResult),
    f"nack release {NackResult.REQUEUED}",
    f"nack fatal {NackResult.DEAD}",
    "leases expired",
    "poison",
    "add reopened",
    "redriven",
    "end",
    "buckets split",
    "layers",
    "generations",
    "sure",
    "check [0]",
    "check [1]",
    "forget -1",
    "forget 0",
    "forget 1",
    "forgotten by age",
    "another kind is refused",
    "permit granted of the last",
    "permit granted anew",
    "permit later anew",
    "permit lost anew",
    "turns True",
)
"""What a good walk has met; the test fails when one of them was never reached."""
