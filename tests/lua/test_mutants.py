"""The model test notices every fault that is put into the Lua."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.lua import mutants
from tests.lua.direct import DirectClient
from tests.lua.mutants import Mutant
from tests.lua.task_mutants import TASK_MUTANTS
from tests.lua.tasks import TaskMachine
from tests.lua.twins import Backend, build_scripts
from tests.servers import Server

MUTANTS = (*mutants.MUTANTS, *TASK_MUTANTS)
BUDGET = settings(
    max_examples=1_200,
    stateful_step_count=24,
    deadline=None,
    database=None,
    derandomize=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def kills(request: pytest.FixtureRequest) -> Iterator[dict[str, int]]:
    """Sequences that it took to notice each; told at the end."""
    kills: dict[str, int] = {}
    yield kills
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture
    with capture.global_and_fixture_disabled():
        most = max(kills.values(), default=0)
        print(f"\nmutants: {len(kills)} of {len(MUTANTS)} noticed, after {most} walks at most")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_model_notices(mutant: Mutant, server: Server, kills: dict[str, int]) -> None:
    client = DirectClient(server.socket)

    class Machine(TaskMachine):
        pass

    Machine.counts = Counter()
    Machine.backends = [Backend(client, build_scripts(mutant.build()))]
    try:
        with pytest.raises(AssertionError):
            run_state_machine_as_test(Machine, settings=BUDGET)
    finally:
        client.close()
    kills[mutant.name] = Machine.counts["sequences"]


def test_every_mutant_has_its_own_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
