"""How much memory a job takes in the store, told apart: what waits, and what was seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.servers import Server

from orbweb.cli.show import size
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import NewRequest, RunConfig
from orbweb.frontier.seen import SeenConfig, SeenKind
from orbweb.frontier.servers import OneServer
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.model.fingerprint import derived_fingerprint

HOSTS, EACH = 50, 200


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server("valkey")
    yield server
    server.stop()


def requests() -> Iterator[NewRequest]:
    for host in range(HOSTS):
        for page in range(EACH):
            number = derived_fingerprint(str(host), str(page))
            yield NewRequest(f"{host}-{page}", f"h{host}.example", 0, number, b"x" * 200)


@pytest.mark.parametrize("kind", ["exact", "compact", "set", "bloom"])
async def test_a_sample_weighs_about_what_all_keys_do(server: Server, kind: str) -> None:
    servers = OneServer(server.url)
    try:
        frontier = ValkeyFrontier(servers.of_shard(0), prefix="orbweb", job="shop")
        seen = SeenConfig(SeenKind(kind), capacity=HOSTS * EACH)
        await frontier.open(RunConfig(seen=seen))
        every = list(requests())
        for start in range(0, len(every), 1000):
            await frontier.add(every[start : start + 1000])
        admin = Admin(servers, "orbweb")
        weight = await admin.weigh(await admin.seen.find("shop"))
    finally:
        await servers.aclose()
    client = server.client()
    found = {"seen": 0, "waiting": 0}
    for key in client.keys("*:run:*"):
        found["seen" if b":seen:" in key else "waiting"] += client.memory_usage(key, samples=0)
    assert weight.seen_bytes == pytest.approx(found["seen"], rel=0.15)
    assert weight.waiting_bytes == pytest.approx(found["waiting"], rel=0.15)


def test_sizes_are_read_at_a_glance() -> None:
    wanted = {0: "0 B", 999: "999 B", 1000: "1.0 kB", 12_345: "12.3 kB", 2_500_000: "2.5 MB"}
    assert {number: size(number) for number in wanted} == wanted
