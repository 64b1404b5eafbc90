"""The servers of a store: reached, or started in the project's folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

from orbweb.engine.threads import CallbackThreads
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.embedded import EmbeddedStore
from orbweb.frontier.servers import Servers, judge_all, reach
from orbweb.log import get_logger
from orbweb.settings import Settings

log = get_logger("orbweb.engine")


async def open_servers(
    settings: Settings, directory: Path, stack: AsyncExitStack
) -> tuple[Servers, str, Callable[[], Awaitable[None]] | None]:
    """The store's servers, their URL, and what starts an embedded one again.

    Raises `ConfigError` and `StoreUnavailable`.
    """
    url, revive = settings["REDIS_URL"], None
    if not url:
        embedded = EmbeddedStore(directory)
        url = await asyncio.to_thread(embedded.__enter__)
        stack.push_async_callback(_release, embedded)
        revive = _reviver(embedded, stack)
    servers = await reach(url, settings["REDIS_KEY_PREFIX"], settings["STORE_TIMEOUT"])
    stack.push_async_callback(servers.aclose)
    return servers, url, revive


async def server_warnings(servers: Servers) -> list[str]:
    """What is to be said of the servers. A cluster may be choosing a new master just now."""
    try:
        return judge_all(await servers.facts())
    except StoreUnavailable as error:
        if not servers.several:
            raise
        return [f"a master of the cluster does not answer; its requests wait: {error}"]


async def _release(embedded: EmbeddedStore) -> None:
    """Leave the store. That it does not stop is no failure of a run that has ended."""
    try:
        await asyncio.to_thread(embedded.release)
    except (StoreUnavailable, OSError) as error:
        log.warning("the store was not stopped: %s", error)


def _reviver(embedded: EmbeddedStore, stack: AsyncExitStack) -> Callable[[], Awaitable[None]]:
    """Starts the embedded server again when it does not answer; on a thread that nobody awaits."""
    thread = CallbackThreads(1, "orbweb-store")
    stack.callback(thread.close)

    async def revive() -> None:
        try:
            await thread.run(embedded.ensure)
        except ConfigError as error:
            raise StoreUnavailable(str(error)) from error

    return revive
