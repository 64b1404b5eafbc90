"""The store dies, hangs or loses the end of its log in mid-crawl: the crawl is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.crash.scenes import ONE, SPREAD, away_for_five_seconds, crawl_through, hangs, torn_twice
from tests.servers import redis_binary

needs_redis = pytest.mark.skipif(redis_binary() is None, reason="redis-server is not installed")
REDIS = pytest.param("redis", ONE, marks=needs_redis, id="redis")
VALKEY = pytest.param("valkey", ONE, id="valkey")
SHARDS = pytest.param("valkey", SPREAD, id="shards")
SHARDS_LONG = pytest.param("valkey", SPREAD, id="shards", marks=pytest.mark.long)

Settings = dict[str, object]


@pytest.mark.parametrize(("kind", "settings"), [VALKEY, REDIS, SHARDS])
def test_a_killed_server_that_returns_after_five_seconds(
    tmp_path: Path, kind: str, settings: Settings
) -> None:
    crawl_through(tmp_path, kind, away_for_five_seconds, **settings)


@pytest.mark.parametrize(("kind", "settings"), [VALKEY, SHARDS_LONG])
def test_an_outage_of_many_leases_repeats_no_fetch(
    tmp_path: Path, kind: str, settings: Settings
) -> None:
    crawl_through(tmp_path, kind, hangs(12), ORBWEB_STORE_TIMEOUT=0.5, **settings)


@pytest.mark.long
def test_an_outage_of_a_minute_repeats_no_fetch(tmp_path: Path) -> None:
    crawl_through(tmp_path, "valkey", hangs(60), ORBWEB_STORE_TIMEOUT=0.5, **ONE)


@pytest.mark.parametrize(("kind", "settings"), [VALKEY, REDIS, SHARDS_LONG])
def test_a_torn_log_and_two_restarts(tmp_path: Path, kind: str, settings: Settings) -> None:
    crawl_through(tmp_path, kind, torn_twice, repeats=True, **settings)
