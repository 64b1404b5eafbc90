"""What the steps of an engine work with: the seams around a step, and the services it is given."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from orbweb.download.base import Gate, Outcome
from orbweb.engine.answers import Answers
from orbweb.engine.callbacks import Callbacks, Spider
from orbweb.engine.errands import Errands
from orbweb.engine.items import ItemDesk
from orbweb.engine.knobs import Knobs
from orbweb.engine.ledger import Ledger
from orbweb.engine.options import Codec, EngineOptions
from orbweb.engine.outputs import Admission
from orbweb.engine.pacer import PacerTools
from orbweb.engine.session import Session
from orbweb.engine.stats import Stats
from orbweb.engine.traces import KnownErrors
from orbweb.frontier.base import Ack, Nack
from orbweb.model.reasons import Reason
from orbweb.model.request import Request
from orbweb.monitor.trace import Tracer
from orbweb.pipelines.buffer import ItemBuffer

if TYPE_CHECKING:
    from orbweb.engine.step import Step


class Desk(Protocol):
    """Where steps hand in what came of them (the pump)."""

    def fetched(self, step: Step) -> None:
        """The body has arrived: the fetch slot is free."""

    def settle(self, step: Step, outcome: Ack | Nack) -> None:
        """The step is over with this outcome."""

    def drop(self, step: Step) -> None:
        """The step is over without an outcome, because its lease is lost."""


class DownloadChain(Protocol):
    """What the engine needs of `orbweb.download.chain.Chain`."""

    async def download(
        self,
        request: Request,
        *,
        download_midware: Callable[[Request], Any] | None = None,
        gate: Gate,
        admit: Callable[[Request], Awaitable[Reason | None]] | None = None,
    ) -> Outcome: ...

    async def sitemaps(self, url: str, gate: Gate) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class StepTools:
    """What every step of an engine works with."""

    options: EngineOptions
    knobs: Knobs
    epoch: str
    desk: Desk
    session: Session
    ledger: Ledger
    pacing: PacerTools
    chain: DownloadChain
    spider: Spider
    callbacks: Callbacks
    admission: Admission
    codec: Codec
    buffer: ItemBuffer
    items: ItemDesk
    stats: Stats
    clock: Callable[[], float]
    rng: random.Random
    answers: Answers = field(default_factory=Answers)
    errands: Errands | None = None
    tracer: Tracer | None = None
    known_errors: KnownErrors = field(default_factory=KnownErrors)

    def backoff_ms(self, retries: int, retry_after: float | None) -> int:
        """How long a request waits before its next try; full jitter of half to one and a half."""
        knobs = self.knobs
        if retry_after is not None:
            return int(retry_after * 1000 * self.rng.uniform(1.0, 1.1))
        seconds = knobs.retry_interval_seconds * knobs.retry_backoff**retries
        seconds = min(seconds * self.rng.uniform(0.5, 1.5), knobs.retry_longest_seconds)
        return int(seconds * 1000)
