"""Times, pages and filters in words."""

from __future__ import annotations

import time

from orbweb.frontier.urls import SeenMark
from orbweb.monitor.crawl_line import CrawlLine, time_ms
from orbweb.spiders.wording import counted, duration


def moment(at: int | str) -> str:
    """Local date and time of milliseconds since 1970, or of a line's time."""
    at_ms = time_ms(at) if isinstance(at, str) else at
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_ms / 1000))


def page_text(line: CrawlLine) -> str:
    """What a line says of a fetch: `done 200 · 48 KB · 0.14 s · 1 item · node d85d4547 · …`."""
    parts = [f"{line.kind} {line.status}" if line.status else line.kind]
    if line.bytes:
        parts.append(f"{line.bytes} bytes")
    if line.ms:
        parts.append(duration(line.ms / 1000))
    parts.append(counted(line.items, "item"))
    if line.links:
        parts.append(counted(line.links, "link"))
    if line.attempt > 1:
        parts.append(f"attempt {line.attempt}")
    if line.to:
        parts.append(f"redirected to {line.to}")
    return " · ".join([*parts, f"node {line.node[:8]}", moment(line.time)])


def seen_text(mark: SeenMark) -> str:
    """Whether and since when a request counts as seen, and by what."""
    scope = "all runs of the job share it" if mark.shared else "of this run"
    kind = f"{mark.kind}, {scope}"
    if mark.exactly:
        return f"known, kept apart exactly ({kind})"
    if mark.part:
        return f"known since generation {mark.part}, begun {moment(mark.begun_ms)} ({kind})"
    if mark.host_forgotten:
        times = counted(mark.host_forgotten, "time")
        return f"new; its host was forgotten {times} ({kind})"
    return f"new ({kind})"
