"""The machine once more, with what changes a run from outside while nodes work on it.

Live values, the register of rates, start entries of others, exports and imports.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.lua.imports import Entries, restore
from tests.lua.machine import codes, configs, nodes, runs, steering
from tests.lua.steered import SteeredMachine
from tests.lua.tasks import TASK_RARE
from tests.lua.twins import FINGERPRINTS, new_request

from orbweb.errors import RunLost
from orbweb.frontier.base import (
    HOLD_ID,
    SAID_MS,
    SEED_ID,
    Ack,
    Claim,
    HostPace,
    Nack,
    RunConfig,
    Tuning,
)
from orbweb.frontier.operator import UNTOUCHED

paces = st.builds(
    HostPace,
    delay_ms=st.sampled_from([None, 0, 100, 2_000]),
    delay_until_ms=st.sampled_from([0, 0, 9_000, 50_000]),
    concurrency=st.sampled_from([None, 0, 1, 2]),
    concurrency_until_ms=st.sampled_from([0, 0, 9_000, 50_000]),
)
words = st.dictionaries(st.sampled_from(["h0", "h1", "h2"]), paces, max_size=2)
entries = st.sampled_from([UNTOUCHED, "", "asked", "approved"])


class TunedMachine(SteeredMachine):
    """Meets every event of `TUNED_RARE` in more than one walk of two hundred."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = Entries(self.twins)
        self.learned = 0

    @rule(
        run=runs,
        node=nodes,
        config=configs,
        ahead=st.sampled_from([-1, 0, 1, 1]),
        of_store=words,
        others=words,
        repeats=st.sampled_from([False, False, True]),
    )
    def tune(
        self,
        run: int,
        node: str,
        config: RunConfig,
        ahead: int,
        of_store: dict[str, HostPace],
        others: dict[str, HostPace],
        repeats: bool,
    ) -> None:
        run = self.run(run)
        self.tell(run, ahead, Tuning(0, config, of_store, node, others, repeats))

    def tell(self, run: int, ahead: int, tuning: Tuning) -> bool:
        """Tune a run, with so much later values than it has; whether that was done."""
        memory = self.memory(run)
        version = max(0, memory.tuned + ahead) if memory else 1
        answer = self.twins.step(run, "tune", replace(tuning, version=version))
        self.note(f"tuned {answer}")
        return answer is True

    @rule(
        run=runs,
        of=runs,
        node=nodes,
        had=configs,
        config=configs,
        of_store=words,
        others=words,
        held_ms=st.sampled_from([0, 0, 900]),
        pause=st.sampled_from([20, 300, 900]),
        again=st.sampled_from([0, 1, 2]),
    )
    def hosts_wait_while_values_change(
        self,
        run: int,
        of: int,
        node: str,
        had: RunConfig,
        config: RunConfig,
        of_store: dict[str, HostPace],
        others: dict[str, HostPace],
        held_ms: int,
        pause: int,
        again: int,
    ) -> None:
        """A run fetches with one gap, then another one is to hold, there or in another run."""
        run, of = self.run(run), self.run(of)
        self.tell(of, 1, Tuning(0, had, {}, "D"))
        self.twins.step(of, "add", [new_request(code) for code in range(70, 84)])
        self.claim_and_finish(of, node)
        if held_ms:
            self.twins.step(of, "hold_off", [("h0", held_ms), ("h1", held_ms)])
        self.twins.wall += pause
        self.tell(run, 1, Tuning(0, config, of_store, node, others))
        for _ in range(again):
            self.tell(run, 0, Tuning(0, config, of_store, "D", repeats=True))
            self.twins.wall += pause
        if again:
            self.tell(run, -1, Tuning(0, had, {}, "C"))
        self.claim_and_finish(of, node)

    @rule(
        run=runs,
        node=nodes,
        config=configs,
        one=paces,
        other=paces,
        alike=st.booleans(),
        silent=st.booleans(),
        late=st.sampled_from([0, 9_000, 50_000]),
    )
    def nodes_speak_of_a_host(
        self,
        run: int,
        node: str,
        config: RunConfig,
        one: HostPace,
        other: HostPace,
        alike: bool,
        silent: bool,
        late: int,
    ) -> None:
        """Two nodes say something of one host, perhaps the same with other ends; then one only."""
        run = self.run(run)
        if alike:
            ends = (other.delay_until_ms, other.concurrency_until_ms)
            other = one._replace(delay_until_ms=ends[0], concurrency_until_ms=ends[1])
        self.tell(run, 1, Tuning(0, config, {}, "A", {"h0": one}))
        self.tell(run, 0, Tuning(0, config, {}, "B", {"h0": other}, repeats=True))
        self.twins.step(run, "add", [new_request(code) for code in range(70, 84)])
        self.twins.wall = max(self.twins.wall, late)
        self.seq[node] += 1
        self.claim_as(run, node, self.seq[node], 5)
        if silent:
            self.silence(run, node)
        else:
            self.tell(run, 0, Tuning(0, config, node="A", repeats=True))
            self.claim_and_finish(run, node)

    @rule(run=runs, node=nodes, host=st.integers(0, 2), fields=steering)
    def a_host_that_waits_is_steered_for_a_time(
        self, run: int, node: str, host: int, fields: dict[str, int]
    ) -> None:
        run = self.run(run)
        self.twins.step(run, "add", [new_request(code) for code in range(70, 84)])
        self.claim_and_finish(run, node)
        self.twins.steer(f"h{host}", fields)
        self.twins.compare()
        self.twins.steer(f"h{host}", {})

    def claim_and_finish(self, run: int, node: str) -> None:
        self.seq[node] += 1
        answer = self.claim_as(run, node, self.seq[node], 9)
        if isinstance(answer, Claim):
            self.twins.step(run, "ack", [Ack(*lease.held, "done") for lease in answer.leases])

    @rule(run=runs, node=nodes, config=configs, others=words, few=st.sampled_from([0, 0, 1]))
    def a_word_is_not_repeated(
        self, run: int, node: str, config: RunConfig, others: dict[str, HostPace], few: int
    ) -> None:
        """A node that has said something is silent until it does not count any more."""
        run = self.run(run)
        if not self.tell(run, 1, Tuning(0, config, {}, node, others)):
            return
        self.twins.pass_time(SAID_MS - few)
        self.twins.step(run, "add", [new_request(code) for code in range(70, 84)])
        self.claim_and_finish(run, node)
        self.tell(run, 0, Tuning(0, config, node="D", repeats=True))
        if node not in self.twins.shard.hosts.said:
            self.note("a word has ended")

    @rule(host=st.integers(0, 2), fields=steering, expected=entries, entry=entries)
    def judge_a_rate(self, host: int, fields: dict[str, int], expected: str, entry: str) -> None:
        done, *_ = self.twins.steer(f"h{host}", fields, (expected, entry), f"{expected}>{entry}")
        self.note(f"rate judged {done}")

    @rule(
        run=runs,
        names=st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True),
        kind=st.sampled_from(["list", "zset", "set"]),
        most=st.integers(1, 3),
        node=nodes,
        ended=st.booleans(),
    )
    def take_entries(
        self, run: int, names: list[int], kind: str, most: int, node: str, ended: bool
    ) -> None:
        """Entries that others have pushed become a request."""
        run = self.run(run)
        if ended:
            self.to_its_end(run, node)
        self.entries.put(kind, names if kind != "set" else names[:1])
        taken = self.entries.take(run, kind, most)
        self.note(f"entries of a {kind} {taken is not RunLost and taken > 0}")

    @rule(
        run=runs,
        numbers=st.lists(st.integers(0, 5), min_size=1, max_size=3, unique=True),
        pages=st.integers(0, 2),
        linked=st.booleans(),
        node=nodes,
        ended=st.booleans(),
    )
    def requests_of_another_store_come_back(
        self, run: int, numbers: list[int], pages: int, linked: bool, node: str, ended: bool
    ) -> None:
        run = self.run(run)
        if ended:
            self.to_its_end(run, node)
        added = restore(self.twins, run, numbers, pages, linked)
        self.note(f"restored {added is not RunLost and added > 0}")

    @rule(
        run=runs,
        some=st.lists(st.integers(0, 13), min_size=1, max_size=6),
        apart=st.booleans(),
    )
    def learn(self, run: int, some: list[int], apart: bool) -> None:
        marks = [FINGERPRINTS[number] for number in some]
        for each in [[mark] for mark in marks] if apart else [marks]:
            found = self.twins.look_at_seen(self.run(run), "learn", *each)
            self.note(f"learned {found is not RunLost and found > 0}")

    @rule(run=runs)
    def learn_until_a_part_is_full_and_as_much_again(self, run: int) -> None:
        run = self.run(run)
        memory = self.memory(run)
        last = memory.seen.parts[-1] if memory else None
        if last is None or not 0 < last.capacity <= 16:
            return
        for much in (last.capacity - last.count, last.capacity):
            marks = [10**6 + self.learned + number for number in range(much)]
            self.learned += len(marks)
            self.twins.look_at_seen(run, "learn", *marks)

    @rule(run=runs, node=nodes, dies=st.booleans(), late=st.booleans(), children=codes)
    def an_export_runs(
        self, run: int, node: str, dies: bool, late: bool, children: list[int]
    ) -> None:
        """What is pending when an export begins is found by it, though it leaves meanwhile."""
        run = self.run(run)
        if self.memory(run) is None:
            return
        self.twins.journal(run, "begin")
        pending = set(self.memory(run).tasks) - {SEED_ID, HOLD_ID}
        self.seq[node] += 1
        answer = self.claim_as(run, node, self.seq[node], 5)
        for lease in answer.leases if isinstance(answer, Claim) else ():
            if dies:
                nack = Nack(*lease.held, fatal=True, reason="timeout")
                self.twins.step(run, "nack", [nack])
            else:
                links = [new_request(code) for code in children]
                self.twins.step(run, "ack", [Ack(*lease.held, "done", 0, links)])
        for noted in self.twins.noted(run):
            missed = pending - set(self.memory(run).tasks) - noted
            assert not missed, f"an export never meets {missed}"
        if late:
            self.twins.wall += 60_000
        assert self.twins.journal(run, "go_on") == int(not late)
        self.twins.journal(run, "end")
        self.note(f"an export {'was late' if late else 'came to its end'}")


TUNED_RARE = (
    *TASK_RARE,
    "tuned True",
    "tuned False",
    "a word has ended",
    "rate judged 1",
    "rate judged 0",
    *(f"entries of a {kind} True" for kind in ("list", "zset", "set")),
    "restored True",
    "learned True",
    "an export was late",
    "an export came to its end",
)
"""See `RARE`."""
