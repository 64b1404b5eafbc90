"""A Hypothesis machine for what the fleet puts down beside the requests.

Roles and what their holders put down, counts of nodes, live values and who goes by them. There is
no frontier in memory that knows of these: a model of a few lines stands here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.lua.direct import run_now
from tests.lua.state import State
from tests.lua.twins import KEYS, Backend, difference

from orbweb.frontier.valkey import ScriptCaller

names = st.sampled_from("abc")
RUN = KEYS.run("j", "", "e")
ROLE = KEYS.role("judge")
DAY_MS = 86_400_000
LASTING = (ROLE, f"{ROLE}:record", RUN.counts)
"""Keys that go by themselves when nobody writes them any more."""


class BookMachine(RuleBasedStateMachine):
    """A rule is one transition on all servers; all keys are compared after it."""

    backends: ClassVar[list[Backend]]
    counts: ClassVar[Counter[str]]

    def __init__(self) -> None:
        super().__init__()
        self.counts["sequences"] += 1
        self.wall = 1_000
        self.role: dict[str, Any] = {}
        self.fences: list[int] = []
        self.record = ""
        self.living: set[str] = set()
        self.told: dict[str, int] = {}
        self.version = 0
        self.history: list[str] = []
        self.acks: dict[str, int] = {}
        for backend in self.backends:
            backend.client.call("FLUSHALL")

    def call(self, name: str, *words: Any, run: bool = False) -> list[int]:
        """One transition on all servers: what all of them answer."""
        answers = []
        for backend in self.backends:
            caller = ScriptCaller(backend.client, self.wall)  # type: ignore[arg-type]
            caller.scripts = backend.scripts
            keys = (KEYS.tag, RUN.base) if run else (KEYS.tag,)
            answer = run_now(caller.call(name, keys, words))
            answers.append(
                [int(word) for word in (answer if isinstance(answer, list) else [answer])]
            )
        self.counts["ops"] += 1
        assert all(answer == answers[0] for answer in answers), answers
        return answers[0]

    @rule(ms=st.sampled_from([-3_000, 1, 400, 900, 2_500, DAY_MS + 1]))
    def time(self, ms: int) -> None:
        self.wall = max(1, self.wall + ms)

    # -- roles

    @rule(who=names, lease=st.sampled_from([500, 1_000, 1_000, 5_000]), rank=st.integers(1, 2))
    def lead(self, who: str, lease: int, rank: int) -> None:
        role, wall = self.role, self.wall
        left = min(role.get("until", 0) - wall, role.get("lease", 0))
        had, mine = role.get("holder"), role.get("holder") == who
        deputy_left = role.get("deputy_until", 0) - wall
        expected = [0, left, 0, wall]
        if not had or mine or left <= 0 or rank > role["rank"]:
            fence = role["fence"] if mine else max(role.get("fence", 0) + 1, wall)
            role |= {"holder": who, "until": wall + lease, "lease": lease, "rank": rank}
            role["fence"] = fence
            self._leave_deputy(who)
            expected = [fence, lease, 0, wall]
            assert mine or not self.fences or fence > max(self.fences), "a fence is used once"
            self.fences.append(fence)
            self.note(f"leads {'again' if mine else 'anew'}")
            if had and not mine and left > 0:
                self.note("a higher rank leads")
        elif role.get("deputy") == who or deputy_left <= 0 or deputy_left > lease:
            role |= {"deputy": who, "deputy_until": wall + lease}
            expected[2] = 1
            self.note("deputy")
        else:
            self.note("neither")
        assert self.call("lead", "judge", who, lease, rank) == expected

    @rule(who=names)
    def give_back(self, who: str) -> None:
        self.call("lead", "judge", who, 0, 0)
        if self.role.get("holder") == who:
            for name in ("holder", "until", "lease", "rank"):
                del self.role[name]
            self.note("given back")
        self._leave_deputy(who)

    @rule(
        whose=st.lists(names, min_size=2, max_size=4),
        leases=st.lists(st.sampled_from([500, 1_000, 5_000]), min_size=4, max_size=4),
        pauses=st.lists(st.sampled_from([-3_000, 0, 400, 900]), min_size=4, max_size=4),
        gone=st.sampled_from(["", "first", "last"]),
        last_rank=st.integers(1, 2),
    )
    def several_ask(
        self, whose: list[str], leases: list[int], pauses: list[int], gone: str, last_rank: int
    ) -> None:
        for who, lease, pause in zip(whose, leases, pauses, strict=False):
            self.lead(who, lease, 1)
            self.time(pause)
        self.lead(whose[-1], leases[-1], last_rank)
        if gone:
            self.give_back(whose[0 if gone == "first" else -1])

    def _leave_deputy(self, who: str) -> None:
        if self.role.get("deputy") == who:
            del self.role["deputy"], self.role["deputy_until"]

    @rule(ago=st.sampled_from([0, 0, 1, 2]), words=st.sampled_from(["one", "other"]))
    def put_down(self, ago: int, words: str) -> None:
        """A holder, of now or of before, puts something down."""
        if ago >= len(self.fences):
            return
        fence = self.fences[-1 - ago]
        done = fence == self.role["fence"]
        if done:
            self.record = words
        assert self.call("record", "judge", fence, words) == [int(done)]
        self.note(f"put down {done}")

    # -- counts

    @rule(node=names, number=st.integers(1, 3), again=st.booleans())
    def tell(self, node: str, number: int, again: bool) -> None:
        done = not again or node in self.told
        if done:
            self.told[node] = number
        assert self.call("tell", node, number, int(again), 1_000_000, run=True) == [int(done)]
        self.note(f"told {done}")

    @rule(node=names)
    def comes_or_goes(self, node: str) -> None:
        self.living ^= {node}
        for backend in self.backends:
            words = (
                ("HSET", RUN.beats, node, "beat")
                if node in self.living
                else ("HDEL", RUN.beats, node)
            )
            backend.client.call(*words)

    @rule(
        nodes=st.lists(names, min_size=1, max_size=3, unique=True),
        late=st.sampled_from(["", "", "", "sum", "node"]),
    )
    def fold(self, nodes: Sequence[str], late: str) -> None:
        """Nodes' counts become part of the sum; `late`: something has changed meanwhile."""
        had, found = self.told.get("", 0), {node: self.told.get(node, 9) for node in nodes}
        added = had + sum(found.values())
        before = had + (late == "sum") or ""
        read = {node: number + (late == "node") for node, number in found.items()}
        done = not late and not self.living & set(nodes) and set(nodes) <= set(self.told)
        pairs = [word for pair in read.items() for word in pair]
        assert self.call("fold", before, added, *pairs, run=True) == [int(done)]
        if done:
            self.told[""] = added
            for node in nodes:
                del self.told[node]
        self.note(f"folded {done}")

    # -- live values

    @rule(ahead=st.sampled_from([0, 0, 0, -1, 1]), wait=st.sampled_from([0, 0, -1, 1]))
    def configure(self, ahead: int, wait: int) -> None:
        made_from, line = self.version + ahead, f"line {len(self.history)}"
        not_before = self.wall + wait if wait else 0
        done = ahead == 0 and wait <= 0
        if done:
            self.version += 1
            self.history.append(line)
        expected = [int(done), self.version, self.wall]
        assert self.call("configure", made_from, f"v{made_from}", line, not_before) == expected
        self.note(f"configured {done}")

    @rule(node=names)
    def acknowledge(self, node: str) -> None:
        self.acks[node] = self.wall
        silent = [each for each, at in self.acks.items() if at <= self.wall - DAY_MS]
        for each in silent:
            del self.acks[each]
            self.note("an old ack is forgotten")
        assert self.call("acknowledge", node, "says") == [1]

    # -- all keys

    @invariant()
    def nothing_differs(self) -> None:
        expected = self.state()
        for backend in self.backends:
            state = run_now(backend.dumper.raw())
            if state != expected:
                raise AssertionError(difference(expected, state))
            for key in LASTING:
                assert key not in state or backend.client.call("PTTL", key) > 0, f"{key} stays"

    def state(self) -> State:
        """What each server must hold."""
        config = {"version": str(self.version), "values": f"v{self.version - 1}"}
        state: State = {
            ROLE: {name: str(value) for name, value in self.role.items()},
            f"{ROLE}:record": self.record.encode(),
            RUN.beats: dict.fromkeys(self.living, "beat"),
            RUN.counts: {name: str(number) for name, number in self.told.items()},
            KEYS.config: config if self.version else {},
            KEYS.config_history: self.history,
            KEYS.config_acks: {node: f"{at}\nsays" for node, at in self.acks.items()},
            f"{KEYS.config}:acked": {node: float(at) for node, at in self.acks.items()},
        }
        return {key: value for key, value in state.items() if value}

    def note(self, event: str) -> None:
        self.counts[event] += 1


BOOK_RARE = (
    "leads anew",
    "leads again",
    "a higher rank leads",
    "deputy",
    "neither",
    "given back",
    *(f"put down {done}" for done in (True, False)),
    *(f"told {done}" for done in (True, False)),
    *(f"folded {done}" for done in (True, False)),
    *(f"configured {done}" for done in (True, False)),
    "an old ack is forgotten",
)
"""What walks must have met."""
