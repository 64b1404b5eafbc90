"""Names from NetSpy, feapder and Scrapy: what each means here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SYNONYMS: Mapping[str, str] = MappingProxyType(
    {
        "thread_count": "CONCURRENT_REQUESTS",
        "THREAD_COUNT": "CONCURRENT_REQUESTS",
        "SPIDER_THREAD_COUNT": "CONCURRENT_REQUESTS",
        "KEEP_ALIVE": "SPIDER_KEEP_ALIVE",
        "ROBOTSTXT_OBEY": "ROBOTS_OBEY",
        "ROBOTSTXT_USER_AGENT": "ROBOTS_USER_AGENT",
        "DOWNLOAD_TIMEOUT": "REQUEST_TIMEOUT",
        "DOWNLOAD_MAXSIZE": "MAX_RESPONSE_SIZE",
        "RETRY_TIMES": "SPIDER_MAX_RETRY_TIMES",
        "RETRY_HTTP_CODES": "RETRY_STATUS_CODES",
        "HTTPERROR_ALLOWED_CODES": "ACCEPT_STATUS_CODES",
        "URLLENGTH_LIMIT": "URL_LENGTH_LIMIT",
        "REDIRECT_MAX_TIMES": "MAX_REDIRECTS",
        "CLOSESPIDER_TIMEOUT": "SPIDER_MAX_RUNTIME",
        "COOKIES_ENABLED": "USE_SESSION",
        "CSV_OUTPUT_DIR": "OUTPUT_DIR",
        "PROXY_BAN_SECONDS": "PROXY_COOLDOWN",
        "PROXY_BAN_MAX_SECONDS": "PROXY_COOLDOWN_MAX",
    }
)
"""Other frameworks' names of our settings."""

_EXACT_END = "the end of a run is exact, nothing has to be guessed"
_ONE_THROTTLE = "the throttle finds the rate by what it does to the host"
_EVENT_LOOP = "all requests of a node share one event loop"
_ONE_CONNECTION = "a pipeline writes one batch at a time, over one connection"
_DEAD_LETTERS = "failed requests stay in the store: see `orbweb failed`"

NEEDLESS: Mapping[str, str] = MappingProxyType(
    {
        "SPIDER_STARTUP_GRACE": _EXACT_END,
        "DONE_CHECK_TIMES": _EXACT_END,
        "DONE_CHECK_INTERVAL": _EXACT_END,
        "HEARTBEAT_STALE": f"{_EXACT_END}, and leases say which node is lost",
        "COLLECTOR_TASK_COUNT": "a node takes as many requests as it can work on",
        "REQUEST_BUFFER_MAX_CACHED": "new requests enter with the answer of their page",
        "GLOBAL_THROTTLE": "limits of a host always hold over all nodes",
        "DEDUP_TO_MD5": "fingerprints are numbers already",
        "AUTOTHROTTLE_TARGET_CONCURRENCY": _ONE_THROTTLE,
        "AUTOTHROTTLE_DEBUG": "what the throttle has found is kept in the store",
        "DOWNLOADER_ASYNC": _EVENT_LOOP,
        "DOWNLOADER_ASYNC_CONCURRENCY": _EVENT_LOOP,
        "ASYNC_THREADS_PER_LOOP": _EVENT_LOOP,
        "SESSION_CACHE_SIZE": _EVENT_LOOP,
        "SESSION_SHARD_THREADS": _EVENT_LOOP,
        "CURL_SESSION_SHARD_THREADS": _EVENT_LOOP,
        "DUMP_UNFINISHED_ON_EXIT": "unfinished requests stay in the store",
        "FAILED_REQUEST_PATH": _DEAD_LETTERS,
        "RETRY_FAILED_ON_START": f"{_DEAD_LETTERS} retry",
        "FAILED_ITEM_PATH": "items are kept until they are stored",
        "MYSQL_POOL_SIZE": _ONE_CONNECTION,
        "POSTGRES_POOL_SIZE": _ONE_CONNECTION,
        "BATCH_LOST_TASK_STALE": "tasks of a lost node return with its leases, not by their age",
        "PROJECT_NAME": "log lines carry the name of their module",
    }
)
"""Settings that have nothing left to say here, each with the reason; setting one gives a note."""

_DEFERRED_PREFIXES = (
    "METRICS_", "PROXY_", "RESPONSE_CACHE_", "USER_POOL_",
)  # fmt: skip
_DEFERRED_NAMES = frozenset(
    {
        "ANTIBOT_DETECT", "DEBUG", "DOWNLOADER_IMPERSONATE", "FEEDS",
        "HTTPCACHE_ENABLED", "HTTPX_HTTP2",
        "RANDOM_USER_AGENT", "SPIDER_MIDDLEWARES", "WEBDRIVER",
    }
)  # fmt: skip

DEDUP_FILTERS: Mapping[str, str] = MappingProxyType(
    {"redis": "bloom", "redis-bloom": "bloom", "redis-set": "set"}
)
"""NetSpy's names of duplicate filters."""

PIPELINES: Mapping[str, str] = MappingProxyType(
    {
        f"netspy.pipelines.{name}": f"orbweb.pipelines.{name}"
        for name in (
            "console.ConsolePipeline",
            "csv.CsvPipeline",
            "elasticsearch.ElasticsearchPipeline",
            "kafka.KafkaPipeline",
            "mongo.MongoPipeline",
            "mysql.MysqlPipeline",
            "postgres.PostgresPipeline",
        )
    }
)
"""NetSpy's pipelines, by the dotted paths that settings and items name them with."""


def is_deferred(name: str) -> bool:
    """Whether the setting belongs to a feature that this version does not have."""
    return name in _DEFERRED_NAMES or name.startswith(_DEFERRED_PREFIXES)
