"""Which proxy comes next, how long one rests from a host, and what the lists may hold."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from orbweb.download import proxies, proxy_lists
from orbweb.download.proxies import PoolOptions, ProxyPool
from orbweb.errors import ConfigError, NoProxyFree
from orbweb.model.proxy import BadProxyError, Proxy

HOST = "shop.test"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pool(clock: Clock) -> ProxyPool:
    pool = ProxyPool(PoolOptions(10.0, 35.0), clock=clock)
    pool.switch(True)
    pool.replace(["a:1", "b:2"])
    return pool


async def taken(pool: ProxyPool, host: str = HOST) -> str:
    return (await pool.take(host)).id


async def test_each_has_its_turn(pool: ProxyPool) -> None:
    assert [await taken(pool) for _ in range(5)] == ["a:1", "b:2", "a:1", "b:2", "a:1"]


async def test_a_proxy_rests_from_the_host_for_which_it_failed(
    pool: ProxyPool, clock: Clock
) -> None:
    pool.failed(await pool.take(HOST), HOST, "refused")
    assert [await taken(pool) for _ in range(2)] == ["b:2", "b:2"]
    assert {await taken(pool, "other.test") for _ in range(2)} == {"a:1", "b:2"}
    clock.now += 10.0
    assert {await taken(pool) for _ in range(2)} == {"a:1", "b:2"}


async def test_each_further_failure_doubles_the_rest_up_to_the_longest(
    pool: ProxyPool, clock: Clock
) -> None:
    proxy = await pool.take(HOST)
    for rest in (10.0, 20.0, 35.0, 35.0):
        pool.failed(proxy, HOST, "refused")
        pool.failed(proxy, HOST, "met by another request at the same time")
        clock.now += rest - 0.01
        assert {await taken(pool) for _ in range(3)} == {"b:2"}
        clock.now += 0.02
        assert {await taken(pool) for _ in range(3)} == {"a:1", "b:2"}
    pool.good(proxy, HOST)
    pool.failed(proxy, HOST, "refused")
    clock.now += 10.01
    assert {await taken(pool) for _ in range(3)} == {"a:1", "b:2"}, "an answer forgives"


async def test_who_finds_none_waits_a_moment_and_gives_up(
    pool: ProxyPool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proxies, "PATIENCE_SECONDS", 0.01)
    for _ in range(2):
        pool.failed(await pool.take(HOST), HOST, "refused")
    with pytest.raises(NoProxyFree, match="all 2 proxies of the pool rest from it"):
        await pool.take(HOST)
    assert pool.waiting() == (HOST,)
    assert not pool.is_short, "two have found one, one has not"
    for _ in range(2):
        with pytest.raises(NoProxyFree):
            await pool.take(HOST)
    assert pool.is_short
    assert pool.counts() == {"all": 2, "resting": 2, "missed": 3}
    clock.now += proxies.RECENT_SECONDS
    assert (pool.waiting(), pool.is_short) == ((), False)


async def test_what_is_known_of_a_proxy_that_stays_is_kept(pool: ProxyPool) -> None:
    pool.failed(await pool.take(HOST), HOST, "refused")
    pool.replace(["a:1", "c:3"])
    assert [await taken(pool) for _ in range(2)] == ["c:3", "c:3"]
    pool.replace(["c:3"])
    pool.replace(["a:1"])
    assert await taken(pool) == "a:1", "what has left is forgotten"


async def test_a_bad_list_changes_nothing(pool: ProxyPool) -> None:
    with pytest.raises(ConfigError, match=r"PROXY_LIST, entry 2: .*the port is missing") as caught:
        pool.replace(["c:3", "http://user:secret@host"])
    assert "secret" not in str(caught.value)
    assert {await taken(pool) for _ in range(2)} == {"a:1", "b:2"}


async def test_socks_needs_its_extra(pool: ProxyPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_lists, "has_socks", lambda: False)
    with pytest.raises(ConfigError, match=r"entry 1: .*pip install 'orbweb\[socks\]'"):
        pool.replace(["socks5://a:1"])


async def test_a_file_is_read_again_when_it_has_changed(
    pool: ProxyPool, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orbweb")
    logging.getLogger("orbweb").propagate = True
    path = tmp_path / "proxies.txt"
    path.write_text("# ours\n\nc:3\n")
    pool.replace([])
    pool.use_file(path)
    assert await taken(pool) == "c:3"
    write_later(path, "d:4\n")
    assert await taken(pool) == "c:3", "it is looked at once a second"
    clock.now += 1.0
    assert await taken(pool) == "d:4"
    write_later(path, "e:5\nhttp://user:secret@broken\n")
    for _ in range(3):
        clock.now += 1.0
        assert await taken(pool) == "d:4", "a file with a bad line is refused as a whole"
    refused = [record.getMessage() for record in caplog.records if "line 2" in record.getMessage()]
    assert len(refused) == 1
    assert "secret" not in refused[0]
    path.unlink()
    clock.now += 1.0
    assert await taken(pool) == "d:4"
    path.write_text("f:6\n")
    clock.now += 1.0
    assert await taken(pool) == "f:6"


async def test_a_file_that_has_vanished_is_no_reason_to_refuse_other_live_values(
    pool: ProxyPool, tmp_path: Path
) -> None:
    path = tmp_path / "proxies.txt"
    path.write_text("c:3\n")
    pool.replace([])
    pool.use_file(path)
    path.unlink()
    pool.use_file(path)
    assert await taken(pool) == "c:3"
    pool.use_file(None)
    assert pool.counts()["all"] == 0


async def test_a_file_that_is_not_there_is_named(pool: ProxyPool, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"PROXY_FILE .*no.txt cannot be read: No such file"):
        pool.use_file(tmp_path / "no.txt")
    assert await taken(pool) == "a:1"


async def test_a_change_wakes_all_who_wait(pool: ProxyPool) -> None:
    pool.replace([])
    async with asyncio.TaskGroup() as group:
        waiting = [group.create_task(taken(pool)) for _ in range(3)]
        await asyncio.sleep(0)
        pool.replace(["z:9"])
    assert [task.result() for task in waiting] == ["z:9"] * 3


def write_later(path: Path, text: str) -> None:
    """Write it so that its time differs, however coarse the file system counts."""
    before = path.stat().st_mtime_ns
    path.write_text(text)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


@pytest.mark.parametrize(
    ("text", "address", "shown"),
    [
        ("p.test:80", "http://p.test:80", "p.test:80"),
        (" HTTP://P.test:80/ ", "http://p.test:80", "p.test:80"),
        ("https://p.test:443", "https://p.test:443", "p.test:443"),
        ("socks5h://p.test:1080", "socks5://p.test:1080", "p.test:1080"),
        ("http://[::1]:8080", "http://[::1]:8080", "[::1]:8080"),
    ],
)
def test_addresses(text: str, address: str, shown: str) -> None:
    proxy = Proxy.parse(text)
    assert (proxy.address, proxy.id) == (address, shown)


def test_a_user_shows_as_a_digest_and_tells_proxies_of_one_place_apart() -> None:
    one, two = (Proxy.parse(f"http://{user}:p%40ss/w@gw.test:80") for user in ("ann", "bob"))
    assert one.address == "http://ann:p%40ss%2Fw@gw.test:80"
    assert one.id != two.id
    assert all(proxy.id.startswith("gw.test:80#") for proxy in (one, two))
    assert "ann" not in one.id
    assert "p%40ss" not in repr(one)


@pytest.mark.parametrize(
    "text",
    ["", "p", "p:99999", "p:x", "ftp://p:1", "http://p:1/path", "http://a b:1", "http://:80"],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadProxyError, match="for example http://user:password@proxy"):
        Proxy.parse(text)
