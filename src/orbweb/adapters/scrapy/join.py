"""How a worker joins a run, and what the project's settings say of one that it finds."""

from __future__ import annotations

import asyncio
import time

from orbweb.adapters.scrapy.config import CLOSING_MS, RoomConfig
from orbweb.engine.session import Session
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.base import Opened, RunState
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.log import get_logger

ALIVE_MS = 45_000
"""A worker that spoke within this time is taken to be at work."""

AGAIN_SECONDS = 0.25

log = get_logger("orbweb.scrapy")


async def join_run(session: Session, admin: Admin, config: RoomConfig) -> Opened:
    """Make the run, or join the one that is there.

    A finished one is joined only if it is kept; else a new one takes its place, a moment after its
    end. `flush` makes a new one too, unless others are at work on the old one.
    """
    opened = await session.open(config.run)
    if config.flush and opened.state is not RunState.NEW:
        opened = await _flush(session, admin, config, opened)
    while opened.status.state is RunState.DONE and not config.persist:
        await asyncio.sleep(min(CLOSING_MS / 1000, AGAIN_SECONDS))
        opened = await session.open(config.run)
    return opened


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
    if status.state is RunState.DONE:
        ended = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.finished_at_ms / 1000))
        log.warning(
            "nothing to do: %s was finished at %s, %d pages done, %d failed. To crawl again set "
            "SCHEDULER_FLUSH_ON_START or another ORBWEB_RUN_ID",
            config.job,
            ended,
            status.reasons.get("done", 0),
            status.dead,
        )
    elif waiting := status.queued + status.delayed + status.leased:
        log.info("Resuming crawl (%d requests scheduled)", waiting)


async def leave_run(frontier: ValkeyFrontier, node: str) -> None:
    """Take the node off the list of those at work, so that nobody waits for it."""
    if frontier.run is not None:
        await frontier.caller.execute("ZREM", frontier.run.nodes, node)
        await frontier.caller.execute("HDEL", frontier.run.beats, node)
