"""The metrics of a fleet from a real store: all, exact and bounded; and what is built on them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from importlib.resources import files
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.servers import Server

from orbweb.engine.gauge import with_counts
from orbweb.frontier.base import Ack, Nack, NewRequest, RunConfig, Signal
from orbweb.frontier.deliveries import REFUSED, SENT, Deliveries
from orbweb.frontier.operator import Author
from orbweb.frontier.overview import Overview
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.frontier.servers import OneServer
from orbweb.frontier.spread import shared_frontier
from orbweb.frontier.steering import HostAdmin
from orbweb.frontier.totals import RunTotals
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.metrics import catalogue
from orbweb.metrics.exporter import Exporter
from orbweb.metrics.exposition import Kind
from orbweb.metrics.targets import targets_of
from orbweb.model.reasons import Reason
from orbweb.monitor.counts import Counts, encode
from orbweb.monitor.quality import Tally
from orbweb.monitor.vitals import VitalSigns

SHIPPED = files("orbweb.metrics").joinpath("shipped")
NODE = "0123456789abcdef0123456789abcdef"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    server = Server("valkey", "--maxmemory", "200mb")
    yield server
    server.stop()


@pytest.fixture
async def servers(running: Server) -> AsyncIterator[OneServer]:
    running.client().flushall()
    servers = OneServer(running.url)
    yield servers
    await servers.aclose()


def request(number: int, host: str = "a.test") -> NewRequest:
    return NewRequest(f"{host}{number}", host, 0, hash((host, number)), b"x")


def counts() -> Counts:
    found = Counts()
    found.answered(200, 0.2, 5000)
    found.again(Reason.TIMEOUT)
    found.item("books", "stored", 2)
    found.waited(0.1)
    found.store_answered(0.001)
    tally = Tally()
    tally.see("books", {"name": "x", "price": ""})
    tally.checked, tally.repeated = 2, 1
    found.see(tally)
    return found


async def crawl(servers: OneServer, tmp_path: Any) -> None:
    """A run in the midst of work, with everything that can be told, and one that has ended."""
    client = servers.of_shard(0)
    frontier = ValkeyFrontier(client, prefix="p", job="shop", run="r1")
    config = RunConfig(
        host_delay_ms=100,
        circuit_threshold=1,
        seen=SeenConfig(kind=SeenKind.BLOOM, capacity=1000),
        max_retries=0,
    )
    opened = await frontier.open(config)
    await frontier.add([request(n) for n in range(4)] + [request(n, "b.test") for n in range(3)])
    await frontier.add([request(0)])  # seen
    claim = await frontier.claim(NODE, 1, 2, 60_000)
    good, bad = claim.leases
    await frontier.ack([Ack(*good.held, Reason.DONE, items=2)])
    await frontier.nack([Nack(*bad.held, fatal=True, reason=Reason.TIMEOUT, error="slow")])
    beat = {
        "host": "h",
        "pid": 7,
        "spider": "shop",
        "pages": 1,
        "items": 2,
        "failed": 1,
        "held": 0,
        "fetching": 0,
        "limited_by": "hosts",
        "stopping": False,
        "config": 3,
        "sinks": {"sql": [2.5, "down"]},
        "metrics": "127.0.0.1:4711",
        "vitals": VitalSigns(lambda: (100, 10), tmp_path).read(),
    }
    await frontier.renew(NODE, 60_000, [], with_counts(beat, counts()))
    totals = RunTotals(client, "p", "shop", "r1")
    totals.attach(opened.epoch)
    await totals.tell(NODE, encode(counts()), again=False)
    await totals.tell("gone", encode(counts()), again=False)
    deliveries = Deliveries(client, "p")
    for result in (SENT, SENT, REFUSED):
        await deliveries.count("feishu", result)
    ended = ValkeyFrontier(client, prefix="p", job="shop", run="r0")
    await ended.open(RunConfig())
    seeds = await ended.seed_claim(NODE, 1, 60_000)
    await ended.seed_push(seeds.token, 1, True, [])


def exporter(servers: OneServer, **options: int) -> Exporter:
    async def connect() -> Overview:
        return Overview(servers, "p", **options)

    return Exporter(connect)


def value(page: str, name: str, **labels: str) -> float:
    """The one sample of that name with these labels among its own."""
    found = [
        sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    assert len(found) == 1, (name, labels, found)
    return found[0]


async def test_every_metric_of_the_fleet_is_there(servers: OneServer, tmp_path: Any) -> None:
    await crawl(servers, tmp_path)
    found = await exporter(servers).exposition()
    assert set(found.names) == {m.name for group in catalogue.OF_FLEET.values() for m in group}


async def test_the_numbers_are_those_of_the_store(servers: OneServer, tmp_path: Any) -> None:
    await crawl(servers, tmp_path)
    page = await exporter(servers).page()
    run = {"spider": "shop", "run": "r1"}
    assert value(page, "orbweb_frontier_requests", **run, state="queued") == 5
    assert value(page, "orbweb_frontier_requests", **run, state="dead") == 1
    assert value(page, "orbweb_requests_total", **run, outcome="done") == 1
    assert value(page, "orbweb_requests_failed_total", **run, reason="timeout") == 1
    assert value(page, "orbweb_requests_skipped_total", **run, reason="duplicate_request") == 1
    assert value(page, "orbweb_items_stored_total", **run) == 2
    assert value(page, "orbweb_items_total", **run, item="books", outcome="stored") == 4
    assert value(page, "orbweb_item_field_missing_total", **run, item="books", field="price") == 2
    assert value(page, "orbweb_download_seconds_count", **run) == 2
    assert value(page, "orbweb_download_seconds_bucket", **run, le="0.25") == 2
    assert value(page, "orbweb_dedup_requests", **run) == 7
    assert value(page, "orbweb_nodes", **run) == 1
    assert value(page, "orbweb_run_state", spider="shop", run="r0", state="done") == 1
    assert value(page, "orbweb_node_heartbeat_timestamp_seconds", node=NODE[:12]) > 1.7e9
    assert value(page, "orbweb_alert_delivery_total", channel="feishu", result="sent") == 2
    assert value(page, "orbweb_sink_waiting_seconds", sink="sql") == 2.5
    backlogs = [value(page, "orbweb_domain_backlog", domain=host) for host in ("a.test", "b.test")]
    assert sum(backlogs) == 5
    assert value(page, "orbweb_domain_backlog", domain="other") == 0
    assert value(page, "orbweb_rate_limit", domain="b.test") == 10


async def test_a_heartbeat_that_says_something_else_costs_only_what_it_does_not_say(
    servers: OneServer,
) -> None:
    frontier = ValkeyFrontier(servers.of_shard(0), prefix="p", job="shop", run="")
    await frontier.open(RunConfig())
    beats = [b"", b"no json", b"[1]", b'{"vitals": 1, "sinks": {"sql": 7}, "pages": "many"}']
    for number, beat in enumerate(beats):
        await frontier.renew(f"node{number}", 60_000, [], beat or b" ")
    page = await exporter(servers).page()
    assert value(page, "orbweb_nodes") == len(beats)
    assert len(re.findall("^orbweb_node_heartbeat_timestamp_seconds{", page, re.MULTILINE)) == 4
    assert "orbweb_node_pages_total{" not in page


async def test_labels_with_quotes_and_lines_are_written_so_that_they_are_read_again(
    servers: OneServer,
) -> None:
    name = 'a "job"\\with\nlines'
    await ValkeyFrontier(servers.of_shard(0), prefix="p", job=name, run="").open(RunConfig())
    page = await exporter(servers).page()
    assert value(page, "orbweb_run_state", spider=name, run="", state="running") == 1


def promtool_check(page: str) -> tuple[int, str]:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.skipif(
    shutil.which("promtool") is None,
    reason="promtool is not installed (Debian package prometheus)",
)
async def test_promtool_finds_nothing_wrong_with_the_page(
    servers: OneServer, tmp_path: Any
) -> None:
    await crawl(servers, tmp_path)
    page = await exporter(servers).page()
    told = await asyncio.to_thread(promtool_check, page)
    assert told == (0, "")


async def test_only_the_longest_queues_are_told_of_and_the_rest_is_one_number(
    servers: OneServer,
) -> None:
    frontier = ValkeyFrontier(servers.of_shard(0), prefix="p", job="shop", run="")
    await frontier.open(RunConfig())
    await frontier.add([request(n, f"h{host}") for host in range(40) for n in range(host + 1)])
    page = await exporter(servers, hosts=5).page()
    told = re.findall(r'orbweb_domain_backlog\{domain="(\w+)"\} (\d+)', page)
    assert told == [
        *(("h39", "40"), ("h38", "39"), ("h37", "38"), ("h36", "37"), ("h35", "36")),
        ("other", str(sum(range(1, 36)))),
    ]


async def test_a_run_over_several_shards_is_one_run_with_the_hosts_of_all(
    servers: OneServer,
) -> None:
    frontier = shared_frontier(servers, prefix="p", job="shop", run="", shards=3)
    await frontier.open(RunConfig())
    await frontier.add([request(n, f"h{host}.test") for host in range(12) for n in range(2)])
    page = await exporter(servers).page()
    assert value(page, "orbweb_frontier_requests", state="queued") == 24
    assert len(re.findall(r'orbweb_domain_backlog\{domain="h\d+\.test"\} 2', page)) == 12
    assert value(page, "orbweb_dedup_requests") == 24


async def test_a_host_that_grows_long_is_found_without_walking_over_all(
    servers: OneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbweb.frontier.busiest.PAGES", 1)
    frontier = ValkeyFrontier(servers.of_shard(0), prefix="p", job="shop", run="")
    await frontier.open(RunConfig())
    await frontier.add([request(0, f"h{host}") for host in range(1000)])
    overview = Overview(servers, "p", hosts=5)
    await overview.look()
    await frontier.add([request(n, "h777") for n in range(1, 50)])
    looks = 0
    while not (hosts := (await overview.look()).hosts) or hosts[0][0].name != "h777":
        looks += 1
        assert looks < 12  # a walk over 1000 hosts has about four pages
    assert hosts[0][0].backlog == 50


async def test_runs_that_are_over_are_no_longer_told_of(servers: OneServer, tmp_path: Any) -> None:
    await crawl(servers, tmp_path)
    view = await Overview(servers, "p", ended_ms=-1).look()
    assert [run.info.run for run in view.runs] == ["r1"]


async def test_of_very_many_runs_some_are_left_out_and_that_is_told(
    servers: OneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbweb.frontier.overview.MOST_RUNS", 3)
    for number in range(5):
        run = ValkeyFrontier(servers.of_shard(0), prefix="p", job="shop", run=f"r{number}")
        await run.open(RunConfig())
    page = await exporter(servers).page()
    assert value(page, "orbweb_runs_left_out") == 2
    assert len(re.findall("^orbweb_run_state", page, re.MULTILINE)) == 3


async def test_a_store_that_is_away_is_told_and_then_comes_back(
    servers: OneServer, running: Server
) -> None:
    found = exporter(servers)
    assert value(await found.page(), "orbweb_store_up") == 1
    running.kill()
    assert value(await found.page(), "orbweb_store_up") == 0
    running.start()
    assert value(await found.page(), "orbweb_store_up") == 1


async def test_nodes_with_targets_of_their_own_are_discovered(
    servers: OneServer, tmp_path: Any
) -> None:
    await crawl(servers, tmp_path)
    view = await Overview(servers, "p").look()
    assert targets_of(view) == [{"targets": ["127.0.0.1:4711"], "labels": {}}]


async def test_a_host_that_is_paused_by_its_circuit_is_told(servers: OneServer) -> None:
    frontier = ValkeyFrontier(servers.of_shard(0), prefix="p", job="shop", run="")
    await frontier.open(RunConfig(circuit_threshold=1))
    await frontier.add([request(0), request(1)])
    await frontier.report([Signal("a.test", bad=3, streak=3)])
    admin = HostAdmin(servers.of_shard, "p")
    await admin.limit("a.test", 2000, Author("li"))
    page = await exporter(servers).page()
    assert value(page, "orbweb_circuit_open", domain="a.test") == 1
    assert value(page, "orbweb_rate_limit", domain="a.test") == 0.5
    assert value(page, "orbweb_domain_answers_total", domain="a.test", outcome="bad") == 3


# -- what is shipped


def expressions() -> dict[str, list[str]]:
    """Every expression of the dashboards and of the rules, by file."""
    found: dict[str, list[str]] = {}
    for board in SHIPPED.joinpath("grafana").iterdir():
        text = json.loads(board.read_text(encoding="utf-8"))
        panels = [panel for panel in text["panels"] if panel["type"] != "row"]
        found[board.name] = [target["expr"] for panel in panels for target in panel["targets"]]
        variables = [each for each in text["templating"]["list"] if each["type"] == "query"]
        found[board.name] += [each["query"]["query"] for each in variables]
    rules = SHIPPED.joinpath("rules", "orbweb.rules.yml").read_text(encoding="utf-8")
    blocks = re.findall(r"expr: (?:\|\n)?(.*?)\n *(?:for|labels): ", rules, re.DOTALL)
    found["rules"] = blocks
    return found


def metric_of(name: str) -> str:
    """The metric that a sample belongs to."""
    if name in catalogue.METRICS:
        return name
    short = re.sub("_(bucket|sum|count)$", "", name)
    metric = catalogue.METRICS.get(short)
    assert metric is not None, f"no metric {name}"
    assert metric.kind is Kind.HISTOGRAM, f"no metric {name}"
    return short


def test_every_metric_and_label_in_panels_and_rules_exists() -> None:
    for file, texts in expressions().items():
        assert texts, file
        for text in texts:
            for name, _, matchers in re.findall(r"(orbweb_\w+)(\{([^}]*)\})?", text):
                metric = catalogue.METRICS[metric_of(name)]
                used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
                assert used <= {*metric.labels, "le"}, (file, text)
        known = {label for metric in catalogue.METRICS.values() for label in metric.labels}
        for text in texts:
            for labels in re.findall(r"(?:by|on|group_left)\s*\(([\w, ]*)\)", text):
                names = {label.strip() for label in labels.split(",") if label.strip()}
                assert names <= known | {"le"}, (file, text)


def test_every_metric_of_the_fleet_is_on_a_dashboard() -> None:
    shown = {
        metric_of(name)
        for file, texts in expressions().items()
        if file != "rules"
        for text in texts
        for name in re.findall(r"orbweb_\w+", text)
    }
    fleet = {metric.name for group in catalogue.OF_FLEET.values() for metric in group}
    assert fleet - shown == set()


def test_the_fleets_dashboard_is_laid_out_as_it_was_drawn() -> None:
    board = json.loads(SHIPPED.joinpath("grafana", "orbweb-fleet.json").read_text("utf-8"))
    first = [(panel["title"], panel["gridPos"]) for panel in board["panels"][:5]]
    names = ["实时QPS趋势", "各节点负载热力图", "队列积压Top10域名", "数据重复率曲线"]
    for (title, place), name, (x, y) in zip(
        first, names, [(0, 0), (12, 0), (0, 9), (12, 9)], strict=False
    ):
        assert title.endswith(name)
        assert (place["x"], place["y"], place["w"]) == (x, y, 12)
    title, place = first[4]
    assert title.endswith("最近1小时错误日志聚合")
    assert (place["x"], place["y"], place["w"]) == (0, 18, 24)


def test_panels_of_a_dashboard_do_not_overlap() -> None:
    for board in SHIPPED.joinpath("grafana").iterdir():
        taken: dict[tuple[int, int], str] = {}
        for panel in json.loads(board.read_text(encoding="utf-8"))["panels"]:
            place = panel["gridPos"]
            assert place["x"] + place["w"] <= 24
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert (x, y) not in taken, (board.name, panel["title"], taken[x, y])
                    taken[x, y] = panel["title"]
