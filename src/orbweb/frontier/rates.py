"""A host's entry in the register of rates, and how it changes; no I/O."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from orbweb.errors import ConfigError
from orbweb.frontier.hosts import in_force
from orbweb.model.rate import rate_text


class RateState(StrEnum):
    """What an entry of the register is worth now."""

    REQUESTED = "requested"
    APPROVED = "approved"
    EXPIRED = "expired"
    REVOKED = "revoked"
    UNREADABLE = "unreadable"
    """Another version of Orbweb wrote it: the next act puts another entry in its place."""


_UNREADABLE = "this entry cannot be read: another version of Orbweb wrote it"


@dataclass(frozen=True, slots=True)
class Rate:
    """One host's entry. Rates are least gaps in ms; times are the server's wall clock in ms."""

    host: str
    asked_ms: int | None = None
    """The rate that waits for an approval; None when all that was asked for is answered."""
    ceiling_ms: int | None = None
    """The approved rate; None when there is none."""
    expires_ms: int = 0
    """When the approval ends."""
    contact: str = ""
    """Whom to reach at the site, or who answers for us."""
    requested_by: str = ""
    reason: str = ""
    approver: str = ""
    """Who approved the ceiling, or revoked it."""
    revoked: bool = False
    at_ms: int = 0
    """When the entry last changed."""

    def state(self, at_ms: int) -> RateState:
        if self.ceiling_ms is not None:
            valid = in_force(self.expires_ms, at_ms)
            return RateState.APPROVED if valid else RateState.EXPIRED
        if self.revoked:
            return RateState.REVOKED
        unread = self.asked_ms is None and self.reason == _UNREADABLE
        return RateState.UNREADABLE if unread else RateState.REQUESTED

    def text(self, at_ms: int) -> str:
        """For the audit trail: `approved 2/s`, `requested 4/s`."""
        state = self.state(at_ms)
        rate = self.ceiling_ms if self.ceiling_ms is not None else self.asked_ms
        return str(state) if rate is None else f"{state} {rate_text(rate)}"


def requested(
    old: Rate | None, host: str, gap_ms: int, *, by: str, contact: str, why: str, at_ms: int
) -> Rate:
    """Ask for a rate. An approval that is there stays in force until it is answered."""
    if old and old.ceiling_ms == gap_ms and old.state(at_ms) is RateState.APPROVED:
        raise ConfigError(f"{rate_text(gap_ms)} is approved for {host} already")
    return replace(
        old or Rate(host),
        asked_ms=gap_ms,
        contact=contact or (old.contact if old else ""),
        requested_by=by,
        reason=why,
        revoked=False,
        at_ms=at_ms,
    )


def approved(
    old: Rate | None, host: str, gap_ms: int | None, *, by: str, expires_ms: int, at_ms: int
) -> Rate:
    """Approve a rate, by default the one that was asked for."""
    if gap_ms is None:
        gap_ms = old.asked_ms if old else None
    if gap_ms is None:
        raise ConfigError(
            f"nobody has asked for a rate for {host}: name one, as in "
            f"`orbweb rates approve {host} 2/s`, or begin with `orbweb rates request`"
        )
    return replace(
        old or Rate(host),
        asked_ms=None,
        ceiling_ms=gap_ms,
        expires_ms=expires_ms,
        approver=by,
        revoked=False,
        at_ms=at_ms,
    )


def revoked(old: Rate | None, host: str, *, by: str, why: str, at_ms: int) -> Rate:
    """Take back an approval, or turn down what was asked for."""
    if old is None or old.revoked:
        raise ConfigError(f"the register has no rate for {host} that could be revoked")
    return replace(
        old,
        asked_ms=None,
        ceiling_ms=None,
        expires_ms=0,
        approver=by,
        reason=why,
        revoked=True,
        at_ms=at_ms,
    )


def pack(rate: Rate) -> str:
    """An entry as it stands in the store."""
    return json.dumps(asdict(rate), ensure_ascii=False, sort_keys=True)


def unpack(host: str, text: bytes) -> Rate:
    """Read what `pack` wrote of a host; fields of later versions are left out."""
    try:
        fields: dict[str, Any] = json.loads(text)
        return Rate(**{name: fields[name] for name in Rate.__slots__ if name in fields})
    except (ValueError, TypeError):
        return Rate(host, reason=_UNREADABLE)
