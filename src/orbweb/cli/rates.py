"""What `rates request|approve|revoke|list|export|log` do with the register of rates."""

from __future__ import annotations

import csv
import sys
import time
from dataclasses import asdict
from typing import Any

from orbweb.cli import show
from orbweb.cli.acts import Asked, because, ends, lasting, read_host, read_rate, say_undo
from orbweb.cli.store import ask
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin
from orbweb.frontier.hosttable import HostRow
from orbweb.frontier.rates import Rate, RateState
from orbweb.frontier.register import RateChange
from orbweb.model.rate import rate_text
from orbweb.settings import Settings

FORMATS = ("csv", "json")


def request(settings: Settings, host_text: str, rate: str, contact: str, asked: Asked) -> None:
    """Ask for a rate. Nothing changes until somebody approves it."""
    host, gap = read_host(host_text), read_rate(rate)
    if not contact.strip() or not asked.reason.strip():
        raise ConfigError("--contact and --reason must say something")

    async def act(admin: Admin) -> None:
        change = await admin.hosts.rates.request(host, gap, asked.author, contact)
        print(f"{host}: {rate_text(gap)} is asked for; {_valid(change.after, change.at_ms)}")
        show.note(f"next: orbweb rates approve {host} --by NAME")
        _say_undo(change, asked)

    ask(settings, act)


def approve(settings: Settings, host_text: str, rate: str | None, asked: Asked) -> None:
    """Make a rate the ceiling of the host: what was asked for, or the one that is named."""
    host, gap = read_host(host_text), None if rate is None else read_rate(rate)

    async def act(admin: Admin) -> None:
        change = await admin.hosts.rates.approve(host, gap, asked.author, asked.for_ms)
        print(f"{host}: {_valid(change.after, change.at_ms)}")
        row = await admin.hosts.look(host)
        show.note(f"now: {row.gap.rate}{_cause(row)}")
        _say_undo(change, asked)

    ask(settings, act)


def revoke(settings: Settings, host_text: str, asked: Asked) -> None:
    """Take an approval back, or turn a request down."""
    host = read_host(host_text)

    async def act(admin: Admin) -> None:
        change = await admin.hosts.rates.revoke(host, asked.author)
        was = change.before.text(change.at_ms) if change.before else ""
        print(f"{host}: {was} → revoked")
        show.note(
            "without an approval, runs with REQUIRE_RATE_APPROVAL fetch it at UNAPPROVED_RATE; "
            f"others at their own pace (to stop it: orbweb pause {host})"
        )
        _say_undo(change, asked)

    ask(settings, act)


def list_rates(settings: Settings, *, expired: bool, as_json: bool) -> None:
    """The register, and what each rate comes to now."""

    async def look(admin: Admin) -> list[tuple[Rate, HostRow]]:
        rates = await admin.hosts.rates.all()
        rows = await admin.hosts.look_at([rate.host for rate in rates])
        return [
            (rate, row)
            for rate, row in zip(rates, rows, strict=True)
            if not expired or rate.state(row.host.at_ms) is RateState.EXPIRED
        ]

    found = ask(settings, look)
    if as_json:
        show.as_json([rate_record(rate, row) for rate, row in found])
        return
    if not found:
        print("no rate has expired" if expired else "the register of rates is empty")
        return
    show.as_table(
        (
            *("HOST", "STATE", "CEILING", "ASKED", "EXPIRES", "APPROVER", "CONTACT"),
            *("NOW", "CLAMPED"),
        ),
        [
            (
                rate.host,
                rate.state(row.host.at_ms),
                _rate(rate.ceiling_ms),
                _rate(rate.asked_ms),
                show.moment(rate.expires_ms),
                rate.approver,
                rate.contact,
                f"{row.gap.rate}{_cause(row)}",
                row.host.clamped,
            )
            for rate, row in found
        ],
    )


def export(settings: Settings, form: str) -> None:
    """The register for other programs, on stdout."""
    if form not in FORMATS:
        raise ConfigError(f"--format {form} is none of {', '.join(FORMATS)}")

    async def look(admin: Admin) -> list[tuple[Rate, HostRow]]:
        rates = await admin.hosts.rates.all()
        return list(
            zip(rates, await admin.hosts.look_at([rate.host for rate in rates]), strict=True)
        )

    records = [rate_record(rate, row) for rate, row in ask(settings, look)]
    if form == "json":
        show.as_json(records)
        return
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(records)


def log(settings: Settings, host_text: str | None, *, limit: int, as_json: bool) -> None:
    """What operators did to hosts and runs, the latest first."""
    host = None if host_text is None else read_host(host_text)
    found = ask(settings, lambda admin: admin.hosts.trail(host))
    shown = found[: limit or None]
    if as_json:
        show.as_json([asdict(line) for line in shown])
        return
    if not found:
        print(f"nothing was done{f' to {host}' if host else ''} yet")
        return
    show.as_table(
        ("AT", "BY", "ACT", "ON", "BEFORE", "AFTER", "REASON"),
        [
            (
                show.moment(line.at_ms),
                line.by,
                line.verb,
                line.host or f"{line.job}{f' · run {line.run}' if line.run else ''}",
                line.before,
                line.after,
                line.why,
            )
            for line in shown
        ],
    )
    if len(found) > len(shown):
        show.note(f"… and {show.number(len(found) - len(shown))} older (--limit 0 shows all)")


COLUMNS = (
    *("host", "state", "ceiling", "asked", "expires", "approver", "contact", "requested_by"),
    *("reason", "changed", "now", "now_because", "clamped"),
)


def rate_record(rate: Rate, row: HostRow) -> dict[str, Any]:
    """An entry of the register for programs: rates as text, times in UTC (ISO 8601)."""
    return {
        "host": rate.host,
        "state": rate.state(row.host.at_ms),
        "ceiling": _rate(rate.ceiling_ms),
        "asked": _rate(rate.asked_ms),
        "expires": _utc(rate.expires_ms),
        "approver": rate.approver,
        "contact": rate.contact,
        "requested_by": rate.requested_by,
        "reason": rate.reason,
        "changed": _utc(rate.at_ms),
        "now": row.gap.rate,
        "now_because": row.gap.text if row.gap.ms else "",
        "clamped": row.host.clamped,
    }


def undo_of(change: RateChange, by: str) -> list[list[str]]:
    """The commands that bring the entry back to what it was before, as far as that was in force."""
    before, host = change.before, change.after.host
    state = before.state(change.at_ms) if before else None
    revoke = ["rates", "revoke", host, "--by", by, "--reason", "undone"]
    commands: list[list[str]] = []
    if before and state is RateState.APPROVED and before.ceiling_ms is not None:
        rest = lasting(before.expires_ms, change.at_ms)
        commands.append(["rates", "approve", host, rate_text(before.ceiling_ms), "--by", by, *rest])
    elif change.after.ceiling_ms is not None or state is not RateState.REQUESTED:
        commands.append(revoke)
    if before and before.asked_ms is not None:
        words = ["rates", "request", host, rate_text(before.asked_ms)]
        commands.append([*words, "--contact", before.contact, *because(before.reason)])
    return commands


def _say_undo(change: RateChange, asked: Asked) -> None:
    say_undo(asked, *undo_of(change, asked.author.by))


def _valid(rate: Rate, at_ms: int) -> str:
    if rate.ceiling_ms is None or rate.state(at_ms) is not RateState.APPROVED:
        return "nothing is approved yet"
    end = ends(rate.expires_ms, at_ms)
    return f"{rate_text(rate.ceiling_ms)} is approved by {rate.approver}, {end}"


def _cause(row: HostRow) -> str:
    return f" ({row.gap.text})" if row.gap.ms else ""


def _rate(gap_ms: int | None) -> str:
    return "" if gap_ms is None else rate_text(gap_ms)


def _utc(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000)) if at_ms else ""
