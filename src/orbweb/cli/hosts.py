"""What `hosts` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from orbweb.cli import show
from orbweb.cli.acts import ends
from orbweb.cli.store import ask
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.hosttable import HostRow, Sort
from orbweb.frontier.waiting import WaitReason
from orbweb.settings import Settings

PAUSED = (WaitReason.HOST_PAUSED, WaitReason.RUN_PAUSED)


def hosts(
    settings: Settings, *, sort: str, job: str | None, limit: int, host: str | None, as_json: bool
) -> None:
    """The hosts with the most of something, and why each of them waits; or one host."""
    order = _order(sort)

    async def look(admin: Admin) -> tuple[int, list[HostRow]]:
        if host is not None:
            return 1, [await admin.hosts.look(host)]
        if job is not None:
            await admin.find(job)
        return await admin.hosts.hosts(order, limit, job)

    total, rows = ask(settings, look)
    if as_json:
        show.as_json({"total": total, "hosts": [host_record(row) for row in rows]})
        return
    if not rows:
        print("no host is known here: nothing is queued")
        return
    show.as_table(
        ("HOST", "QUEUED", "RETRY", "IN WORK", "RATE", "AT MOST", "GOOD", "BAD", "WAITING BECAUSE"),
        [
            (
                row.host.name,
                row.host.backlog,
                row.delayed,
                row.host.slots,
                f"{row.host.rate:.2f}/s",
                row.gap.rate,
                row.host.good,
                row.host.bad,
                because_text(row),
            )
            for row in rows
        ],
    )
    if total > len(rows):
        more = show.number(total - len(rows))
        show.note(f"… and {more} more of {show.counted(total, 'host')} (--limit 0 shows all)")


def because_text(row: HostRow) -> str:
    """Why a host waits, and for how long."""
    wait, at_ms = row.wait, row.host.at_ms
    if wait.reason in PAUSED:
        end = ends(wait.until_ms, at_ms) if wait.until_ms else "until it is resumed"
        return f"{wait.text}, {end}"
    if not wait.until_ms:
        return wait.text
    return f"{wait.text}, for {show.duration((wait.until_ms - at_ms) / 1000)} more"


def host_record(row: HostRow) -> dict[str, Any]:
    """A host as JSON. Gaps are the least ms between two fetches, times the server's clock in ms."""
    host = row.host
    return {
        "host": host.name,
        "queued": host.backlog,
        "delayed": row.delayed,
        "in_work": host.slots,
        "rate": round(host.rate, 3),
        "taken": host.taken,
        "good": host.good,
        "bad": host.bad,
        "bad_in_a_row": host.streak,
        "clamped": host.clamped,
        "gap_ms": row.gap.ms,
        "gap_reason": row.gap.reason if row.gap.ms else None,
        "limit": host.limit and asdict(host.limit),
        "pause": host.pause and asdict(host.pause),
        "live": asdict(host.live),
        "crawl_delay_ms": host.crawl_delay_ms,
        "ceiling_ms": host.ceiling_ms,
        "ceiling_until_ms": host.ceiling_until_ms if host.ceiling_ms is not None else None,
        "waiting_because": wait_record(row),
        "at_ms": host.at_ms,
    }


def wait_record(row: HostRow) -> dict[str, Any]:
    return {"reason": row.wait.reason, "text": row.wait.text, "until_ms": row.wait.until_ms or None}


def _order(sort: str) -> Sort:
    if sort not in set(Sort):
        raise ConfigError(f"--sort {sort} is none of {', '.join(Sort)}")
    return Sort(sort)
