"""The Lua on real servers does, key by key, what the frontier in memory does."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.lua.books import BOOK_RARE, BookMachine
from tests.lua.direct import DirectClient
from tests.lua.tuned import TUNED_RARE, TunedMachine
from tests.lua.twins import Backend, Scripts, build_scripts
from tests.servers import Server, redis_binary

from orbweb.frontier.scripts import TRANSITIONS, Script

BESIDE_REQUESTS = {"lead", "record", "tell", "fold", "configure", "acknowledge"}
"""Transitions that another machine walks than the rest."""

STEPS = 30
BATCHES = 7
"""Of walks, at most, until each rare event was met.

The rarest was met in 9 of 800 walks. Even one of 2 in 800 would be missed by 7 batches once in a
million times.
"""


class Noted(dict[tuple[str, str], Script]):
    """Scripts, and the names of those that were called."""

    def __init__(self, scripts: Scripts) -> None:
        super().__init__(scripts)
        self.called: set[str] = set()

    def get(self, key: tuple[str, str], default: Any = None) -> Any:
        self.called.add(key[0])
        return super().get(key, default)


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    kinds = ["valkey", *(["redis"] if redis_binary() else [])]
    started = [Server(kind) for kind in kinds]
    yield started
    for server in started:
        server.stop()


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("sequences", [800, pytest.param(6_000, marks=pytest.mark.long)])
def test_every_key_is_what_the_model_says(
    sequences: int, servers: list[Server], capsys: pytest.CaptureFixture[str]
) -> None:
    counts: Counter[str] = Counter()
    clients = [DirectClient(server.socket) for server in servers]
    scripts = Noted(build_scripts())

    class Machine(TunedMachine):
        pass

    Machine.counts = counts
    Machine.backends = [Backend(client, scripts) for client in clients]
    began = time.monotonic()
    for _ in range(BATCHES):
        walk(Machine, sequences)
        missed = [event for event in TUNED_RARE if not counts[event]]
        if not missed:
            break
    seconds = time.monotonic() - began
    for client in clients:
        client.close()
    names = " and ".join(server.kind for server in servers)
    with capsys.disabled():
        print(
            f"\nmodel: {counts['sequences']} sequences, {counts['ops']} operations on memory, "
            f"{names}: 0 differences in {seconds:.0f} s"
        )
    assert not missed, f"walks never met {missed}; all: {counts}"
    assert counts["sequences"] >= sequences
    writing = {name for name, flags in TRANSITIONS.items() if flags != "no-writes"}
    assert writing - scripts.called == BESIDE_REQUESTS, "a transition that no machine walks"


@pytest.mark.parametrize("sequences", [200, pytest.param(6_000, marks=pytest.mark.long)])
def test_every_key_beside_the_requests_is_what_the_model_says(
    sequences: int, servers: list[Server]
) -> None:
    clients = [DirectClient(server.socket) for server in servers]
    scripts = Noted(build_scripts())

    class Machine(BookMachine):
        counts: ClassVar = Counter[str]()
        backends: ClassVar = [Backend(client, scripts) for client in clients]

    for _ in range(BATCHES):
        walk(Machine, sequences)
        missed = [event for event in BOOK_RARE if not Machine.counts[event]]
        if not missed:
            break
    for client in clients:
        client.close()
    assert not missed, f"walks never met {missed}; all: {Machine.counts}"
    assert scripts.called == BESIDE_REQUESTS


def walk(machine: type[TunedMachine] | type[BookMachine], sequences: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=sequences,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )


@pytest.mark.skipif(redis_binary() is None, reason="redis-server (Debian package) is not installed")
def test_redis_takes_part_in_the_model_test(servers: list[Server]) -> None:
    assert [server.kind for server in servers] == ["valkey", "redis"]
