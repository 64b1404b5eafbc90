"""The reference pages say what the code says."""

from __future__ import annotations

import importlib.util
import re
from importlib.resources import files
from pathlib import Path
from types import ModuleType

from orbweb.engine.shutdown import ExitCode
from orbweb.metrics.catalogue import METRICS
from orbweb.settings import DECLARATIONS

ROOT = Path(__file__).parents[2]


def writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reference_pages_are_up_to_date() -> None:
    for path, text in writer().wanted_pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run scripts/docs"


def test_every_setting_and_only_those_have_an_entry() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == list(DECLARATIONS)


def test_every_metric_and_every_alert_has_an_entry_and_only_those() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert re.findall(r"^#### (\w+)$", page, re.MULTILINE) == list(METRICS)
    rules = files("orbweb.metrics").joinpath("shipped", "rules", "orbweb.rules.yml")
    alerts = re.findall(r"- alert: (\w+)", rules.read_text(encoding="utf-8"))
    assert re.findall(r"^### (Orbweb\w+)$", page, re.MULTILINE) == alerts


def test_every_exit_code_of_a_run_has_its_line() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", page, re.MULTILINE)}
    assert {int(code) for code in ExitCode} <= told
