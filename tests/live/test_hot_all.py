"""No setting is declared hot without a test that changes it in mid-run on two nodes."""

from __future__ import annotations

import importlib
from pathlib import Path

from tests.live.proofs import PROVED

from orbweb.config.check import BY_HOST, FLEET
from orbweb.settings import DECLARATIONS, When

HOT = {name for name, setting in DECLARATIONS.items() if setting.when is When.HOT}


def test_every_hot_setting_is_proved() -> None:
    for path in Path(__file__).parent.glob("test_hot_*.py"):
        importlib.import_module(f"tests.live.{path.stem}")
    assert HOT - PROVED.keys() == set(), "declared hot, but no test changes it on two nodes"
    assert PROVED.keys() - HOT == set(), "proved, but not declared hot"


def test_what_is_said_of_scopes_is_of_hot_settings() -> None:
    assert FLEET <= HOT
    assert BY_HOST <= HOT
