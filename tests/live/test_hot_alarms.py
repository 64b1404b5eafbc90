"""Thresholds of alarms change in two nodes in the middle of a run, whichever of them judges."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.live.pair import Answer, Pair, working
from tests.live.proofs import proves
from tests.servers import Server

from orbweb.alarms.judge import Docket, decode
from orbweb.alarms.states import State
from orbweb.errors import OrbwebError

QUICK = {"WARNING_ENABLE": "true", "ALERTS_INTERVAL": 0.2, "ALERTS_GROUP_WAIT": 0}

CHANGED = {
    "ALERTS_BACKLOG": 11, "ALERTS_BACKLOG_FOR": 12, "ALERTS_BLOCKED_RATE": 0.13,
    "ALERTS_CALM": 14, "ALERTS_CONFIG_DRIFT": 15, "ALERTS_CONSUMER_STUCK": 16, "ALERTS_CPU": 1.7,
    "ALERTS_CPU_FOR": 18, "ALERTS_DISK": 0.999, "ALERTS_DNS_RATE": 0.2, "ALERTS_NODE_SILENT": 21,
    "ALERTS_NODE_STUCK": 22, "ALERTS_NOTHING_DONE": 23, "ALERTS_SCHEDULE_LATE": 24,
    "ALERTS_RUN_LOST": 35,
    "ALERTS_SINK_DOWN": 25, "ALERTS_SOURCE_DOWN": 26, "ALERTS_STORE_DOWN": 27,
    "ALERTS_STORE_MEMORY": 0.28, "ALERTS_WINDOW": 29, "WARNING_FAILED_COUNT": 30,
    "WARNING_FAILED_RATE": 0.31, "WARNING_INTERVAL": 32, "WARNING_MIN_REQUESTS": 33,
    "WARNING_STALL_SECONDS": 34,
}  # fmt: skip


async def docket(pair: Pair) -> Docket:
    kept = await pair.client.get("{t:0}:role:alerts:record")
    try:
        return decode(kept or b"")
    except OrbwebError:
        return Docket()


async def goes_by(pair: Pair, wanted: dict[str, float], seconds: float, *, but: str = "") -> str:
    """Wait until a judge goes by these values; returns which one it is."""
    found: list[Docket] = []

    async def looked() -> bool:
        found.append(await docket(pair))
        last = found[-1]
        return last.judged_by not in ("", but) and all(
            last.in_force.get(name) == value for name, value in wanted.items()
        )

    for _ in range(round(seconds / 0.05)):
        if await looked():
            return found[-1].judged_by
        await asyncio.sleep(0.05)
    raise AssertionError(f"{found[-1].in_force} are not {wanted}")


@proves(*CHANGED)
async def test_thresholds_of_alarms(live_server: Server, tmp_path: Path) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.02, **QUICK) as pair:
        first = await goes_by(pair, {"ALERTS_BACKLOG": 100_000.0}, 10)
        for name, value in CHANGED.items():
            await pair.holds(name, str(value))
        wanted = {name: float(value) for name, value in CHANGED.items()}
        assert await goes_by(pair, wanted, 2) == first
        for spider in pair.spiders:
            spider.stop()
        await asyncio.gather(*pair.tasks)
        # Whichever was not the judge took the role for its last look: it goes by the same values.
        assert (await docket(pair)).in_force.items() >= wanted.items()


async def test_a_live_threshold_raises_an_alarm_and_ends_it(
    live_server: Server, tmp_path: Path
) -> None:
    async with working(live_server.url, tmp_path, DOWNLOAD_DELAY=0.02, **QUICK) as pair:
        await goes_by(pair, {"WARNING_STALL_SECONDS": 600.0}, 10)
        await pair.holds("ALERTS_CALM", "0")
        pair.site.answer = lambda path: Answer(seconds=30)
        await pair.holds("WARNING_STALL_SECONDS", "1")

        async def state(wanted: State) -> bool:
            alarms = (await docket(pair)).alarms.values()
            return any(each.rule == "no_progress" and each.state is wanted for each in alarms)

        for wanted, value in ((State.FIRING, "600"), (State.RESOLVED, "600")):
            for _ in range(200):
                if await state(wanted):
                    break
                await asyncio.sleep(0.05)
            assert await state(wanted)
            await pair.holds("WARNING_STALL_SECONDS", value)
