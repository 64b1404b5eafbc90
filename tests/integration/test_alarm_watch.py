"""One of many judges, whoever it is: fences, successors, outages of the store; on a real server."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.servers import Server

from orbweb.alarms.channels.base import Message, NotDelivered
from orbweb.alarms.desk import ROLE
from orbweb.alarms.facts import Facts, NodeFacts, RunFacts
from orbweb.alarms.heartbeat import Heartbeat
from orbweb.alarms.notices import Letter, Policy, Silence
from orbweb.alarms.post import Post
from orbweb.alarms.rules import limits_of
from orbweb.alarms.states import Alarm, State
from orbweb.alarms.watch import Watch, WatchTools
from orbweb.errors import StoreUnavailable
from orbweb.frontier.notes import NoteBook, NoteKind
from orbweb.frontier.roles import Role
from orbweb.frontier.server import connect
from orbweb.settings import load_settings


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture
async def role(server: Server) -> AsyncIterator[Callable[..., Role]]:
    """Roles of one test, each over a connection of its own."""
    clients = []
    prefix = f"t{random.randrange(10**9)}"

    def make(now: int | None = None) -> Role:
        clients.append(connect(server.url, 1.0))
        return Role(clients[-1], prefix, ROLE, now=now)

    yield make
    for client in clients:
        await client.aclose()


NOW = 1_800_000_000_000


async def test_one_has_the_role_until_its_lease_ends_and_each_holder_has_a_higher_fence(
    role: Callable[..., Role],
) -> None:
    first = await role(NOW).lead("a", 1000)
    assert first.fence > 0
    refused = await role(NOW + 999).lead("b", 1000)
    assert (refused.fence, refused.left_ms, refused.deputy) == (0, 1, True)
    assert (await role(NOW + 999).lead("c", 1000)).deputy is False
    second = await role(NOW + 1000).lead("c", 1000)
    assert second.fence > first.fence
    assert not await role().record(first.fence, b"late")
    assert await role().record(second.fence, b"mine")
    assert await role().recorded() == b"mine"


async def test_a_holder_that_comes_in_time_keeps_its_fence(role: Callable[..., Role]) -> None:
    first = await role(NOW).lead("a", 1000)
    again = await role(NOW + 900).lead("a", 1000)
    assert again.fence == first.fence
    assert (await role(NOW + 1800).lead("b", 1000)).fence == 0


async def test_a_higher_rank_takes_the_role_at_once_and_a_lower_one_waits(
    role: Callable[..., Role],
) -> None:
    node = await role(NOW).lead("node", 1000, 1)
    watch = await role(NOW + 1).lead("watch", 1000, 2)
    assert watch.fence > node.fence
    assert (await role(NOW + 2).lead("node", 1000, 1)).fence == 0
    await role(NOW + 3).give_back("watch")
    assert (await role(NOW + 4).lead("node", 1000, 1)).fence > watch.fence


async def test_a_clock_that_is_set_back_makes_no_lease_longer(role: Callable[..., Role]) -> None:
    await role(NOW).lead("a", 1000)
    refused = await role(NOW - 3_600_000).lead("b", 1000)
    assert refused.left_ms == 1000
    assert (await role(NOW + 1000).lead("b", 1000)).fence > 0


async def test_notes_have_the_servers_time_and_are_bounded(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect(server.url, 1.0)
    notes = NoteBook(client, f"t{random.randrange(10**9)}")
    monkeypatch.setattr("orbweb.frontier.notes.MOST", 2)
    for name in "abc":
        await notes.leave(NoteKind.CONSUMER, name, {"busy": 1.5})
        await asyncio.sleep(0.002)
    found = await notes.read(NoteKind.CONSUMER)
    assert [(note.name, note.said) for note in found] == [
        ("c", {"busy": 1.5}),
        ("b", {"busy": 1.5}),
    ]
    assert abs(found[0].at_ms - time.time() * 1000) < 5000
    assert await notes.take_back(NoteKind.CONSUMER, "c")
    assert [note.name for note in await notes.read(NoteKind.CONSUMER)] == ["b"]
    await client.aclose()


# -- whole watches


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbweb.alarms.watch.SHORTEST_LEASE_SECONDS", 0.6)
    monkeypatch.setattr("orbweb.alarms.watch.LAST_SECONDS", 0.3)
    monkeypatch.setattr("orbweb.alarms.post.FIRST_PAUSE_MS", 500)


class Inbox:
    """See `Channel`: keeps what it is sent; refuses or hangs when told to."""

    name = "people"
    language = "en"

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.refusing = False
        self.slow = 0.0

    async def send(self, message: Message) -> str:
        await asyncio.sleep(self.slow)
        if self.refusing:
            raise NotDelivered("errcode 310000")
        self.messages.append(message)
        return "ok"

    def told(self, state: str = "firing") -> list[str]:
        return [
            alarm["rule"]
            for message in self.messages
            if message.data["state"] == state
            for alarm in message.data["alarms"]
        ]


class Gate:
    """A role whose store can be taken away."""

    def __init__(self, role: Role) -> None:
        self.open = True
        self._role = role

    def __getattr__(self, name: str) -> Callable[..., Awaitable[object]]:
        async def call(*args: object) -> object:
            if not self.open:
                raise StoreUnavailable("connection refused")
            return await getattr(self._role, name)(*args)  # type: ignore[no-any-return]

        return call


class World:
    """What all watches of a test see, and how they are told."""

    def __init__(self, role: Callable[..., Role]) -> None:
        self.role = role
        self.inbox = Inbox()
        self.down = False
        self.silences: list[Silence] = []
        self.gates: list[Gate] = []
        self.watches: list[Watch] = []
        self.settings = load_settings(
            directory=Path("/nowhere"), environ={},
            overrides={"ALERTS_STORE_DOWN": "0.3", "ALERTS_WINDOW": "1"},
        )  # fmt: skip
        self.policy = Policy(("people",), group_wait_ms=0)

    async def look(self) -> Facts:
        sinks = {"SqlPipeline": [60.0, "gone"]} if self.down else {}
        node = NodeFacts("n1", 10, {"sinks": sinks})
        return Facts(int(time.time() * 1000), (RunFacts("books", "r1", nodes=(node,)),))

    def watch(self, *, rank: int = 1, inbox: Inbox | None = None, **words: object) -> Watch:
        async def silences() -> list[Silence]:
            return self.silences

        gate = Gate(self.role())
        self.gates.append(gate)
        tools = WatchTools(
            seat=gate, look=self.look, silences=silences,  # type: ignore[arg-type]
            limits=lambda: limits_of(self.settings), policy=lambda: self.policy,
            post=Post([inbox or self.inbox], "auto"), who=f"w{len(self.watches)}", rank=rank,
            interval_seconds=0.05, calm_ms=lambda: 100, clock=time.monotonic,
            wall_ms=lambda: int(time.time() * 1000),
        )  # fmt: skip
        self.watches.append(Watch(replace(tools, **words)))  # type: ignore[arg-type]
        return self.watches[-1]

    @asynccontextmanager
    async def at_work(self, *watches: Watch) -> AsyncIterator[list[asyncio.Task[None]]]:
        tasks = [asyncio.create_task(watch.run()) for watch in watches]
        try:
            yield tasks
        finally:
            for watch in watches:
                watch.stop()
            for task in tasks:
                if not task.cancelled():
                    await asyncio.wait([task], timeout=8)


async def until(condition: Callable[[], bool], seconds: float = 6.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        await asyncio.sleep(0.01)


async def test_five_watches_tell_once(role: Callable[..., Role]) -> None:
    world = World(role)
    async with world.at_work(*(world.watch() for _ in range(5))):
        await until(lambda: any(watch.fence for watch in world.watches))
        assert sum(bool(watch.fence) for watch in world.watches) == 1
        world.down = True
        await until(lambda: bool(world.inbox.told()))
        world.down = False
        await until(lambda: bool(world.inbox.told("resolved")))
        await asyncio.sleep(0.3)
    assert world.inbox.told() == ["sink_down"]
    assert world.inbox.told("resolved") == ["sink_down"]


async def test_a_successor_neither_repeats_nor_forgets(role: Callable[..., Role]) -> None:
    world = World(role)
    first, second = world.watch(), world.watch()
    async with world.at_work(first) as (task,):
        await until(lambda: bool(first.fence))
        world.down = True
        await until(lambda: bool(world.inbox.told()))
        await asyncio.sleep(0.2)
        task.cancel()  # as if it were killed: the role is not given back
        async with world.at_work(second):
            await until(lambda: bool(second.fence))
            await asyncio.sleep(0.3)
            assert world.inbox.told() == ["sink_down"]
            world.down = False
            await until(lambda: bool(world.inbox.told("resolved")))
    assert world.inbox.told() == ["sink_down"]


class Deadly(Inbox):
    """Whoever tells it something dies before that can be noted."""

    async def send(self, message: Message) -> str:
        await super().send(message)
        return await asyncio.Future()


async def test_a_letter_whose_judge_dies_before_the_note_comes_again_with_the_same_id(
    role: Callable[..., Role],
) -> None:
    world, deadly = World(role), Deadly()
    first, second = world.watch(inbox=deadly), world.watch()
    world.down = True
    async with world.at_work(first) as (task,):
        await until(lambda: bool(deadly.told()))
        task.cancel()
        async with world.at_work(second):
            await until(lambda: bool(world.inbox.told()))
    assert [message.id for message in world.inbox.messages] == [deadly.messages[0].id]
    assert world.inbox.messages[0].text == deadly.messages[0].text


async def test_a_holder_that_was_asleep_tells_nothing_more(role: Callable[..., Role]) -> None:
    world = World(role)
    asleep, woken, late = asyncio.Event(), asyncio.Event(), Inbox()

    async def look_slowly() -> Facts:
        facts = await world.look()
        asleep.set()
        await woken.wait()
        return facts

    world.down = True
    sleeper, other = world.watch(inbox=late, look=look_slowly), world.watch(rank=2)
    async with world.at_work(sleeper):
        await asleep.wait()
        async with world.at_work(other):
            await until(lambda: bool(world.inbox.told()))
            woken.set()
            await until(lambda: not sleeper.fence)
            await asyncio.sleep(0.2)
            assert late.messages == []
    assert world.inbox.told() == ["sink_down"]


async def test_a_letter_that_is_refused_waits_for_the_next_judge_too(
    role: Callable[..., Role],
) -> None:
    world = World(role)
    first = world.watch()
    world.inbox.refusing, world.down = True, True
    async with world.at_work(first):
        await until(lambda: bool(first.fence))
        await asyncio.sleep(0.3)
    assert world.inbox.messages == []
    world.inbox.refusing = False
    second = world.watch()
    async with world.at_work(second):
        await until(lambda: bool(world.inbox.told()), 8.0)
    assert world.inbox.told() == ["sink_down"]


async def test_each_try_is_counted_and_a_store_that_is_away_holds_up_no_letter(
    role: Callable[..., Role],
) -> None:
    world, tries = World(role), Counter[tuple[str, str]]()

    async def count(channel: str, result: str) -> None:
        tries[channel, result] += 1
        raise StoreUnavailable("connection refused")

    world.inbox.refusing, world.down = True, True
    watch = world.watch(post=Post([world.inbox], "auto", count=count))
    async with world.at_work(watch):
        await until(lambda: tries["people", "refused"] > 0)
        world.inbox.refusing = False
        await until(lambda: tries["people", "sent"] > 0, 8.0)
    assert world.inbox.told() == ["sink_down"]


async def test_a_letter_that_breaks_its_channel_holds_up_none_behind_it() -> None:
    class Fussy(Inbox):
        async def send(self, message: Message) -> str:
            if message.id == "bad":
                raise UnicodeEncodeError("utf-8", "\udc80", 0, 1, "surrogates not allowed")
            return await super().send(message)

    inbox, limits = Fussy(), limits_of(load_settings(directory=Path("/nowhere"), environ={}))
    post = Post([inbox], "auto")
    alarm = Alarm("backlog", "books", "", "", NOW, State.FIRING)
    letters = [Letter(id, inbox.name, False, [alarm]) for id in ("bad", "good")]
    ((channel, letter),) = post.due(letters, NOW)
    assert not await post.deliver(channel, letter, limits, NOW)
    assert (letter.tries, letter.error) == (1, "UnicodeEncodeError")
    ((channel, letter),) = post.due(letters, NOW + 1)
    assert await post.deliver(channel, letter, limits, NOW + 1)
    assert letter.id == "good"


async def test_a_slow_channel_holds_up_neither_the_others_nor_the_judge(
    role: Callable[..., Role],
) -> None:
    world = World(role)
    slow, quick = Inbox(), Inbox()
    slow.name, slow.slow = "slow", 60.0
    world.policy = Policy(("slow", "people"), group_wait_ms=0)
    watch = world.watch(post=Post([slow, quick], "auto"))
    world.down = True
    async with world.at_work(watch):
        await until(lambda: bool(quick.told()))
        world.down = False
        await until(lambda: bool(quick.told("resolved")))
    assert slow.messages == []


async def test_of_a_silenced_alarm_nobody_is_told(role: Callable[..., Role]) -> None:
    world = World(role)
    world.silences, world.down = [Silence("sink_down/books", 2**50)], True
    async with world.at_work(world.watch()):
        await asyncio.sleep(0.4)
        assert world.inbox.messages == []
        world.silences = []
        await until(lambda: bool(world.inbox.told()))


async def test_an_outage_of_the_store_is_told_by_its_holder_alone_and_its_end_too(
    role: Callable[..., Role],
) -> None:
    world = World(role)
    async with world.at_work(*(world.watch() for _ in range(4))):
        await until(lambda: any(watch.fence for watch in world.watches))
        await asyncio.sleep(0.3)
        for gate in world.gates:
            gate.open = False
        await until(lambda: bool(world.inbox.told()))
        await asyncio.sleep(0.8)
        for gate in world.gates:
            gate.open = True
        await until(lambda: bool(world.inbox.told("resolved")))
        await asyncio.sleep(0.3)
    assert world.inbox.told() == ["store_unreachable"]
    assert world.inbox.told("resolved") == ["store_unreachable"]


async def test_a_holder_that_ends_as_the_store_is_back_tells_the_end_of_the_outage(
    role: Callable[..., Role], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbweb.alarms.watch.RETRY_SECONDS", 60.0)
    world = World(role)
    async with world.at_work(world.watch(interval_seconds=0.5)):
        await until(lambda: any(watch.fence for watch in world.watches))
        world.gates[0].open = False
        await until(lambda: bool(world.inbox.told()))
        world.gates[0].open = True
    assert world.inbox.told("resolved") == ["store_unreachable"]


async def test_when_the_holder_dies_with_the_store_its_deputy_tells_later(
    role: Callable[..., Role], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbweb.alarms.outage.DEPUTY_SECONDS", 0.5)
    world = World(role)
    watches = [world.watch() for _ in range(4)]
    async with world.at_work(*watches) as tasks:
        await until(lambda: any(watch.fence for watch in watches))
        await asyncio.sleep(0.8)  # all have asked once more: one of them is the deputy
        holder = next(place for place, watch in enumerate(watches) if watch.fence)
        for gate in world.gates:
            gate.open = False
        tasks[holder].cancel()
        await until(lambda: bool(world.inbox.told()))
        await asyncio.sleep(0.8)
    assert world.inbox.told() == ["store_unreachable"]


async def test_a_store_that_hangs_does_not_hold_up_the_end(
    role: Callable[..., Role], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbweb.alarms.watch.LAST_LOOK_SECONDS", 0.2)
    world = World(role)
    hangs = asyncio.Event()

    async def hang() -> Facts:
        hangs.set()
        await asyncio.sleep(60)
        raise AssertionError("it was not cut off")

    watch = world.watch(look=hang)
    async with world.at_work(watch) as (task,):
        await hangs.wait()
        began = time.monotonic()
        watch.stop()
        await asyncio.wait([task], timeout=5)
        assert task.done()
        assert time.monotonic() - began < 2.0


async def test_a_look_that_fails_leaves_the_fleet_to_another(role: Callable[..., Role]) -> None:
    world = World(role)

    async def fail() -> Facts:
        raise ValueError("this fleet cannot be read")

    first, second = world.watch(look=fail, inbox=Inbox()), world.watch()
    world.down = True
    async with world.at_work(first, second):
        await until(lambda: bool(world.inbox.told()))
        assert not first.fence


async def test_a_heartbeat_goes_outside_only_while_alarms_can_be_told(
    role: Callable[..., Role],
) -> None:
    beats: list[float] = []

    class Outside(Heartbeat):
        async def beat(self) -> None:
            beats.append(time.monotonic())

    world = World(role)
    outside = Outside("http://unused.example", 0.01, time.monotonic)
    watch = world.watch(heartbeat=outside)
    async with world.at_work(watch):
        await until(lambda: len(beats) > 2)
        for gate in world.gates:
            gate.open = False
        await asyncio.sleep(0.2)
        count = len(beats)
        await asyncio.sleep(0.3)
        assert len(beats) == count
        for gate in world.gates:
            gate.open = True
