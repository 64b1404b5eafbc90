"""What `orbweb dedup stats` shows of a run that is spread over shards."""

from __future__ import annotations

import json

import pytest

from orbweb.cli import dedup
from orbweb.frontier.keys import ShardKeys
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.frontier.seen_places import SeenPlace, SeenShard
from orbweb.frontier.seen_state import PartState, SeenState
from orbweb.frontier.weight import Weight
from orbweb.settings import Settings

BLOOM = SeenConfig(SeenKind.BLOOM, capacity=100, error_rate=0.01, max_layers=1)


def shard(number: int, count: int, hosts: dict[str, int]) -> SeenShard:
    (layer,) = BLOOM.layers()
    part = PartState(1, count, layer.size, layer.capacity, 0, 0)
    state = SeenState(SeenKind.BLOOM, BLOOM.plan(), 0, (part,), 2, hosts, 0, 0)
    return SeenShard(ShardKeys("t", number), "base", state, {})


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> SeenPlace:
    place = SeenPlace("Shop", None, (shard(0, 10, {"a": 1}), shard(1, 120, {"b": 2})))
    monkeypatch.setattr(dedup, "ask", lambda settings, question: (place, Weight(2_000, 3_000)))
    return place


def test_shards_add_up_and_the_fullest_tells_how_full_it_is(
    place: SeenPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    dedup.stats(Settings({}, {}), "Shop", None, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "Shop · all runs: 130 seen URLs, kind bloom",
        "  memory of the store: about 3.0 kB for seen URLs, 2.0 kB for what waits",
        "  capacity 200, the fullest shard 120.0% used",
        "  OVER-FULL: it takes more and more new pages for seen ones",
    ]
    assert "  shard 0: 10, 10.0% used" in lines
    assert "  shard 1: 120, 120.0% used" in lines
    assert lines[-3:] == [
        "  4 URLs kept apart exactly (dedup='exact')",
        "  a was forgotten 1 time",
        "  b was forgotten 2 times",
    ]


def test_programs_get_each_shard(place: SeenPlace, capsys: pytest.CaptureFixture[str]) -> None:
    dedup.stats(Settings({}, {}), "Shop", None, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["seen"], found["fill"], found["over_full"]) == (130, 1.2, True)
    assert (found["seen_bytes"], found["waiting_bytes"]) == (3_000, 2_000)
    assert [(each["seen"], each["fill"]) for each in found["shards"]] == [(10, 0.1), (120, 1.2)]
