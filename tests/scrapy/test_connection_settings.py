"""Which Redis the settings of scrapy-redis mean."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from scrapy.settings import Settings

from orbweb.adapters.scrapy.connection import (
    get_impatient_redis,
    get_redis_from_settings,
    store_url,
)

CASES: list[tuple[dict[str, Any], str]] = [
    ({}, "redis://localhost:6379/0"),
    ({"REDIS_URL": "redis://h:1/2"}, "redis://h:1/2"),
    ({"REDIS_URL": "redis://h:1/2", "REDIS_HOST": "other"}, "redis://h:1/2"),
    ({"REDIS_URL": None, "REDIS_HOST": "h", "REDIS_PORT": "7"}, "redis://h:7/0"),
    ({"REDIS_HOST": "h", "REDIS_DB": 4}, "redis://h:6379/4"),
    ({"REDIS_PARAMS": {"password": "p/@:", "db": 3}}, "redis://:p%2F%40%3A@localhost:6379/3"),
    ({"REDIS_PARAMS": {"username": "u", "password": "p"}}, "redis://u:p@localhost:6379/0"),
    ({"REDIS_URL": "redis://h:1", "REDIS_PARAMS": {"password": "p"}}, "redis://:p@h:1"),
    ({"REDIS_URL": "redis://:q@h:1", "REDIS_PARAMS": {"password": "p"}}, "redis://:q@h:1"),
    ({"REDIS_URL": "redis://h:1", "REDIS_PARAMS": {"db": 5}}, "redis://h:1/5"),
    ({"REDIS_HOST": "h", "REDIS_PARAMS": {"ssl": True}}, "rediss://h:6379/0"),
    ({"REDIS_PARAMS": {"unix_socket_path": "/run/r.sock", "db": 1}}, "unix:///run/r.sock?db=1"),
]


@pytest.mark.parametrize(("settings", "url"), CASES)
def test_the_url_and_the_client_mean_the_same_server(settings: dict[str, Any], url: str) -> None:
    project = Settings(settings)
    assert store_url(project) == url
    ours = redis.Redis.from_url(url).connection_pool.connection_kwargs
    theirs = get_redis_from_settings(project).connection_pool.connection_kwargs
    for name in ("host", "port", "username", "password", "path"):
        default = {"host": "localhost", "port": 6379}.get(name)
        if "path" in ours and default:
            continue
        assert str(ours.get(name) or default) == str(theirs.get(name) or default), name
    assert int(ours.get("db") or 0) == int(theirs.get("db") or 0)


def test_an_impatient_client_gives_up_within_seconds_unless_the_project_says_more() -> None:
    kwargs = get_impatient_redis(Settings()).connection_pool.connection_kwargs
    assert (kwargs["socket_timeout"], kwargs["retry"]._retries) == (5, 0)
    project = Settings({"REDIS_PARAMS": {"socket_timeout": 9}})
    assert get_impatient_redis(project).connection_pool.connection_kwargs["socket_timeout"] == 9
    assert project.getdict("REDIS_PARAMS") == {"socket_timeout": 9}
