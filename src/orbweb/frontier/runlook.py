"""By what a run in the store is fetched now, compared with what a node comes with."""

from __future__ import annotations

from redis.asyncio import Redis

from orbweb.frontier.base import RunConfig, RunState
from orbweb.frontier.keys import ShardKeys, clean
from orbweb.frontier.server import answer_of

NO_LIMIT = 1_000_000
"""As which the store keeps a concurrency without a limit."""


class RunLook:
    """One run of a job, looked at before a node joins it. May raise `StoreUnavailable`."""

    def __init__(self, client: Redis, prefix: str, job: str, run: str) -> None:
        self._client = client
        self._keys = ShardKeys(prefix)
        self._job = job
        self._run = run

    async def differences(self, config: RunConfig) -> list[tuple[str, str, str]]:
        """By setting what the living run is fetched by, and what `config` would put in its place.

        Empty when there is no run, it has ended, or it goes by the same.
        """
        name = f"{clean(self._job)}:{clean(self._run)}"
        epoch = await answer_of(self._client.hget(self._keys.current, name))
        if epoch is None:
            return []
        meta = self._keys.run(self._job, self._run, epoch.decode()).meta
        fields = ("state", "delay", "concurrency", "retries")
        state, *found = await answer_of(self._client.hmget(meta, fields))
        if state is None or state.decode() != RunState.RUNNING:
            return []
        delay, most, retries = (int(each or 0) for each in found)
        most = 0 if most >= NO_LIMIT else most
        compared = (
            ("DOWNLOAD_DELAY", delay, config.host_delay_ms, 1000),
            ("CONCURRENT_REQUESTS_PER_DOMAIN", most, config.host_concurrency, 1),
            ("SPIDER_MAX_RETRY_TIMES", retries, config.max_retries, 1),
        )
        return [
            (name, f"{before / scale:g}", f"{after / scale:g}")
            for name, before, after, scale in compared
            if before != after
        ]
