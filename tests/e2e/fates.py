"""Spiders whose URLs meet every fate; `orbweb run` starts them from a copy of this file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import orbweb

SITES = json.loads(Path("sites.json").read_text()) if Path("sites.json").exists() else {}
"""Addresses of the sites by name: `main`, `other`, `limiting`, `paused`, `dead`, `closed`."""


class Ended(orbweb.Spider):
    """Comes to an end by itself."""

    custom_settings: ClassVar = {
        "ALLOWED_DOMAINS": ["127.0.0.1", "localhost"],
        "DEPTH_LIMIT": 1,
        "URL_LENGTH_LIMIT": 300,
        "SPIDER_MAX_RETRY_TIMES": 1,
        "SPIDER_RETRY_INTERVAL": 0.01,
        "REQUEST_TIMEOUT": 1.0,
        "MAX_RESPONSE_SIZE": "20 KB",
        "ALLOWED_CONTENT_TYPES": ["text/"],
        "CIRCUIT_FAILURE_THRESHOLD": 0,
        "DROP_QUERY_PARAMS": ["utm_*"],
    }

    def start_requests(self) -> Iterator[orbweb.Request]:
        main = SITES["main"]
        yield orbweb.Request(f"{main}/done")
        for path in ("pair?a=1&b=2", "moved", "elsewhere", "private/x", "gone", "broken", "slow"):
            yield orbweb.Request(f"{main}/{path}")
        for path in ("large", "image", "buggy", "invalid", "item", "loop", "forgotten", "links"):
            yield orbweb.Request(f"{main}/{path}")
        yield orbweb.Request(f"{main}/unwanted", download_midware="refuse")
        yield orbweb.Request(f"{main}/callback", callback="parse_nothing")
        yield orbweb.Request(f"{main}/back", priority=10_000)  # to a page that is taken by then
        yield orbweb.Request("http://:80/bad")

    def refuse(self, request: orbweb.Request) -> None:
        raise orbweb.NotRetryError("not wanted today")

    def validate(self, request: orbweb.Request, response: orbweb.Response) -> bool:
        return not request.url.endswith("/invalid")

    def parse(self, response: orbweb.Response) -> Iterator[Any]:
        if response.url.endswith("/buggy"):
            raise KeyError("price")
        if response.url.endswith("/item"):
            yield {"thing": object()}
        yield {"url": response.url}
        yield from response.follow_all(css="a")


class Rude(orbweb.Spider):
    """Asks for no robots.txt, so that it is the page itself that cannot be had."""

    custom_settings: ClassVar = {
        "ROBOTS_OBEY": False,
        "SPIDER_MAX_RETRY_TIMES": 0,
        "CIRCUIT_FAILURE_THRESHOLD": 0,
    }

    def start_requests(self) -> Iterator[orbweb.Request]:
        yield orbweb.Request(f"{SITES['other']}/fine")
        yield orbweb.Request("http://no-such-host.invalid/")
        yield orbweb.Request(f"{SITES['other'].replace('http:', 'https:')}/tls")
        yield orbweb.Request(f"{SITES['closed']}/")

    def parse(self, response: orbweb.Response) -> None:
        return None


class Live(orbweb.Spider):
    """Never comes to its end: each of its hosts keeps something back."""

    custom_settings: ClassVar = {
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "SPIDER_RETRY_INTERVAL": 300.0,
        "CIRCUIT_FAILURE_THRESHOLD": 2,
        "CIRCUIT_COOLDOWN": 600.0,
        "SPIDER_TASK_LEASE": 5.0,
        "REQUEST_TIMEOUT": 600.0,
        "READ_TIMEOUT": 600.0,
        "ROBOTS_OBEY": False,
    }

    def start_requests(self) -> Iterator[orbweb.Request]:
        yield orbweb.Request(f"{SITES['main']}/hang", priority=1)
        for number in range(3):
            yield orbweb.Request(f"{SITES['main']}/behind/{number}", priority=2 + number)
        for name in ("limiting", "paused", "dead"):
            for number in range(9):
                yield orbweb.Request(f"{SITES[name]}/{name}/{number}", priority=1 + number)

    def parse(self, response: orbweb.Response) -> None:
        return None
