"""The live line over several workers: the parent asks the store, as it does no work itself."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from pathlib import Path

from orbweb.cli.store import question_at
from orbweb.cli.watch import living
from orbweb.errors import OrbwebError
from orbweb.frontier.admin import Admin, NodeInfo, RunInfo
from orbweb.frontier.embedded import EmbeddedStore
from orbweb.model.reasons import Reason
from orbweb.settings import Settings
from orbweb.spiders.progress import Snapshot, left_out, limit_of

RATE_SECONDS = 10.0


class Fleet:
    """Looks at a run from outside, at most as often as it is asked."""

    def __init__(self, settings: Settings, job: str, run: str | None) -> None:
        """`run` None is the latest one of the job, whichever that is at the time."""
        self._settings = settings
        self._job = job
        self._run = run
        self._epoch = ""
        self._started = time.monotonic()
        self._samples: deque[tuple[float, int]] = deque()

    def look(self) -> Snapshot | None:
        """The run now; None while there is no store, no run or no answer."""
        url = self._settings["REDIS_URL"]
        if not url:
            embedded = EmbeddedStore(Path.cwd())
            if not embedded.folder.is_dir() or not embedded.status().running:
                return None
            url = embedded.url
        try:
            info, nodes = asyncio.run(question_at(url, self._settings, self._ask))
        except OrbwebError:
            return None
        return self._snapshot(info, nodes)

    async def _ask(self, admin: Admin) -> tuple[RunInfo, list[NodeInfo]]:
        info = await admin.find(self._job, self._run)
        return info, await admin.nodes(info)

    def _snapshot(self, info: RunInfo, nodes: list[NodeInfo]) -> Snapshot:
        counts, now = info.status, time.monotonic()
        pages = counts.reasons.get(Reason.DONE, 0)
        if info.epoch != self._epoch:  # another run is the latest now
            self._epoch = info.epoch
            self._samples.clear()
        self._samples.append((now, pages))
        while now - self._samples[0][0] > RATE_SECONDS:
            self._samples.popleft()
        since, before = self._samples[0]
        limits = Counter(str(node.said.get("limited_by", "")) for node in living(nodes))
        return Snapshot(
            elapsed_seconds=now - self._started,
            pages=pages,
            pages_per_second=(pages - before) / (now - since) if now > since else 0.0,
            items=counts.items,
            waiting=counts.queued + counts.delayed,
            failed=counts.dead,
            skipped=left_out(counts.reasons),
            limited_by=limit_of(limits.most_common(1)[0][0], counts) if limits else "",
        )
