"""How a worker joins a run, and what the project's settings say of one that it finds."""

from __future__ import annotations

import asyncio
import time

from redis.exceptions import RedisError

from orbweb.adapters.scrapy.config import FLEET_MS, RoomConfig
from orbweb.engine.session import Session
from orbweb.errors import StoreUnavailable
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.base import Opened, RunState
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.log import get_logger

ALIVE_MS = 45_000
"""A worker that spoke within this time is taken to be at work."""

CLOSING_SECONDS = 1.0
"""A worker sees the end of its run within this time."""

log = get_logger("orbweb.scrapy")


async def join_run(
    session: Session, frontier: ValkeyFrontier, admin: Admin, config: RoomConfig
) -> Opened:
    """Make the run, or join the one that is there.

    A finished one is joined if it is kept, or was done a moment ago by several workers, of which
    this may be a late one; else a new one takes its place. `flush` makes a new one too, unless
    others are at work on the old one.
    """
    opened = await session.open(config.run)
    if config.flush and opened.state is not RunState.NEW:
        return await _flush(session, admin, config, opened)
    if opened.status.state is not RunState.DONE or config.persist:
        return opened
    if await _workers_of(session, frontier) > 1:
        return opened
    await asyncio.sleep(CLOSING_SECONDS)  # its worker may not have seen the end yet
    return await _begin_anew(session, admin, config, opened)


async def _workers_of(session: Session, frontier: ValkeyFrontier) -> int:
    """How many have asked for work."""

    async def count() -> int:
        assert frontier.run is not None
        try:
            return int(await frontier.caller.execute("HLEN", frontier.run.claims))
        except (RedisError, OSError) as error:
            raise StoreUnavailable(f"workers: {error}") from error

    return await session.repeat(count)


async def _begin_anew(session: Session, admin: Admin, config: RoomConfig, opened: Opened) -> Opened:
    """Put a new run in the place of this one, unless somebody has done so already."""
    info = RunInfo(config.job, config.run_id, opened.epoch, opened.status)
    await admin.reset(info, seen=False, only=True)
    return await session.open(config.run)


async def _flush(session: Session, admin: Admin, config: RoomConfig, opened: Opened) -> Opened:
    info = RunInfo(config.job, config.run_id, opened.epoch, opened.status)
    alive = [node for node in await admin.nodes(info) if node.silent_ms < ALIVE_MS]
    if alive:
        log.warning(
            "SCHEDULER_FLUSH_ON_START: nothing is flushed, %d others are at work on %s",
            len(alive),
            config.job,
        )
        return opened
    await admin.reset(info, seen=config.run.dedup_scope == "spider", only=True)
    return await session.open(config.run)


def say_found(opened: Opened, config: RoomConfig) -> None:
    """Tell of a run that was there before."""
    status = opened.status
    if status.state is RunState.DONE and config.source is None:
        ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.finished_at_ms / 1000))
        again = "" if config.persist else f", or start again in {FLEET_MS // 1000} seconds"
        log.warning(
            "nothing to do: %s was finished at %s, %d pages done, %d failed. To crawl again set "
            "SCHEDULER_FLUSH_ON_START or another ORBWEB_RUN_ID%s",
            config.job,
            ended,
            status.reasons.get("done", 0),
            status.dead,
            again,
        )
    elif waiting := status.queued + status.delayed + status.leased:
        log.info("Resuming crawl (%d requests scheduled)", waiting)


async def leave_run(frontier: ValkeyFrontier, node: str) -> None:
    """Take the node off the list of those at work, so that nobody waits for it."""
    if frontier.run is not None:
        await frontier.caller.execute("ZREM", frontier.run.nodes, node)
        await frontier.caller.execute("HDEL", frontier.run.beats, node)
