"""Every metric, declared once: name, kind, labels, and what it says. Pages are written from it.

Names and units follow Prometheus' own rules: base units, `_total` for counters. Labels are bounded:
`run` to the runs that go on or have just ended, `node` to those that spoke lately, `domain` to the
hosts with the longest queues, `reason` to the closed list of reasons.
"""

from __future__ import annotations

from orbweb.metrics.exposition import Kind, Metric
from orbweb.monitor.counts import BYTES, SECONDS, STORE_SECONDS

RUN = ("spider", "run")


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"orbweb_{name}", Kind.GAUGE, text, labels)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"orbweb_{name}_total", Kind.COUNTER, text, labels)


def _histogram(name: str, text: str, bounds: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"orbweb_{name}", Kind.HISTOGRAM, text, labels, bounds)


BUILD_INFO = _gauge("build_info", "1; the version that tells these metrics.", "version")
STORE_UP = _gauge("store_up", "1 when the store has answered, 0 when it has not.")
STORE_ANSWER = _gauge("store_answer_seconds", "How long the store took to answer one short call.")
STORE_MEMORY = _gauge("store_memory_bytes", "Memory that a server of the store uses.", "server")
STORE_MEMORY_MAX = _gauge(
    "store_memory_max_bytes",
    "Memory that a server of the store may use; not told where there is no limit.",
    "server",
)
LOOK = _gauge("look_seconds", "How long it took to gather all this.")
CPU = _counter("exporter_cpu_seconds", "Processor time of the process that tells these metrics.")
DELIVERIES = _counter(
    "alert_delivery",
    "Tries to deliver an alert on a channel: sent, or refused by the service's own answer.",
    "channel",
    "result",
)
LEFT_OUT = _gauge("runs_left_out", "Runs that go on but are not told of, as there are too many.")

STATE = _gauge(
    "run_state",
    "1 for the state that a run is in: running, paused, stopping, resident or done.",
    *RUN,
    "state",
)
STARTED = _gauge("run_started_timestamp_seconds", "When a run was made.", *RUN)
FINISHED = _gauge(
    "run_finished_timestamp_seconds", "When a run came to its end; not told before.", *RUN
)
FRONTIER = _gauge(
    "frontier_requests",
    "Requests of a run: queued, delayed (for another attempt), leased (in work), outbox "
    "(on their way to another shard), dead (given up, kept for a person).",
    *RUN,
    "state",
)
HOSTS = _gauge("frontier_hosts", "Hosts for which a run has queued requests.", *RUN)
TASKS = _gauge("tasks_open", "Tasks of a run that have not ended.", *RUN)
SEEDING = _gauge("seeding", "1 as long as start_requests has not come to its end.", *RUN)
NODES = _gauge(
    "nodes", "Nodes of a run that spoke within the last minute and are not about to stop.", *RUN
)

REQUESTS = _counter(
    "requests",
    "Requests that ended: done (a good page), redirected, dropped, failed (given up); and of tasks "
    "task_done and other.",
    *RUN,
    "outcome",
)
FAILED = _counter(
    "requests_failed", "Requests that were given up, by the last reason.", *RUN, "reason"
)
SKIPPED = _counter(
    "requests_skipped",
    "Links and pages that were left out on purpose, by reason; duplicate_request is what "
    "the dedup filter held back.",
    *RUN,
    "reason",
)
RETRIES = _counter("retries", "Attempts that failed and are made again.", *RUN)
RETRIED = _counter(
    "retries_by_reason", "The same by reason, as nodes have counted them.", *RUN, "reason"
)
RECLAIMED = _counter(
    "leases_reclaimed",
    "Leases that ran out, as their node was dead or stuck; their requests went back to the queue.",
    *RUN,
)
FENCED = _counter(
    "leases_fenced", "Answers of nodes that had lost their lease, and changed nothing.", *RUN
)
REPAIRED = _counter(
    "frontier_repaired", "Entries that were put right after the store lost writes.", *RUN
)

RESPONSES = _counter(
    "responses",
    "Attempts by the class of their answer: 2xx, 3xx, 4xx, 5xx; none = there was no answer.",
    *RUN,
    "status",
)
DOWNLOAD = _histogram(
    "download_seconds", "From the send of a request to the end of its answer.", SECONDS, *RUN
)
SIZE = _histogram("response_size_bytes", "Length of a body, decompressed.", BYTES, *RUN)
WAIT = _histogram(
    "claim_to_send_seconds",
    "From the claim of a request to its first send: the host's turn, robots.txt, "
    "connecting. Before the claim nothing is measured.",
    SECONDS,
    *RUN,
)
STORE_CALL = _histogram(
    "store_call_seconds", "Calls of nodes to the store that were answered.", STORE_SECONDS, *RUN
)
OUTAGES = _counter("store_outages", "How often the store stopped answering a node.", *RUN)
PERMITS = _counter(
    "permits",
    "Turns of a host that were missed, or needed for a further send, and asked for.",
    *RUN,
)
LATE = _counter(
    "sends_late", "Sends that were later than their turn; the next one of the host was moved.", *RUN
)
LOST = _counter("leases_lost", "Work that nodes dropped because another has the lease.", *RUN)

STORED = _counter(
    "items_stored", "Items of pages that were acknowledged: exact, as the store counts it.", *RUN
)
ITEMS = _counter(
    "items",
    "Items by name: stored, filtered (known before) or failed, as nodes have counted them.",
    *RUN,
    "item",
    "outcome",
)
EXAMINED = _counter("items_examined", "Items whose fields were looked at.", *RUN, "item")
MISSING = _counter(
    "item_field_missing", "Items in which a field was empty or not there.", *RUN, "item", "field"
)
COMPARED = _counter("items_compared", "Items that were compared with all others of the run.", *RUN)
REPEATED = _counter(
    "items_repeated",
    "Of those, items that were there already: the duplicate rate is this by items_compared.",
    *RUN,
)
BAD_ITEMS = _gauge(
    "failed_items", "Items that a pipeline refused, and that wait for a person.", *RUN
)

SEEN = _gauge("dedup_requests", "Requests that count as seen.", *RUN)
CAPACITY = _gauge(
    "dedup_capacity_requests",
    "Requests for which the filter is made; not told where there is no end.",
    *RUN,
)
FILL = _gauge(
    "dedup_fill_ratio",
    "How full the filter is; 1 = as full as it was made for; 0 where there is no end.",
    *RUN,
)

DOMAIN_BACKLOG = _gauge(
    "domain_backlog",
    "Requests queued for a host, over all runs; other = all hosts beyond the longest queues.",
    "domain",
)
DOMAIN_FETCHES = _counter(
    "domain_fetches", "Requests of a host that were handed out, over all jobs.", "domain"
)
DOMAIN_ANSWERS = _counter(
    "domain_answers",
    "Answers of a host that showed it well (good) or ill (bad: timeout, broken "
    "connection, 429, 5xx).",
    "domain",
    "outcome",
)
DOMAIN_IN_WORK = _gauge("domain_slots", "Fetches from a host at this moment.", "domain")
RATE_LIMIT = _gauge(
    "rate_limit",
    "Fetches a second that a host is allowed now, whatever asks for it; not told where "
    "nothing does.",
    "domain",
)
CLAMPED = _counter(
    "rate_clamped", "Fetches that an approved ceiling, or the lack of one, slowed down.", "domain"
)
CIRCUIT = _gauge(
    "circuit_open", "1 while a host is left alone after bad answers in a row.", "domain"
)

NODE = ("node", "spider", "run")
BEAT = _gauge("node_heartbeat_timestamp_seconds", "When a node spoke last.", *NODE)
NODE_INFO = _gauge(
    "node_info",
    "1; where a node runs, and whether it is working, stopping or at its end.",
    *NODE,
    "host",
    "pid",
    "state",
)
NODE_LIMIT = _gauge(
    "node_limited",
    "1 for what holds a node back: store, sink, concurrency, hosts, seeding or nothing.",
    *NODE,
    "by",
)
NODE_PAGES = _counter("node_pages", "Good pages of a node.", *NODE)
NODE_ITEMS = _counter("node_items", "Items of a node.", *NODE)
NODE_FAILED = _counter("node_failed", "Requests that a node gave up.", *NODE)
NODE_HELD = _gauge("node_held", "Leases of a node in work.", *NODE)
NODE_FETCHING = _gauge("node_fetching", "Fetches of a node at this moment.", *NODE)
NODE_CPU = _gauge("node_cpu_ratio", "Processor time of a node: 1 = one core.", *NODE)
NODE_MEMORY = _gauge("node_resident_memory_bytes", "Memory of a node.", *NODE)
NODE_MEMORY_MAX = _gauge(
    "node_memory_limit_bytes",
    "Memory that a node may have: of the machine, or of its container.",
    *NODE,
)
NODE_RECEIVED = _counter(
    "node_received_bytes", "Answers that came to a node, heads included.", *NODE
)
NODE_SENT = _counter("node_sent_bytes", "Requests that a node sent, heads included.", *NODE)
NODE_DISK = _gauge("node_disk_size_bytes", "The disk on which a node works.", *NODE)
NODE_DISK_FREE = _gauge("node_disk_free_bytes", "What is free of it.", *NODE)
CONFIG_VERSION = _gauge(
    "config_version", "Version of the live configuration that a node has applied.", *NODE
)
SINK_WAITING = _gauge(
    "sink_waiting_seconds",
    "How long the oldest items wait for a pipeline of a node.",
    *NODE,
    "sink",
)

NODE_REQUESTS = _counter(
    "node_requests", "How requests ended on a node, and why links were not taken.", *NODE, "reason"
)
NODE_RETRIES = _counter("node_retries", "Attempts of a node that are made again.", *NODE, "reason")
NODE_RESPONSES = _counter("node_responses", "Answers to a node by class.", *NODE, "status")
NODE_DOWNLOAD = _histogram(
    "node_download_seconds", "As orbweb_download_seconds, of one node.", SECONDS, *NODE
)
NODE_SIZE = _histogram(
    "node_response_size_bytes", "As orbweb_response_size_bytes, of one node.", BYTES, *NODE
)
NODE_WAIT = _histogram(
    "node_claim_to_send_seconds", "As orbweb_claim_to_send_seconds, of one node.", SECONDS, *NODE
)
NODE_STORE_CALL = _histogram(
    "node_store_call_seconds", "As orbweb_store_call_seconds, of one node.", STORE_SECONDS, *NODE
)

OF_FLEET: dict[str, tuple[Metric, ...]] = {
    "Exporter and store": (
        *(
            BUILD_INFO,
            STORE_UP,
            STORE_ANSWER,
            STORE_MEMORY,
            STORE_MEMORY_MAX,
            LOOK,
            CPU,
            LEFT_OUT,
            DELIVERIES,
        ),
    ),
    "Runs": (STATE, STARTED, FINISHED, FRONTIER, HOSTS, TASKS, SEEDING, NODES),
    "Requests": (
        *(REQUESTS, FAILED, SKIPPED, RETRIES, RETRIED, RECLAIMED, FENCED, REPAIRED),
        *(RESPONSES, DOWNLOAD, SIZE, WAIT, STORE_CALL, OUTAGES, PERMITS, LATE, LOST),
    ),
    "Items": (STORED, ITEMS, EXAMINED, MISSING, COMPARED, REPEATED, BAD_ITEMS),
    "Deduplication": (SEEN, CAPACITY, FILL),
    "Domains": (
        *(DOMAIN_BACKLOG, DOMAIN_FETCHES, DOMAIN_ANSWERS, DOMAIN_IN_WORK),
        *(RATE_LIMIT, CLAMPED, CIRCUIT),
    ),
    "Nodes": (
        *(BEAT, NODE_INFO, NODE_LIMIT, NODE_PAGES, NODE_ITEMS, NODE_FAILED, NODE_HELD),
        *(NODE_FETCHING, NODE_CPU, NODE_MEMORY, NODE_MEMORY_MAX, NODE_RECEIVED, NODE_SENT),
        *(NODE_DISK, NODE_DISK_FREE, CONFIG_VERSION, SINK_WAITING),
    ),
}
"""What the scrape target of the fleet tells, in groups."""

OF_NODE: tuple[Metric, ...] = (
    *(NODE_REQUESTS, NODE_RETRIES, NODE_RESPONSES),
    *(NODE_DOWNLOAD, NODE_SIZE, NODE_WAIT, NODE_STORE_CALL),
)
"""What a node's own scrape target tells besides the metrics of the group "Nodes"."""

METRICS = {metric.name: metric for group in (*OF_FLEET.values(), OF_NODE) for metric in group}
"""All metrics by name."""
