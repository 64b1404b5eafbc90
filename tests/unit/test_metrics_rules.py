"""The alert rules, judged by Prometheus' own promtool: each fires when it should, and else not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import pytest

RULES = files("orbweb.metrics").joinpath("shipped", "rules", "orbweb.rules.yml")

BOARDS = files("orbweb.metrics").joinpath("shipped", "grafana")

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian package prometheus)",
)

RUN = 'spider="shop",run="r1"'
RUNNING = f'orbweb_run_state{{{RUN},state="running"}}'
DONE = f'orbweb_run_state{{{RUN},state="done"}}'
STARTED = f"orbweb_run_started_timestamp_seconds{{{RUN}}}"
PAGES = f'orbweb_requests_total{{{RUN},outcome="done"}}'
FAILED = f'orbweb_requests_total{{{RUN},outcome="failed"}}'
TASKS_DONE = f'orbweb_requests_total{{{RUN},outcome="task_done"}}'
QUEUED = f'orbweb_frontier_requests{{{RUN},state="queued"}}'
OUTBOX = f'orbweb_frontier_requests{{{RUN},state="outbox"}}'
REPEATED, COMPARED = (f"orbweb_items_{name}_total{{{RUN}}}" for name in ("repeated", "compared"))
MISSING = f'orbweb_item_field_missing_total{{{RUN},item="books",field="price"}}'
EXAMINED = f'orbweb_items_examined_total{{{RUN},item="books"}}'
NODE = f'node="n1",{RUN}'
BEAT = f"orbweb_node_heartbeat_timestamp_seconds{{{NODE}}}"
WORKING, ENDED = (
    f'orbweb_node_info{{{NODE},host="h",pid="1",state="{state}"}}' for state in ("working", "ended")
)
GOOD, BAD = (
    f'orbweb_domain_answers_total{{domain="a.test",outcome="{name}"}}' for name in ("good", "bad")
)
SENT, REFUSED = (
    f'orbweb_alert_delivery_total{{channel="feishu",result="{name}"}}'
    for name in ("sent", "refused")
)
DAY = 24 * 60

Series = dict[str, str]
"""Series in promtool's notation: `0+5x10` = 0 and ten more, each 5 higher."""


@dataclass
class Case:
    """When an alert fires, and when it does not although it is close."""

    fires: Series
    calm: list[Series]
    minute: int = 12
    """At which minute both are looked at."""
    at: dict[int, bool] = field(default_factory=dict)
    """Further minutes of `fires`, and whether it fires then."""
    step: int = 1
    """Minutes between two samples."""
    every: int = 1
    """Minutes between two looks at the rules."""


def node(metric: str, value: str) -> Series:
    return {f"{metric}{{{NODE}}}": value}


CASES: dict[str, Case] = {
    "OrbwebBacklog": Case(
        {QUEUED: "100001x20"},
        [{QUEUED: "100000x20"}, {QUEUED: "200000x3 5x20"}],
        minute=6,
        at={4: False},
    ),
    "OrbwebNodeSilent": Case(
        {BEAT: "0x5", WORKING: "1x5", RUNNING: "1x5"},
        [
            {BEAT: "0+60x5", WORKING: "1x5", RUNNING: "1x5"},
            {BEAT: "0x5", ENDED: "1x5", RUNNING: "1x5"},
            {BEAT: "0x5", WORKING: "1x5", DONE: "1x5"},
        ],
        minute=2,
        at={1: False},
    ),
    "OrbwebDuplicates": Case(
        {REPEATED: "0+2x20", COMPARED: "0+100x20"},
        [
            {REPEATED: "0+1x20", COMPARED: "0+100x20"},
            {REPEATED: "0+1x20", COMPARED: "0+2x20"},
        ],
    ),
    "OrbwebFieldMissing": Case(
        {MISSING: f"0+0x{DAY // 5} 40+40x13", EXAMINED: f"0+100x{DAY // 5 + 13}"},
        [
            {MISSING: f"0+40x{DAY // 5 + 13}", EXAMINED: f"0+100x{DAY // 5 + 13}"},
            {MISSING: f"0+0x{DAY // 5} 1+1x13", EXAMINED: f"0+100x{DAY // 5 + 13}"},
        ],
        minute=DAY + 60,
        step=5,
        every=30,
    ),
    "OrbwebNodeCpu": Case(
        node("orbweb_node_cpu_ratio", "0.86x20"),
        [
            node("orbweb_node_cpu_ratio", "0.85x20"),
            node("orbweb_node_cpu_ratio", "0.99x8 0.2x20"),
        ],
        minute=11,
        at={9: False},
    ),
    "OrbwebNodeMemory": Case(
        node("orbweb_node_resident_memory_bytes", "900x20")
        | node("orbweb_node_memory_limit_bytes", "1000x20"),
        [
            node("orbweb_node_resident_memory_bytes", "800x20")
            | node("orbweb_node_memory_limit_bytes", "1000x20"),
            node("orbweb_node_resident_memory_bytes", "800x20")
            | node("orbweb_node_memory_limit_bytes", "0x20"),
        ],
    ),
    "OrbwebDiskFull": Case(
        node("orbweb_node_disk_free_bytes", "14x20")
        | node("orbweb_node_disk_size_bytes", "100x20"),
        [
            node("orbweb_node_disk_free_bytes", "15x20")
            | node("orbweb_node_disk_size_bytes", "100x20")
        ],
    ),
    "OrbwebDedupFill": Case(
        {f"orbweb_dedup_fill_ratio{{{RUN}}}": "0.81x3"},
        [{f"orbweb_dedup_fill_ratio{{{RUN}}}": "0.8x3"}],
        minute=1,
    ),
    "OrbwebNothingDone": Case(
        {DONE: "1x3", PAGES: "0x3", FAILED: "5x3"},
        [
            {DONE: "1x3", PAGES: "1x3", FAILED: "5x3"},
            {DONE: "1x3", PAGES: "0x3", TASKS_DONE: "5x3"},
            {RUNNING: "1x3", PAGES: "0x3"},
        ],
        minute=1,
    ),
    "OrbwebNoProgress": Case(
        {PAGES: "7x20", QUEUED: "3x20", STARTED: "0x20", RUNNING: "1x20"},
        [
            {PAGES: "0+1x20", QUEUED: "3x20", STARTED: "0x20", RUNNING: "1x20"},
            {PAGES: "7x20", TASKS_DONE: "0+1x20", QUEUED: "3x20", STARTED: "0x20", RUNNING: "1x20"},
            {PAGES: "7x20", QUEUED: "0x20", STARTED: "0x20", RUNNING: "1x20"},
            {PAGES: "7x20", QUEUED: "3x20", STARTED: "600x20", RUNNING: "1x20"},
            {
                PAGES: "7x20",
                QUEUED: "3x20",
                STARTED: "0x20",
                RUNNING.replace("running", "paused"): "1x20",
            },
        ],
        minute=13,
    ),
    "OrbwebFailureRate": Case(
        {PAGES: "0+4x20", FAILED: "0+6x20"},
        [{PAGES: "0+6x20", FAILED: "0+4x20"}, {PAGES: "0x20", FAILED: "0+1x20"}],
    ),
    "OrbwebDomainRefuses": Case(
        {GOOD: "0+7x20", BAD: "0+3x20"},
        [{GOOD: "0+9x20", BAD: "0+1x20"}, {GOOD: "0x20", BAD: "0+1x20"}],
    ),
    "OrbwebCircuitOpen": Case(
        {'orbweb_circuit_open{domain="a.test"}': "1x20"},
        [{'orbweb_circuit_open{domain="a.test"}': "1x5 0x20"}],
    ),
    "OrbwebRateClamped": Case(
        {'orbweb_rate_clamped_total{domain="a.test"}': "0x5 1x10"},
        [{'orbweb_rate_clamped_total{domain="a.test"}': "5x20"}],
    ),
    "OrbwebSinkDown": Case(
        {f'orbweb_sink_waiting_seconds{{{NODE},sink="sql"}}': "121x5"},
        [{f'orbweb_sink_waiting_seconds{{{NODE},sink="sql"}}': "119x5"}],
        minute=1,
    ),
    "OrbwebItemsRefused": Case(
        {f"orbweb_failed_items{{{RUN}}}": "1x9"}, [{f"orbweb_failed_items{{{RUN}}}": "0x9"}], 4
    ),
    "OrbwebOutboxWaits": Case({OUTBOX: "5x20"}, [{OUTBOX: "5x5 0 5x20"}]),
    "OrbwebConfigDrift": Case(
        node("orbweb_config_version", "7x9") | {f'orbweb_config_version{{node="n2",{RUN}}}': "8x9"},
        [
            node("orbweb_config_version", "8x9")
            | {f'orbweb_config_version{{node="n2",{RUN}}}': "8x9"}
        ],
        minute=3,
    ),
    "OrbwebStoreDown": Case({"orbweb_store_up": "0x9"}, [{"orbweb_store_up": "1x9"}], 3),
    "OrbwebStoreMemory": Case(
        {
            'orbweb_store_memory_bytes{server="s"}': "86x20",
            'orbweb_store_memory_max_bytes{server="s"}': "100x20",
        },
        [
            {
                'orbweb_store_memory_bytes{server="s"}': "84x20",
                'orbweb_store_memory_max_bytes{server="s"}': "100x20",
            },
            {'orbweb_store_memory_bytes{server="s"}': "86x20"},
        ],
    ),
    "OrbwebAlertsRefused": Case(
        {REFUSED: "0+1x20", SENT: "5x20"},
        [{REFUSED: "0+1x20", SENT: "0+1x20"}, {REFUSED: "5x20"}],
    ),
    "OrbwebNoMetrics": Case(
        {"up": "0x20"}, [{'orbweb_build_info{version="1"}': "1x20"}], minute=10
    ),
    "OrbwebWatchdog": Case({"up": "1x9"}, [], minute=1),
}


def promtool_test(name: str, case: Case) -> dict[str, object]:
    """The case as a file of `promtool test rules` (JSON is YAML)."""
    step = f"{case.step}m"
    tests = [_one(name, step, case.fires, {case.minute: True, **case.at})]
    tests += [_one(name, step, calm, {case.minute: False}) for calm in case.calm]
    return {
        "rule_files": ["orbweb.rules.yml"],
        "evaluation_interval": f"{case.every}m",
        "tests": tests,
    }


def _one(name: str, step: str, series: Series, fires: dict[int, bool]) -> dict[str, object]:
    firing = f'count(ALERTS{{alertname="{name}",alertstate="firing"}})'
    return {
        "interval": step,
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "promql_expr_test": [
            {
                "expr": firing,
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": "{}", "value": 1}] if does else [],
            }
            for minute, does in fires.items()
        ],
    }


def alert_names() -> set[str]:
    return set(re.findall(r"- alert: (\w+)", RULES.read_text(encoding="utf-8")))


def test_every_rule_has_a_case_and_every_case_a_rule() -> None:
    assert set(CASES) == alert_names()
    assert all(case.calm for name, case in CASES.items() if name != "OrbwebWatchdog")


@needs_promtool
def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    done = promtool("check", "rules", str(write_rules(tmp_path)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CASES)} rules found" in done.stdout


@needs_promtool
@pytest.mark.parametrize("board", [board.name for board in BOARDS.iterdir()])
def test_promtool_can_read_every_expression_of_a_dashboard(board: str, tmp_path: Path) -> None:
    panels = json.loads(BOARDS.joinpath(board).read_text(encoding="utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    rules = [{"record": f"expression:{n}", "expr": expr} for n, expr in enumerate(found)]
    path = tmp_path / "expressions.json"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = promtool("check", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(found)} rules found" in done.stdout


@needs_promtool
@pytest.mark.parametrize("name", CASES)
def test_the_alert_fires_when_it_should_and_else_not(name: str, tmp_path: Path) -> None:
    write_rules(tmp_path)
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(promtool_test(name, CASES[name])))
    done = promtool("test", "rules", str(path))
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_a_case_that_is_wrong_is_found(tmp_path: Path) -> None:
    write_rules(tmp_path)
    case = CASES["OrbwebDedupFill"]
    swapped = Case(case.calm[0], [case.fires], case.minute)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(promtool_test("OrbwebDedupFill", swapped)))
    assert promtool("test", "rules", str(path)).returncode != 0


def write_rules(folder: Path) -> Path:
    path = folder / "orbweb.rules.yml"
    path.write_text(RULES.read_text(encoding="utf-8"), encoding="utf-8")
    return path


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
