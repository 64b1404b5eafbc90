"""What a node says of a run: while it goes on, and at its end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orbweb.frontier.base import Status

SUMMARY_PREFIX = "ORBWEB_RUN_SUMMARY"
SUMMARY_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot of a running node, for the progress line."""

    elapsed_seconds: float
    pages: int
    pages_per_second: float
    """Over the last ten seconds."""
    items: int
    failed: int
    retried: int
    skipped: dict[str, int]
    """Why links were not taken, on this node."""
    pending: int
    """Requests of the whole run that are not finished."""
    held: int
    fetching: int
    seeding: bool
    limited_by: str
    """What holds the node back: store, sink, concurrency, hosts, seeding or nothing."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """How a run ended for this node, and what the whole run has come to."""

    spider: str
    state: str
    """`done`, `stopped`, `joined_finished`, `failed` or `aborted`."""
    exit_code: int
    why: str
    elapsed_seconds: float
    counts: Mapping[str, Any]
    """This node's counts, by NetSpy's names."""
    reasons: Mapping[str, int]
    """How requests ended on this node, and why links were not taken."""
    run: Status | None
    """The counts of all nodes; None when the store could not be asked."""
    outputs: tuple[str, ...] = ()
    identity: Mapping[str, str] = field(default_factory=dict)
    """`run_id`, `namespace`, `redis_key` of a run in a store."""
    show_summary: bool = True
    """`RUN_SUMMARY_ENABLE`: the summary line is wanted on stdout."""

    @property
    def pages(self) -> int:
        """Good pages of the whole run, or of this node when the store could not be asked."""
        if self.run is None:
            return int(self.counts.get("request_ok", 0))
        return self.run.reasons.get("done", 0)

    def as_dict(self) -> dict[str, Any]:
        """The summary: NetSpy's fields for this node, then those of the whole run.

        `reasons` are those of the whole run, and of this node what the store does not count.
        """
        counts = dict(self.counts)
        run: dict[str, Any] = {}
        if self.run is not None:
            run = {name: getattr(self.run, name) for name in _RUN_COUNTS}
            run["state"] = str(self.run.state)
            run["pages"] = self.pages
            run["reasons"] = dict(self.run.reasons)
            counts["dedup_dropped"] = self.run.reasons.get("duplicate_request", 0)
        return {
            "schema": SUMMARY_SCHEMA,
            **counts,
            "spider": self.spider,
            **self.identity,
            "exit_code": self.exit_code,
            "state": self.state,
            "why": self.why,
            "reasons": {**self.reasons, **run.get("reasons", {})},
            "run": run,
            "node": {
                "pages": counts.get("request_ok", 0),
                "items": counts.get("items", 0),
                "reasons": dict(self.reasons),
            },
            "outputs": list(self.outputs),
        }

    def line(self) -> str:
        """The one line on stdout that other programs read."""
        return f"{SUMMARY_PREFIX} {json.dumps(self.as_dict(), ensure_ascii=False, default=str)}"


_RUN_COUNTS = (
    "pending",
    "queued",
    "leased",
    "delayed",
    "dead",
    "items",
    "retried",
    "reaped",
    "fenced",
    "seeding",
)
