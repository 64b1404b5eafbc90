"""What several workers come to together: one exit code, one summary."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

SEVERITY = (0, 3, 75, 4, 2, 1)
"""Exit codes from the best to the worst; codes of aborts (130, 143) are worse than all."""


def worst(codes: Iterable[int]) -> int:
    """The exit code that says most: a crash before a stop before a good end.

    Workers that found nothing to do (3) do not count when others did something, and those that
    stopped early (75) do not when another one brought the run to its end (0).
    """
    known = set(codes)
    if len(known) > 1:
        known.discard(3)
    if 0 in known:
        known.discard(75)
    return max(known, key=lambda code: SEVERITY.index(code) if code in SEVERITY else len(SEVERITY))


def add_summaries(found: Sequence[dict[str, Any]], workers: int) -> dict[str, Any]:
    """Add the counts of several nodes; what is said of the run is taken from the last one."""
    if not found:
        return {}
    latest: dict[str, Any] = max(found, key=_progress_of)
    total = dict(latest)
    for name, value in total.items():
        if name in _ADDED and isinstance(value, int):
            total[name] = sum(summary.get(name, 0) for summary in found)
    total["rate"] = round(sum(float(summary.get("rate", 0)) for summary in found), 2)
    nodes = [summary.get("node", {}) for summary in found]
    reasons = _added(node.get("reasons", {}) for node in nodes)
    total["reasons"] = {**reasons, **total.get("run", {}).get("reasons", {})}
    total["node"] = {
        "pages": sum(node.get("pages", 0) for node in nodes),
        "items": sum(node.get("items", 0) for node in nodes),
        "reasons": reasons,
    }
    outputs = [output for summary in found for output in summary.get("outputs", ())]
    total["outputs"] = list(dict.fromkeys(outputs))
    total["workers"] = workers
    return total


_ADDED = frozenset(
    {"request_ok", "request_failed", "retry", "dropped", "robots_dropped", "content_type_dropped"}
    | {"parse_error", "items", "item_dedup_dropped", "item_failed", "dedup_degraded"}
)


def _progress_of(summary: Mapping[str, Any]) -> tuple[int, float]:
    """The summary with the most pages of the run was made last."""
    return int(summary.get("run", {}).get("pages", 0)), float(summary.get("elapsed", 0))


def _added(tables: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for table in tables:
        for name, count in table.items():
            total[name] = total.get(name, 0) + count
    return total
