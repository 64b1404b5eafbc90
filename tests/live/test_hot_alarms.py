"""Thresholds of alarms change in two nodes in the middle of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from tests.live.pair import Answer, Pair, working
from tests.live.proofs import proves
from tests.servers import Server

from orbweb.alarms.desk import ROLE
from orbweb.alarms.judge import decode
from orbweb.alarms.policy import policy_of
from orbweb.alarms.rules import limits_of
from orbweb.frontier.roles import Role
from orbweb.settings import DECLARATIONS

NAMES = (
    *("ALERTS_BACKLOG", "ALERTS_BACKLOG_FOR", "ALERTS_BLOCKED_RATE", "ALERTS_CALM"),
    *("ALERTS_CONFIG_DRIFT", "ALERTS_CONSUMER_STUCK", "ALERTS_CPU", "ALERTS_CPU_FOR"),
    *("ALERTS_DISK", "ALERTS_DNS_RATE", "ALERTS_NODE_SILENT", "ALERTS_NODE_STUCK"),
    *("ALERTS_NOTHING_DONE", "ALERTS_SCHEDULE_LATE", "ALERTS_SINK_DOWN", "ALERTS_SOURCE_DOWN"),
    *("ALERTS_STORE_DOWN", "ALERTS_STORE_MEMORY", "ALERTS_WINDOW", "WARNING_FAILED_RATE"),
    *("WARNING_INTERVAL", "WARNING_MIN_REQUESTS", "WARNING_STALL_SECONDS"),
)


def judged_by(pair: Pair) -> list[Any]:
    """By what the watch of each node judges now."""
    found = []
    for spider in pair.spiders:
        settings = spider._engine._parts.live.settings  # type: ignore[union-attr]
        found.append((limits_of(settings), policy_of(settings, ["x"]), settings["ALERTS_CALM"]))
    return found


@proves(*NAMES)
async def test_every_threshold_reaches_the_watch_of_both_nodes(
    live_server: Server, tmp_path: Path
) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.02) as pair:
        for name in NAMES:
            before = judged_by(pair)
            await pair.holds(name, "0.123" if DECLARATIONS[name].unit == "of 1" else "123")
            after = judged_by(pair)
            assert after[0] != before[0], name
            assert after[1] != before[1], name


@proves("WARNING_FAILED_COUNT")
async def test_a_threshold_that_is_lowered_raises_its_alarm(
    live_server: Server, tmp_path: Path
) -> None:
    async with working(
        live_server.url,
        tmp_path,
        WARNING_ENABLE="true",
        ALERTS_INTERVAL=0.2,
        SPIDER_MAX_RETRY_TIMES=0,
        CIRCUIT_FAILURE_THRESHOLD=0,
        DOWNLOAD_DELAY=0.02,
        WARNING_FAILED_RATE=0,
    ) as pair:
        pair.site.answer = lambda path: Answer(status=500)
        role = Role(pair.client, "t", ROLE)

        async def rules() -> set[str]:
            recorded = await role.recorded()
            return {alarm.rule for alarm in decode(recorded).alarms.values()} if recorded else set()

        async def fires(seconds: float) -> bool:
            for _ in range(int(seconds / 0.05)):
                if "failed_requests" in await rules():
                    return True
                await asyncio.sleep(0.05)
            return False

        assert not await fires(2.0)
        await pair.holds("WARNING_FAILED_COUNT", "3")
        assert await fires(5.0)
