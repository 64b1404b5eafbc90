"""What is said at the end of a run: a line for programs, and a few words for a person."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

from orbweb.engine.report import SUMMARY_PREFIX
from orbweb.spiders.progress import left_out, reasons_text
from orbweb.spiders.wording import counted, duration, number

ENDS = {"done": "Done", "stopped": "Stopped early", "joined_finished": "Nothing to do"}


def tell_end(summary: Mapping[str, Any], *, live: bool, wanted: bool) -> None:
    """Print the summary line on stdout if it is `wanted`, and the words on stderr if `live`.

    Where a person has seen the live line and would see the summary line too, the words are enough.
    """
    if wanted and not (live and sys.stdout.isatty()):
        line = json.dumps(summary, ensure_ascii=False, default=str)
        print(f"{SUMMARY_PREFIX} {line}", flush=True)
    if live:
        print(end_text(summary), file=sys.stderr)


def end_text(summary: Mapping[str, Any]) -> str:
    """How a run ended, for a person. `summary` is that of the summary line."""
    run = summary.get("run") or {}
    pages = run.get("pages", summary.get("request_ok", 0))
    items = run.get("items", summary.get("items", 0))
    failed = run.get("dead", summary.get("request_failed", 0))
    skipped = left_out({**summary.get("reasons", {}), **run.get("reasons", {})})
    state = summary.get("state", "failed")
    said = (
        f"{ENDS.get(state, state)} in {duration(summary.get('elapsed', 0))}"
        f" · {counted(pages, 'page')} · {counted(items, 'item')}"
        f" · {number(failed)} failed · skipped {reasons_text(skipped, most=9)}"
    )
    quality = summary.get("quality") or {}
    return "\n".join(
        [
            said,
            *(f"  items: {output}" for output in summary.get("outputs", ())),
            *(f"  unusual: {text}" for text in quality.get("unusual", ())),
            *(f"  {text}" for text in quality.get("failed_gates", ())),
        ]
    )
