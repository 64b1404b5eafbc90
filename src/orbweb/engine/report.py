"""What a node says of a run: while it goes on, and at its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from orbweb.engine.shutdown import ExitCode
from orbweb.engine.stats import Stats
from orbweb.errors import ConfigError, RunLost, StoreUnsafe
from orbweb.frontier.base import Opened, RunState, Status
from orbweb.log import get_logger
from orbweb.model.reasons import Reason

SUMMARY_PREFIX = "ORBWEB_RUN_SUMMARY"
SUMMARY_SCHEMA = 1

_REFUSALS = frozenset(
    {
        Reason.OFFSITE,
        Reason.EXCLUDED,
        Reason.SCHEME,
        Reason.URL_LENGTH,
        Reason.DEPTH_LIMIT,
        Reason.NOT_SERIALIZABLE,
        Reason.BAD_URL,
    }
)
"""Why a request does not enter, whatever the store holds."""

log = get_logger("orbweb.engine")


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
    seeding_waits: bool
    """Seeding pauses, as more requests are pending than wanted (`MAX_PENDING`)."""
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
    quality: Mapping[str, Any] = field(default_factory=dict)
    """What the items of the whole run look like; empty when it was not looked at."""
    made: Mapping[str, Any] = field(default_factory=dict)
    """`version`, `code` and `settings` that this node runs with."""
    show_summary: bool = True
    """`RUN_SUMMARY_ENABLE`: the summary line is wanted on stdout."""
    run_lost: bool = False
    """The run was not in the store any more."""

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
            "quality": dict(self.quality),
            **self.made,
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


class Reporter:
    """Writes the report of a node: state, exit code, and what to do next."""

    def __init__(
        self,
        spider: str,
        stats: Stats,
        *,
        outputs: Callable[[], tuple[str, ...]],
        identity: Mapping[str, str],
        show_summary: bool,
        go_on: str = "",
    ) -> None:
        """`go_on`: how a run that has stopped is gone on with, where that is not by its id."""
        self._go_on = go_on
        self._spider = spider
        self._stats = stats
        self._outputs = outputs
        self._identity = identity
        self._show_summary = show_summary

    def opened(self, opened: Opened, node: str) -> None:
        """The node begins, or goes on with, a run."""
        joined = opened.state is not RunState.NEW
        log.info(
            "%s · run %s: %s; node %s, epoch %s",
            self._spider,
            self._identity.get("run_id") or "(default)",
            f"joined, {opened.status.pending} pending" if joined else "new",
            node,
            opened.epoch,
        )

    def done(self, status: Status | None) -> RunReport:
        """The run is done; one without a good page has an exit code of its own."""
        report = self._make("done", ExitCode.DONE, "the run is done", status)
        if status is None or report.pages or status.reasons.get("task_done"):
            log.info("the run is done: %s", _counted(report))
            return report
        why = f"the run ended without a single good page: {_counted(report)}"
        if not status.reasons:
            why += "; start_urls is empty and start_requests yielded nothing"
        elif status.reasons.keys() <= _REFUSALS:
            why += ": no seed was taken"
        log.warning("%s", why)
        return self._make("done", ExitCode.NOTHING_DONE, why, status)

    def stopped(self, reason: str, status: Status | None) -> RunReport:
        """The node stopped before the run was done."""
        run = self._identity.get("run_id")
        again = f"start again with RUN_ID {run} to go on" if run else "start again to go on"
        again = self._go_on or again
        if not self._identity:
            again = "nothing is kept without a store, so the next start begins anew"
        log.warning("stopped early (%s); %s", reason, again)
        return self._make("stopped", ExitCode.STOPPED, reason, status)

    def rested(self, reason: str, status: Status) -> RunReport:
        """The node was stopped when all tasks were done, and only their source was left."""
        report = self._make("stopped", ExitCode.DONE, f"{reason}; no task was left", status)
        log.info("stopped (%s) with no task left: %s", reason, _counted(report))
        return report

    def joined_finished(self, status: Status) -> RunReport:
        """The run had been done before this node came."""
        report = self._make("joined_finished", ExitCode.NOTHING_DONE, "", status)
        why = (
            f"this run was finished before: {_counted(report)}. Nothing was done now. "
            "Give the next run its own RUN_ID, or start with --fresh"
        )
        log.warning("%s", why)
        return replace(report, why=why)

    def unseeded(self, error: Exception, status: Status | None) -> RunReport:
        """`start_requests` failed; what had entered before was crawled."""
        why = f"start_requests failed: {error!r}; correct it and start again"
        return self._make("failed", ExitCode.CRASH, why, status)

    def aborted(self, code: int, reason: str) -> RunReport:
        """The node was told twice to end."""
        return self._make("aborted", code, reason, None)

    def failed(self, error: BaseException) -> RunReport:
        """The node cannot go on."""
        if isinstance(error, RunLost):
            log.error("%s This node stops; the run did not end.", str(error).rstrip(".") + ".")
        elif isinstance(error, ConfigError | StoreUnsafe):
            log.error("%s", error)
            return self._make("failed", ExitCode.USAGE, str(error), None)
        else:
            log.error("the node failed", exc_info=error)
        report = self._make("failed", ExitCode.CRASH, f"{type(error).__name__}: {error}", None)
        return replace(report, run_lost=isinstance(error, RunLost))

    def _make(self, state: str, code: int, why: str, status: Status | None) -> RunReport:
        return RunReport(
            spider=self._spider,
            state=state,
            exit_code=int(code),
            why=why,
            elapsed_seconds=self._stats.elapsed,
            counts=self._stats.as_summary_dict(),
            reasons=dict(self._stats.reasons),
            run=status,
            outputs=self._outputs(),
            identity=self._identity,
            show_summary=self._show_summary,
        )


def _counted(report: RunReport) -> str:
    """Pages and items, what is failed now, and what happened on the way: a failed request that was
    retried well since stands only in the last."""
    reasons: dict[str, Any] = dict(report.run.reasons) if report.run else {}
    items = report.run.items if report.run else 0
    parts = [_plural(report.pages, "page"), _plural(items, "item")]
    if report.run and any(_ended_otherwise(name) for name in reasons):
        parts.append(f"{report.run.dead} failed now; on the way: {', '.join(_reasons(reasons))}")
        return ", ".join(parts)
    return ", ".join([*parts, *_reasons(reasons)])


def _ended_otherwise(reason: str) -> bool:
    return reason != Reason.DONE and Reason(reason).phase == "ended"


def _reasons(counts: Mapping[str, int]) -> list[str]:
    return [f"{count} {name}" for name, count in sorted(counts.items()) if name != "done"]


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
