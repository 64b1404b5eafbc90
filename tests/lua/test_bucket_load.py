"""A store whose int-sets were left fuller by an earlier release goes on, one split a new URL."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lua.direct import DirectClient, run_now
from tests.lua.state import Dumper, fold_seen
from tests.servers import Server

from orbweb.frontier.base import RunConfig
from orbweb.frontier.scripts import Script, assemble, lua_text, script
from orbweb.frontier.valkey import ValkeyFrontier

SPREADS = 0x9E3779B97F4A7C15
MARKS = [n * SPREADS % 2**64 - 2**63 for n in range(1, 3_601)]
LOAD, OLD_LOAD = 128, 192
"""Numbers of an int-set on the average, now and in an earlier release."""


@pytest.fixture
def client() -> Iterator[DirectClient]:
    server = Server("valkey")
    client = DirectClient(server.socket)
    yield client
    client.close()
    server.stop()


def test_fuller_buckets_split_until_they_are_as_full_as_others(client: DirectClient) -> None:
    frontier = ValkeyFrontier(client, prefix="p", job="a")  # type: ignore[arg-type]
    run_now(frontier.open(RunConfig()))
    assert frontier.run
    base = frontier.run.seen
    text = lua_text("seen_exact").replace(f"BUCKET_LOAD = {LOAD}", f"BUCKET_LOAD = {OLD_LOAD}")
    old, new = assemble("seen_learn", "exact", {"seen_exact": text}), script("seen_learn")

    def learn(one: Script, marks: list[int]) -> int:
        return int(client.call("EVAL", one.source, 2, frontier.shard.tag, base, "", *marks))

    def buckets() -> int:
        return int(client.call("HGET", base, "size"))

    assert learn(old, MARKS[:3_000]) == 3_000
    assert buckets() == -(-3_000 // OLD_LOAD)
    assert learn(new, MARKS[3_000:3_005]) == 5
    assert buckets() == -(-3_000 // OLD_LOAD) + 5
    assert learn(new, MARKS[3_005:]) == 595
    assert buckets() == -(-3_600 // LOAD)
    assert learn(new, MARKS) == 0
    folded = fold_seen(run_now(Dumper(client).raw()))[base]
    assert folded["1"][-1] == set(MARKS)
