"""The model test notices every fault that is put into the Lua."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.lua.hunt import MUTANTS, hunt, seeds
from tests.lua.mutants import Mutant
from tests.servers import Server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def kills(request: pytest.FixtureRequest) -> Iterator[dict[str, int]]:
    """Walks that it took to notice each; told at the end."""
    kills: dict[str, int] = {}
    yield kills
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture
    with capture.global_and_fixture_disabled():
        most = max(kills.values(), default=0)
        print(
            f"\nmutants: {len(kills)} of {len(MUTANTS)} noticed, after {most} walks at most and "
            f"{sum(kills.values())} in all (python -m tests.lua.hunt makes them fewer)"
        )


@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_model_notices(mutant: Mutant, server: Server, kills: dict[str, int]) -> None:
    found = hunt(mutant, server, seeds().get(mutant.name))
    assert found.noticed
    kills[mutant.name] = found.walks


def test_every_mutant_has_its_own_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
