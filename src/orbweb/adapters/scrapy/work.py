"""What a crawl does with one lease, from the request that Scrapy is given to the outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from scrapy import Request

from orbweb.engine.pacer import Turn
from orbweb.frontier.base import Ack, Lease, Nack, NewRequest
from orbweb.model.reasons import Reason

LONGEST_ERROR = 2000
"""Characters of an error text that are kept with a dead letter."""


@dataclass(slots=True, eq=False)
class Work:
    """A lease in Scrapy's hands. It is over when the callback has come to its end, all its items
    are through the pipelines, and all requests that only this worker can do are over too."""

    lease: Lease | None
    """None for a request that cannot travel: it is done here, and its page's lease waits for it."""
    request: Request | None
    """None for start entries."""
    turn: Turn | None = None
    """When its host may be sent it."""
    parent: Work | None = None
    children: list[NewRequest] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)
    """Fingerprints of its links."""
    yielded: int = 0
    emitted: int = 0
    items: int = 0
    local: int = 0
    """Requests found here that only this worker can do."""
    slot: str | None = None
    """Where it takes room in the downloader."""
    answered: bool = False
    """A response came to the callback or the errback."""
    reason: Reason | None = None
    error: str = ""
    skipped: Counter[Reason] = field(default_factory=Counter)
    give_back: bool = False
    lost: bool = False
    ended: bool = False
    """Scrapy is done with it."""
    told: bool = False
    """Its outcome was handed in."""

    @property
    def root(self) -> Work:
        """The work whose lease answers for this."""
        work = self
        while work.parent is not None:
            work = work.parent
        return work

    def fail(self, reason: Reason, error: str) -> None:
        """Note what went wrong, unless something did before. With an error it is a dead letter."""
        if self.reason is None:
            self.reason, self.error = reason, error[:LONGEST_ERROR]

    def outcome(self) -> Ack | Nack | None:
        """What the store is told; None when the lease is another's."""
        lease = self.lease
        if lease is None or self.lost:
            return None
        if self.give_back:
            return Nack(*lease.held, counted=False, reason=Reason.STOPPED)
        reason = self.reason or (Reason.DONE if self.answered else Reason.CANCELLED)
        return Ack(
            *lease.held,
            reason,
            self.items,
            tuple(self.children),
            self.error,
            tuple(self.skipped.items()),
            self.emitted,
        )
