"""Values of scrapy-redis's settings where a project does not set them, by scrapy-redis's names."""

from __future__ import annotations

from typing import Any

import redis

DUPEFILTER_KEY = "dupefilter:%(timestamp)s"
"""Of `RFPDupeFilter` under Scrapy's own scheduler."""

PIPELINE_KEY = "%(spider)s:items"
STATS_KEY = "%(spider)s:stats"

REDIS_CLS: type[redis.Redis] = redis.Redis
REDIS_ENCODING = "utf-8"
REDIS_PARAMS: dict[str, Any] = {
    "socket_timeout": 30,
    "socket_connect_timeout": 30,
    "encoding": REDIS_ENCODING,
}
"""Keyword arguments of the client, seconds. `REDIS_PARAMS` of the project comes on top."""
REDIS_CONCURRENT_REQUESTS = 16
"""How many start entries are taken at once when a project has no `CONCURRENT_REQUESTS`."""

SCHEDULER_QUEUE_KEY = "%(spider)s:requests"
SCHEDULER_QUEUE_CLASS = "orbweb.adapters.scrapy.queue.PriorityQueue"
SCHEDULER_DUPEFILTER_KEY = "%(spider)s:dupefilter"
SCHEDULER_DUPEFILTER_CLASS = "orbweb.adapters.scrapy.dupefilter.RFPDupeFilter"
SCHEDULER_PERSIST = False

START_URLS_KEY = "%(name)s:start_urls"
START_URLS_AS_SET = False
START_URLS_AS_ZSET = False
REDIS_KEY_CHECK_INTERVAL: int | None = None
"""Seconds after which a key of higher rank is looked for; None: when the current one is empty."""
MAX_IDLE_TIME = 0
"""Seconds without work after which a spider closes; 0 = never."""
