"""Every setting, declared once: name, kind, default, unit, what it does, when a change counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from orbweb.settings.kinds import (
    CODES,
    COUNT,
    FIELDS,
    FLAG,
    INTERVAL,
    NUMBER,
    OPTIONAL_TEXT,
    PATHS,
    RATE,
    SIZE,
    TEXT,
    TEXTS,
    Kind,
)
from orbweb.settings.version import own_version

MIB = 1024 * 1024
GIB = 1024 * MIB
DAY = 86_400


class When(StrEnum):
    """When a changed setting counts."""

    HOT = "hot"
    """At once, in a node that runs: see `orbweb config`."""
    NEXT_RUN = "next-run"
    """When the next run of the job is made: a run keeps it for its life."""
    RESTART = "restart"
    """When a node is started again."""


HOT, NEXT_RUN = When.HOT, When.NEXT_RUN


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting."""

    name: str
    kind: Kind
    default: Any
    text: str
    """One sentence: what it does, and what 0 or empty means."""
    unit: str = ""
    low: float | None = None
    """The least value allowed."""
    above: float | None = None
    """The value must be greater than this."""
    most: float | None = None
    """The greatest value allowed."""
    choices: tuple[str, ...] = ()
    when: When = When.RESTART
    """When a change counts."""
    secret: bool = False
    """It may carry a password: it is masked wherever it is shown."""


STORE = (
    Setting("REDIS_URL", TEXT, "", "Address of the Redis (>= 7.0) or Valkey (>= 8) that all nodes "
            "share, or of some servers of a cluster (redis://a:6379,b:6379); empty = the embedded "
            "Valkey of this directory.", secret=True),
    Setting("REDIS_KEY_PREFIX", TEXT, "orbweb", "First part of every key in the store."),
    Setting("FRONTIER_SHARDS", COUNT, 1, "Over how many parts the queue of a run is spread, by "
            "host; one serves thousands of pages a second, more are for a Redis Cluster.",
            "shards", low=1, when=NEXT_RUN),
    Setting("STORE_TIMEOUT", NUMBER, 5.0, "How long one call to the store may take before it is "
            "repeated.", "seconds", above=0),
    Setting("RUN_ID", TEXT, "", "Identity of this execution; the same on all its nodes. Empty = "
            "one lasting run of the spider."),
    Setting("RUN_TTL", NUMBER, 7.0 * DAY, "How long a run with a RUN_ID is kept after its last "
            "sign of life; 0 = for ever.", "seconds", low=0),
    Setting("DEDUP_FILTER", TEXT, "exact", "How seen requests are remembered; memory and lite: in "
            "this process alone.",
            choices=("exact", "compact", "set", "bloom", "bloom-module", "memory", "lite"),
            when=NEXT_RUN),
    Setting("DEDUP_SCOPE", TEXT, "auto", "Which requests count as seen: those of this run, or "
            "those of all runs of the spider; auto = run when RUN_ID is set, else spider.",
            choices=("auto", "run", "spider"), when=NEXT_RUN),
    Setting("DEDUP_INITIAL_CAPACITY", COUNT, 1_000_000, "For how many requests the first layer of "
            "bloom, bloom-module, memory or compact is made; each further one is for twice as "
            "many.", "requests", low=1, when=NEXT_RUN),
    Setting("DEDUP_ERROR_RATE", NUMBER, 1e-6, "How often the first layer of bloom, bloom-module "
            "or memory takes a new request for a seen one; each further one half as often.",
            above=0, most=0.5, when=NEXT_RUN),
    Setting("DEDUP_MAX_LAYERS", COUNT, 4, "Most layers of bloom or memory; what comes after the "
            "last is full makes it err more and more.", "layers", low=1, most=32, when=NEXT_RUN),
    Setting("DEDUP_WARN_FILL_RATE", NUMBER, 0.8, "At this part of the capacity of all layers of "
            "bloom the log warns, once.", above=0, most=1),
    Setting("DEDUP_GENERATION", NUMBER, 0.0, "Seen requests are kept in generations of this "
            "length, so that `orbweb dedup forget JOB --older-than AGE` can forget old ones; 0 = "
            "in one.", "seconds", low=0, when=NEXT_RUN),
    Setting("DEDUP_ALLOW_LOCAL", FLAG, False, "Let a Spider use memory or lite, although each of "
            "its processes then crawls every page anew."),
    Setting("DROP_QUERY_PARAMS", TEXTS, (), "Query parameters that do not make a URL another "
            "one, such as utm_source."),
    Setting("SPIDER_SEED_LOCK_TTL", NUMBER, float(DAY), "A finished run older than this counts "
            "as absent: the next start seeds again.", "seconds", above=0),
    Setting("SPIDER_TASK_LEASE", NUMBER, 60.0, "How long a silent node keeps the requests it "
            "holds; live nodes renew in time.", "seconds", low=0.5),
    Setting("HEARTBEAT_INTERVAL", NUMBER, 3.0, "How often a node renews its leases and says that "
            "it lives.", "seconds", above=0),
    Setting("SPIDER_KEEP_ALIVE", FLAG, False, "Stay and wait for more work instead of ending."),
    Setting("SEED_BATCH", COUNT, 200, "How many start requests enter the store in one step.",
            "requests", low=1),
    Setting("MAX_DELIVERIES", COUNT, 5, "A request handed out this often without an answer is "
            "given up: it kills its nodes.", "times", low=1),
)  # fmt: skip

TASKS = (
    Setting("TASK_POLL_INTERVAL", NUMBER, 2.0, "How long a TaskSpider waits before it looks for "
            "tasks again when there were none.", "seconds", above=0),
    Setting("TASK_BATCH_SIZE", COUNT, 100, "How many tasks it takes in one step.", "tasks", low=1),
    Setting("TASK_EXHAUST_POLLS", COUNT, 3, "After so many looks in a row without a task, with "
            "nothing left to do, it ends (not with SPIDER_KEEP_ALIVE).", "looks", low=1),
    Setting("TASK_DEDUP", FLAG, False, "What one task has crawled is seen for all others too; "
            "False = each crawls for itself."),
)  # fmt: skip

CRAWL = (
    Setting("CONCURRENT_REQUESTS", COUNT, 16, "Requests that one node works on at once.",
            "requests", low=1, when=HOT),
    Setting("CONCURRENT_REQUESTS_PER_DOMAIN", COUNT, 8, "Fetches at once on one host, over all "
            "nodes; 0 = no limit.", "requests", low=0, when=HOT),
    Setting("DOWNLOAD_DELAY", NUMBER, 0.0, "Least time between two fetches of one host, over all "
            "nodes.", "seconds", low=0, when=HOT),
    Setting("RANDOMIZE_DOWNLOAD_DELAY", FLAG, False, "Make each delay longer by up to a half, "
            "never shorter.", when=HOT),
    Setting("AUTOTHROTTLE_ENABLED", FLAG, False, "Find out for each host, once for all nodes, how "
            "fast it can be fetched without harm; DOWNLOAD_DELAY stays the least delay.", when=HOT),
    Setting("AUTOTHROTTLE_START_DELAY", NUMBER, 1.0, "Delay with which that begins.", "seconds",
            above=0, when=HOT),
    Setting("AUTOTHROTTLE_MAX_DELAY", NUMBER, 60.0, "Longest delay that it comes to.", "seconds",
            above=0, when=HOT),
    Setting("CIRCUIT_FAILURE_THRESHOLD", COUNT, 10, "After so many failed fetches of a host in a "
            "row all nodes leave it alone for a time; 0 = never.", "fetches", low=0, when=HOT),
    Setting("CIRCUIT_COOLDOWN", NUMBER, 60.0, "How long they do so at first; afterwards one "
            "request tries it, and each time that it fails too the time doubles.", "seconds",
            above=0, when=HOT),
    Setting("HOST_BACKLOG_LIMIT", COUNT, 0, "Hosts with more waiting requests than this come after "
            "all others; 0 = no limit.", "requests", low=0, when=HOT),
    Setting("MAX_PENDING", COUNT, 0, "start_requests pauses while more requests than this are not "
            "finished; 0 = no limit.", "requests", low=0),
    Setting("REQUIRE_RATE_APPROVAL", FLAG, False, "Fetch hosts without an approved rate no faster "
            "than UNAPPROVED_RATE."),
    Setting("UNAPPROVED_RATE", RATE, "0.5/s", "Rate of such hosts over all nodes: 2/s, 30/m, "
            "100/h or 1/10s."),
    Setting("MAX_HOLD", NUMBER, 3600.0, "A request that a node has held this long is given back.",
            "seconds", above=0),
    Setting("WATCHDOG_TIMEOUT", NUMBER, 300.0, "When the event loop of a node has not moved for "
            "this long, the node stops renewing its leases.", "seconds", above=0),
    Setting("GRACEFUL_TIMEOUT", NUMBER, 4.0, "How long requests in work may go on after SIGTERM "
            "before they are given back.", "seconds", low=0),
    Setting("SPIDER_MAX_RUNTIME", NUMBER, 0.0, "Stop gracefully after this time; 0 = never.",
            "seconds", low=0, when=HOT),
    Setting("CALLBACK_THREADS", COUNT, 4, "Threads that run callbacks that are not async.",
            "threads", low=1),
    Setting("DEPTH_LIMIT", COUNT, 0, "Links deeper than this are dropped; 0 = no limit.",
            "links", low=0, when=HOT),
    Setting("URL_LENGTH_LIMIT", COUNT, 8192, "Longer URLs are dropped; 0 = no limit.",
            "characters", low=0, when=HOT),
    Setting("ALLOWED_DOMAINS", TEXTS, (), "Only these domains and those below them; "
            "empty = all.", when=HOT),
    Setting("EXCLUDE_URLS", TEXTS, (), "Regular expressions: URLs in which one of them finds "
            "something are left out, queued ones too.", when=HOT),
    Setting("INCLUDE_URLS", TEXTS, (), "The same: URLs in which none of them finds something are "
            "left out; empty = all are in.", when=HOT),
    Setting("SPIDER_MAX_RETRY_TIMES", COUNT, 3, "How often a failed request is tried again.",
            "times", low=0, when=HOT),
    Setting("SPIDER_RETRY_INTERVAL", NUMBER, 1.0, "Wait before the first retry.", "seconds",
            low=0, when=HOT),
    Setting("RETRY_BACKOFF", NUMBER, 2.0, "Each further retry waits this many times longer; "
            "1 = always the same.", low=1, when=HOT),
    Setting("RETRY_MAX_INTERVAL", NUMBER, 300.0, "Longest wait before a retry.", "seconds",
            low=0, when=HOT),
    Setting("RETRY_AFTER_MAX", NUMBER, 3600.0, "Longest Retry-After that is followed; 0 = the "
            "header is not looked at.", "seconds", low=0, when=HOT),
)  # fmt: skip

DOWNLOAD = (
    Setting("USER_AGENT", TEXT, f"orbweb/{own_version()}", "What the crawler says it is; add how "
            "to reach you.", when=HOT),
    Setting("ROBOTS_OBEY", FLAG, True, "Follow robots.txt (RFC 9309)."),
    Setting("ROBOTS_USER_AGENT", TEXT, "", "Name looked for in robots.txt; empty = the product "
            "name in USER_AGENT."),
    Setting("ROBOTS_CACHE_TTL", NUMBER, 3600.0, "How long a robots.txt is believed.", "seconds",
            above=0),
    Setting("ROBOTS_CRAWL_DELAY_MAX", NUMBER, 60.0, "Longest crawl-delay of a robots.txt that is "
            "kept to; a longer one counts as this.", "seconds", low=0),
    Setting("REQUEST_TIMEOUT", NUMBER, 30.0, "Longest time for one fetch as a whole.", "seconds",
            above=0, when=HOT),
    Setting("CONNECT_TIMEOUT", NUMBER, 10.0, "Longest time to connect, TLS included.", "seconds",
            above=0, when=HOT),
    Setting("READ_TIMEOUT", NUMBER, 20.0, "Longest silence while an answer arrives.", "seconds",
            above=0, when=HOT),
    Setting("MAX_RESPONSE_SIZE", SIZE, 32 * MIB, "Largest body, counted after decompression; "
            "0 = no limit.", "bytes", low=0, when=HOT),
    Setting("MAX_REDIRECTS", COUNT, 10, "Most redirects followed for one request.", "redirects",
            low=0, when=HOT),
    Setting("ALLOWED_CONTENT_TYPES", TEXTS, (), "Prefixes of content types that are read; "
            "empty = all."),
    Setting("CHECK_STATUS_CODE", FLAG, True, "Only good answers reach the callback; False = all "
            "do."),
    Setting("RETRY_STATUS_CODES", CODES, (408, 429, 500, 502, 503, 504, 522, 524), "Status codes "
            "that are tried again.", when=HOT),
    Setting("ACCEPT_STATUS_CODES", CODES, (), "Status codes, besides 2xx, that reach the "
            "callback.", when=HOT),
    Setting("USE_SESSION", FLAG, False, "Keep the cookies that sites set, and send them back."),
    Setting("DOWNLOADER_MIDDLEWARES", PATHS, (), "Classes that see every request and answer, in "
            "this order."),
)  # fmt: skip

PROXIES = (
    Setting("PROXY_ENABLE", FLAG, True, "Send requests through the proxies of PROXY_LIST and "
            "PROXY_FILE, where one of them is set; False = straight to the hosts.", when=HOT),
    Setting("PROXY_LIST", TEXTS, (), "Proxies that requests go through in turn: "
            "http://user:password@host:port, https://… or socks5://….", secret=True, when=HOT),
    Setting("PROXY_FILE", TEXT, "", "File with a proxy a line, read again when it has changed; "
            "beside PROXY_LIST.", when=HOT),
    Setting("PROXY_COOLDOWN", NUMBER, 60.0, "How long a proxy rests from a host for which it has "
            "failed; the time doubles with each further failure in a row.", "seconds", above=0,
            when=HOT),
    Setting("PROXY_COOLDOWN_MAX", NUMBER, 900.0, "Longest such rest.", "seconds", above=0,
            when=HOT),
    Setting("PROXY_COOLDOWN_STATUS_CODES", CODES, (403, 429), "Status codes of an answer after "
            "which its proxy rests from that host; 407 always.", when=HOT),
    Setting("PROXY_SUSPECT_BAN_AFTER", COUNT, 3, "So many exchanges in a row that broke off count "
            "as a failure of the proxy.", "exchanges", low=1, when=HOT),
)  # fmt: skip

CONFIG = (
    Setting("CONFIG_SOURCE", TEXT, "", "Where live values come from besides the store: "
            "file:orbweb.live.toml, etcd://host/prefix/, "
            "consul://host/prefix/ or nacos://host/DATA_ID; empty = nowhere.", secret=True),
)  # fmt: skip

OUTPUT = (
    Setting("ITEM_PIPELINES", PATHS, ("orbweb.pipelines.jsonl.JsonLinesPipeline",), "Classes "
            "that store items; each gets every item."),
    Setting("ITEM_DEFAULT_TABLE", TEXT, "items", "Table of items that do not name one."),
    Setting("ITEM_FILTER_ENABLE", FLAG, True, "Leave out items whose `__unique_key__` is stored "
            "already by this job, in the scope of DEDUP_SCOPE."),
    Setting("GATES", TEXTS, (), "Conditions that a finished run must meet, such as items>=100 or "
            "missing(price)<2%; else its exit code is 4."),
    Setting("QUALITY_ENABLE", FLAG, True, "Count duplicates, and missing values and types of each "
            "field, over all nodes."),
    Setting("QUALITY_MAX_DUPLICATES", NUMBER, 0.01, "Part of the items that may have been there "
            "already before a warning; 0 = no limit.", "of 1", low=0),
    Setting("QUALITY_BASELINE_RUNS", COUNT, 10, "How many earlier runs of the job tell what is "
            "usual; 0 = none.", "runs", low=0),
    Setting("ITEM_MAX_CACHED_COUNT", COUNT, 5000, "When this many items wait to be stored, the "
            "node takes no further requests.", "items", low=1),
    Setting("ITEM_MAX_CACHED_SIZE", SIZE, 64 * MIB, "The same when the items that wait hold about "
            "so much text and data, such as 64 MiB.", "bytes", low=1),
    Setting("BUFFER_FLUSH_INTERVAL", NUMBER, 0.1, "Longest time that items wait for others to be "
            "stored with.", "seconds", low=0),
    Setting("OUTPUT_DIR", TEXT, "", "Folder of the files with items; empty = the working "
            "directory."),
    Setting("OUTPUT_FILE", TEXT, "", "The one file of JsonLinesFile and CsvFile, the pipelines of "
            "`orbweb run SPIDER -o FILE`."),
    Setting("ITEM_REDIS_URL", TEXT, "", "Redis or Valkey of StreamPipeline and ListPipeline; empty "
            "= the store of the run.", secret=True),
    Setting("ITEM_STREAM", TEXT, "orbweb:items", "The stream of StreamPipeline, and what `orbweb "
            "consume` reads by default."),
    Setting("REDIS_ITEMS_KEY", TEXT, "{table}:items", "The list of ListPipeline; `{table}` stands "
            "for the item's table."),
    Setting("KAFKA_BOOTSTRAP_SERVERS", TEXTS, ("localhost:9092",), "Brokers that Kafka clients ask "
            "first."),
    Setting("KAFKA_TOPIC", TEXT, "orbweb-items", "Topic of KafkaPipeline; `{table}` in it stands "
            "for the item's table."),
    Setting("KAFKA_OPTIONS", TEXTS, (), "Options of librdkafka as NAME=VALUE, for example "
            "security.protocol=SASL_SSL.", secret=True),
    Setting("LOGSTATS_INTERVAL", NUMBER, 60.0, "Time between two log lines about the progress, "
            "where no live line is shown; 0 = none.", "seconds", low=0),
    Setting("LOG_LEVEL", TEXT, "INFO", "Least level of a log line.",
            choices=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"), when=HOT),
    Setting("LOG_LEVELS", TEXTS, (), "Levels of single loggers as NAME=LEVEL, for example "
            "orbweb.keeper=DEBUG,spider.shop=WARNING.", when=HOT),
    Setting("LOG_FILE", OPTIONAL_TEXT, None, "File that log lines go to besides stderr."),
    Setting("LOG_FORMAT", TEXT, "text", "Log lines for people, or JSON objects for machines.",
            choices=("text", "json")),
    Setting("LOG_COLOR", FLAG, True, "Colour on stderr when that is a terminal and NO_COLOR is not "
            "set."),
    Setting("LOG_ROTATION", TEXT, "50 MB", "LOG_FILE begins anew at this size (50 MB) or age "
            "(1 day); empty = never."),
    Setting("LOG_RETENTION", TEXT, "10 days", "How long such ended files are kept: an age (10 "
            "days), or how many (5); empty = all."),
    Setting("CRAWL_LOG_ENABLE", FLAG, True, "Write one line for each outcome, which `orbweb log` "
            "and `orbweb explain` read."),
    Setting("CRAWL_LOG_DIR", TEXT, "", "Folder of these lines; empty = `.orbweb/log` in the "
            "working directory."),
    Setting("CRAWL_LOG_MAX_SIZE", SIZE, 50 * MIB, "A file of the crawl log that is larger is "
            "packed and another one begun; 0 = no limit.", "bytes", low=0),
    Setting("CRAWL_LOG_MAX_AGE", NUMBER, float(DAY), "The same of one that is older; 0 = no limit.",
            "seconds", low=0),
    Setting("CRAWL_LOG_KEEP_SIZE", SIZE, 5 * GIB, "Packed files beyond this, all together, are "
            "removed, the oldest first; 0 = none.", "bytes", low=0),
    Setting("CRAWL_LOG_KEEP_AGE", NUMBER, 10.0 * DAY, "Packed files that are older are removed; "
            "0 = none.", "seconds", low=0),
    Setting("CRAWL_LOG_STREAM", COUNT, 0, "So many of the latest lines of a job are also kept in "
            "the store, for all machines; 0 = none.", "lines", low=0),
    Setting("RUN_SUMMARY_ENABLE", FLAG, True, "Print one line ORBWEB_RUN_SUMMARY {json} at the "
            "end."),
)  # fmt: skip

FAILURES = (
    Setting("FAILED_RESPONSE_MAXSIZE", SIZE, 64 * 1024, "So much of the last body of a request "
            "that is given up is kept in the store, packed; 0 = no response is kept.", "bytes",
            low=0),
    Setting("FAILED_RESPONSES_KEPT", COUNT, 1000, "Of so many failed requests of a run (of each "
            "of its shards) the response is kept.", "responses", low=0),
)  # fmt: skip

DATABASES = (
    Setting("SQL_URL", TEXT, "", "Database of SqlPipeline: postgresql://…, mysql://… or "
            "sqlite:///file.db.", secret=True),
    Setting("SQL_CREATE_TABLES", FLAG, False, "Make tables and columns that are missing; False = "
            "items without a table are refused."),
    Setting("SQL_ON_CONFLICT", TEXT, "nothing", "What becomes of an item whose row is there "
            "already by a unique key: it is left out, overwrites the row, or is refused.",
            choices=("nothing", "update", "error")),
    Setting("SQL_LEDGER_DAYS", NUMBER, 30.0, "How long a database remembers which pages it holds; "
            "0 = for ever.", "days", low=0),
    Setting("MYSQL_HOST", TEXT, "localhost", "Server of MysqlPipeline."),
    Setting("MYSQL_PORT", COUNT, 3306, "Port of MysqlPipeline's server.", low=1),
    Setting("MYSQL_USER", TEXT, "root", "User of MysqlPipeline."),
    Setting("MYSQL_PASSWORD", TEXT, "", "Password of MysqlPipeline.", secret=True),
    Setting("MYSQL_DB", TEXT, "orbweb", "Database of MysqlPipeline."),
    Setting("MYSQL_UPDATE_ON_DUPLICATE", FLAG, True, "An item whose row is there already "
            "overwrites it (MysqlPipeline)."),
    Setting("POSTGRES_HOST", TEXT, "localhost", "Server of PostgresPipeline."),
    Setting("POSTGRES_PORT", COUNT, 5432, "Port of PostgresPipeline's server.", low=1),
    Setting("POSTGRES_USER", TEXT, "postgres", "User of PostgresPipeline."),
    Setting("POSTGRES_PASSWORD", TEXT, "", "Password of PostgresPipeline.", secret=True),
    Setting("POSTGRES_DB", TEXT, "orbweb", "Database of PostgresPipeline."),
    Setting("POSTGRES_ON_CONFLICT", TEXT, "nothing", "As SQL_ON_CONFLICT, for PostgresPipeline.",
            choices=("nothing", "update", "error")),
    Setting("POSTGRES_CONFLICT_TARGET", TEXTS, (), "Columns of the unique key that "
            "POSTGRES_ON_CONFLICT update goes by; empty = the item's own."),
    Setting("MONGO_URI", TEXT, "mongodb://localhost:27017", "Server of MongoPipeline.",
            secret=True),
    Setting("MONGO_DB", TEXT, "orbweb", "Database of MongoPipeline."),
    Setting("ELASTICSEARCH_HOSTS", TEXTS, ("http://localhost:9200",), "Nodes of the Elasticsearch "
            "or OpenSearch cluster of ElasticsearchPipeline.", secret=True),
)  # fmt: skip

BATCHES = (
    Setting("BATCH_SQL_URL", TEXT, "", "Database of the task table: postgresql://…, mysql://… or "
            "sqlite:///file.db; empty = SQL_URL, or else MYSQL_HOST and its like where one of "
            "them is set.", secret=True),
    Setting("BATCH_INTERVAL", INTERVAL, "7", "A batch begins so often, in BATCH_INTERVAL_UNIT; or "
            "a cron line: minute, hour, day, month, day of the week."),
    Setting("BATCH_INTERVAL_UNIT", TEXT, "day", "Unit of a BATCH_INTERVAL that is a number.",
            choices=("day", "hour")),
    Setting("BATCH_TIME_ZONE", TEXT, "", "Time zone of a cron line, such as Asia/Shanghai; empty "
            "= that of the machine."),
    Setting("BATCH_UNFINISHED", TEXT, "carry", "What becomes of a batch that is not done when the "
            "next one is due: it goes on and the next one waits, or it is given up.",
            choices=("carry", "abandon")),
    Setting("BATCH_MONITOR_INTERVAL", NUMBER, 10.0, "How often the master of the batches writes "
            "down and logs how far a batch is.", "seconds", above=0),
    Setting("BATCH_PUSH_LIMIT", COUNT, 1000, "How many rows are handed to the nodes in one step.",
            "rows", low=1, most=5000),
    Setting("BATCH_RECORD_TABLE", TEXT, "orbweb_batches", "Table with one row for each batch; it "
            "is made beside the task table."),
    Setting("BATCH_TASK_ID_FIELD", TEXT, "id", "Column of the task table that names a row."),
    Setting("BATCH_TASK_STATE_FIELD", TEXT, "batch_status", "Column of a row's state: 0 to do, 2 "
            "in progress, 1 done, -1 failed."),
    Setting("BATCH_TASK_TIME_FIELD", TEXT, "update_time", "Column that gets the time of each "
            "change of state, where the table has it."),
    Setting("BATCH_TASK_BATCH_FIELD", TEXT, "batch_id", "Column with the number of the batch to "
            "which the state of a row belongs."),
    Setting("BATCH_TASK_CONDITION", TEXT, "", "SQL condition: only rows that meet it are tasks; "
            "empty = all are."),
)  # fmt: skip

ALARMS = (
    Setting("WARNING_ENABLE", FLAG, True, "Nodes judge the fleet, one of them at a time, and tell "
            "of alarms; False = only `orbweb alerts watch` does.", ),
    Setting("WARNING_FEISHU_WEBHOOK", TEXT, "", "Address of a Feishu or Lark robot that gets "
            "alarms.", secret=True),
    Setting("WARNING_DINGTALK_WEBHOOK", TEXT, "", "Address of a DingTalk robot that gets alarms.",
            secret=True),
    Setting("WARNING_DINGTALK_SECRET", TEXT, "", "Secret with which that robot wants letters "
            "signed; empty = unsigned.", secret=True),
    Setting("WARNING_WECHAT_WEBHOOK", TEXT, "", "Address of a WeCom robot that gets alarms.",
            secret=True),
    Setting("WARNING_EMAIL", FIELDS, {}, "Mail that gets alarms: host, port, user, password, to, "
            "ssl.", secret=True),
    Setting("ALERTS_CHANNELS", TEXTS, (), "Further channels, as NAME=URL: https://… is a webhook "
            "that gets JSON; feishu+, dingtalk+ and wecom+https://… are robots; any other address "
            "is Apprise's (slack://…, mailto://…, tgram://…).", secret=True),
    Setting("ALERTS_ROUTES", TEXTS, (), "Who gets which alarms, as `severity=high owner=li: ops "
            "mail`; words: severity (this or worse), owner, job, rule. Without any, every channel "
            "gets all."),
    Setting("ALERTS_OWNER", TEXT, "", "Whose spider this is, for ALERTS_ROUTES."),
    Setting("ALERTS_LANGUAGE", TEXT, "auto", "Language of alarms; auto = Chinese for Feishu, "
            "DingTalk and WeCom, English for others.", choices=("auto", "en", "zh")),
    Setting("ALERTS_QUIET_HOURS", TEXT, "", "Time of the day, such as 23:00-07:00, in which alarms "
            "up to ALERTS_QUIET_SEVERITY wait; empty = none."),
    Setting("ALERTS_QUIET_SEVERITY", TEXT, "mid", "The worst alarms that wait in quiet hours.",
            choices=("info", "mid", "high")),
    Setting("ALERTS_TIME_ZONE", TEXT, "", "Time zone of ALERTS_QUIET_HOURS, such as "
            "Asia/Shanghai; empty = that of the machine."),
    Setting("ALERTS_INTERVAL", NUMBER, 5.0, "How often the fleet is judged.", "seconds",
            low=0.1, most=20),
    Setting("ALERTS_GROUP_WAIT", NUMBER, 3.0, "How long a first alarm of a run waits for others, "
            "to be one message with them.", "seconds", low=0),
    Setting("WARNING_INTERVAL", NUMBER, 300.0, "Least time between two messages on one alarm "
            "(a rule, a run and its node, host or pipeline).", "seconds", low=0, when=HOT),
    Setting("ALERTS_CALM", NUMBER, 10.0, "How long a thing must be well again before its alarm is "
            "resolved.", "seconds", low=0, when=HOT),
    Setting("ALERTS_WINDOW", NUMBER, 60.0, "Over how long rates are measured.", "seconds", low=1,
            when=HOT),
    Setting("ALERTS_HEARTBEAT_URL", TEXT, "", "Address that is fetched while the fleet is judged "
            "and alarms can be told: a service there raises the alarm when that stops.",
            secret=True),
    Setting("ALERTS_HEARTBEAT_INTERVAL", NUMBER, 60.0, "How often.", "seconds", above=0),
    Setting("ALERTS_NODE_SILENT", NUMBER, 60.0, "Alarm node_silent: you are told when a node has "
            "not spoken for so long; 0 = never, as of each threshold below.", "seconds", low=0,
            when=HOT),
    Setting("ALERTS_NODE_STUCK", NUMBER, 30.0, "Alarm zombie: the event loop of a node stands "
            "still for so long.", "seconds", low=0, when=HOT),
    Setting("ALERTS_BACKLOG", COUNT, 100_000, "Alarm backlog: more requests wait, and they become "
            "more.", "requests", low=0, when=HOT),
    Setting("ALERTS_BACKLOG_FOR", NUMBER, 300.0, "For how long.", "seconds", low=0, when=HOT),
    Setting("WARNING_STALL_SECONDS", NUMBER, 600.0, "Alarm no_progress: requests wait, but no good "
            "page for so long.", "seconds", low=0, when=HOT),
    Setting("ALERTS_NOTHING_DONE", NUMBER, float(DAY), "Alarm nothing_done: a job's latest run has "
            "ended without a page within this time.", "seconds", low=0, when=HOT),
    Setting("ALERTS_RUN_LOST", NUMBER, float(DAY), "Alarm run_lost: nodes found that their run is "
            "not in the store any more, within this time.", "seconds", low=0, when=HOT),
    Setting("ALERTS_SCHEDULE_LATE", NUMBER, 60.0, "Alarm schedule_missed: a batch is due for so "
            "long and not opened.", "seconds", low=0, when=HOT),
    Setting("WARNING_FAILED_RATE", NUMBER, 0.5, "Alarm failure_rate: a larger part of the attempts "
            "of the last minutes failed.", "of 1", low=0, most=1, when=HOT),
    Setting("WARNING_MIN_REQUESTS", COUNT, 50, "The same: over at least so many attempts.",
            "requests", low=1, when=HOT),
    Setting("WARNING_FAILED_COUNT", COUNT, 1000, "Alarm failed_requests: so many requests of a run "
            "were given up.", "requests", low=0, when=HOT),
    Setting("ALERTS_BLOCKED_RATE", NUMBER, 0.2, "Alarm blocked: a host refuses a larger part of "
            "the requests with 403, 429 or a challenge page.", "of 1", low=0, most=1, when=HOT),
    Setting("ALERTS_DNS_RATE", NUMBER, 0.2, "Alarm dns_failure: a larger part of the attempts "
            "finds no address for the host.", "of 1", low=0, most=1, when=HOT),
    Setting("ALERTS_SINK_DOWN", NUMBER, 30.0, "Alarm sink_down: a pipeline could not store a "
            "batch for so long.", "seconds", low=0, when=HOT),
    Setting("ALERTS_DISK", NUMBER, 0.9, "Alarm disk_full: so much of a node's disk is used.",
            "of 1", low=0, most=1, when=HOT),
    Setting("ALERTS_CPU", NUMBER, 0.85, "Alarm cpu: a node uses more of its core.", "of 1", low=0,
            when=HOT),
    Setting("ALERTS_CPU_FOR", NUMBER, 600.0, "For how long.", "seconds", low=0, when=HOT),
    Setting("ALERTS_STORE_MEMORY", NUMBER, 0.85, "Alarm store_memory: the store uses so much of "
            "its maxmemory.", "of 1", low=0, most=1, when=HOT),
    Setting("ALERTS_STORE_DOWN", NUMBER, 30.0, "Alarm store_unreachable: the store does not answer "
            "for so long.", "seconds", low=0, when=HOT),
    Setting("ALERTS_CONSUMER_STUCK", NUMBER, 45.0, "Alarm consumer_stuck: an `orbweb consume` is "
            "silent, or has not stored what it took, for so long.", "seconds", low=0, when=HOT),
    Setting("ALERTS_CONFIG_DRIFT", NUMBER, 60.0, "Alarm config_drift: a node has had older live "
            "values for so long.", "seconds", low=0, when=HOT),
    Setting("ALERTS_SOURCE_DOWN", NUMBER, 30.0, "Alarm source_unreachable: a source of live values "
            "or of tasks does not answer for so long.", "seconds", low=0, when=HOT),
)  # fmt: skip

METRICS = (
    Setting("METRICS_PORT", COUNT, -1, "Each node serves its own metrics for Prometheus here; 0 = "
            "on a free port, -1 = not at all (`orbweb metrics serve` tells those of the fleet).",
            low=-1, most=65535),
    Setting("METRICS_HOST", TEXT, "127.0.0.1", "Address on which it does so; 0.0.0.0 = all, for "
            "anybody who can reach them."),
    Setting("OTLP_ENDPOINT", TEXT, "", "Each node sends its metrics and traces to this collector "
            "of OpenTelemetry, such as http://127.0.0.1:4318; empty = nowhere."),
    Setting("OTLP_HEADERS", TEXTS, (), "What it sends along, as name=value: what the collector "
            "wants for a login.", secret=True),
    Setting("OTLP_INTERVAL", NUMBER, 30.0, "How often metrics are sent.", "seconds", above=0),
    Setting("OTLP_TRACE_RATIO", NUMBER, 0.01, "Part of the requests of which a trace is sent: 1 = "
            "all, 0 = none.", low=0, most=1),
)  # fmt: skip

DECLARATIONS: Mapping[str, Setting] = MappingProxyType(
    {
        setting.name: setting
        for group in (
            *(STORE, CRAWL, TASKS, BATCHES, DOWNLOAD, PROXIES, CONFIG, OUTPUT),
            *(FAILURES, METRICS, DATABASES, ALARMS),
        )
        for setting in group
    }
)
"""All settings by name, in the order in which they are documented."""
