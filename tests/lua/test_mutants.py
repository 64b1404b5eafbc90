"""The model test notices every fault that is put into the Lua."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from tests.lua.hunt import MUTANTS, Hunt
from tests.lua.mutants import Mutant


@pytest.fixture(scope="module")
def hunts(request: pytest.FixtureRequest) -> dict[str, Hunt]:
    """What came of the hunt for each mutant that is asked for; told at once."""
    wanted = {
        mutant.name
        for mutant in MUTANTS
        if any(item.name.endswith(f"[{mutant.name}]") for item in request.session.items)
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.lua.hunt", *wanted],
        cwd=request.config.rootpath,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = {
        name: Hunt(noticed, walks)
        for name, noticed, walks in map(json.loads, done.stdout.splitlines())
    }
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture
    with capture.global_and_fixture_disabled():
        walks = [each.walks for each in found.values()]
        print(
            f"\nmutants: {sum(each.noticed for each in found.values())} of {len(found)} noticed, "
            f"after {max(walks)} walks at most and {sum(walks)} in all "
            "(python -m tests.lua.hunt makes them fewer)"
        )
    return found


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_model_notices(mutant: Mutant, hunts: dict[str, Hunt]) -> None:
    assert hunts[mutant.name].noticed


def test_every_mutant_has_its_own_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
