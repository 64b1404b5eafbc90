"""What `orbweb alerts test` and `watch` do: they send, so they need the channels."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from orbweb.alarms.channels.base import Channel, NotDelivered
from orbweb.alarms.notices import Letter
from orbweb.alarms.post import Post
from orbweb.alarms.rules import limits_of
from orbweb.alarms.states import Alarm, State
from orbweb.cli import show
from orbweb.cli.store import existing_store
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.servers import Servers, reach
from orbweb.settings import Settings
from orbweb.settings.log import configure_log
from orbweb.spiders.build_watch import build_standing_watch, wanted_channels


def test(settings: Settings, wanted: Sequence[str], *, as_json: bool) -> int:
    """Send a letter to each channel; 1 when one does not take it."""
    channels = wanted_channels(settings)
    names = [channel.name for channel in channels]
    if not channels:
        raise ConfigError(
            "no channel is set: WARNING_FEISHU_WEBHOOK, WARNING_DINGTALK_WEBHOOK, "
            "WARNING_WECHAT_WEBHOOK, WARNING_EMAIL or ALERTS_CHANNELS"
        )
    if unknown := next((name for name in wanted if name not in names), ""):
        raise ConfigError(f"there is no channel {unknown}; there are: {', '.join(names)}")
    chosen = [channel for channel in channels if not wanted or channel.name in wanted]
    found = asyncio.run(_send_all(settings, chosen))
    if as_json:
        show.as_json([{"channel": name, "ok": ok, "answer": answer} for name, ok, answer in found])
    else:
        show.as_table(
            ("CHANNEL", "", "THE SERVICE SAYS"),
            [(name, "ok" if ok else "REFUSED", answer) for name, ok, answer in found],
        )
    return 0 if all(ok for _, ok, _ in found) else 1


async def _send_all(settings: Settings, channels: list[Channel]) -> list[tuple[str, bool, str]]:
    post, limits = Post(channels, settings["ALERTS_LANGUAGE"]), limits_of(settings)
    at_ms = int(time.time() * 1000)
    alarm = Alarm("nothing_done", "TEST", "", "", at_ms, State.FIRING, detail="(this is a test)")

    async def send(channel: Channel) -> tuple[str, bool, str]:
        letter = Letter(f"{at_ms}-test", channel.name, False, [alarm])
        try:
            answer = await channel.send(post.message(letter, channel.language, limits))
        except NotDelivered as error:
            return channel.name, False, str(error)
        return channel.name, True, answer

    return list(await asyncio.gather(*map(send, channels)))


def watch(settings: Settings) -> int:
    """Judge the fleet until SIGTERM or SIGINT; returns 0."""
    configure_log(settings)
    channels = wanted_channels(settings)
    if not channels:
        show.note("no channel is set: alarms go to the log only (orbweb alerts test says more)")
    with existing_store(settings, Path.cwd()) as url:
        asyncio.run(_watch(url, settings, channels))
    return 0


async def _watch(url: str, settings: Settings, channels: Sequence[Channel]) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    servers = await _reach_some_time(url, settings, stopped)
    if servers is None:
        return
    try:
        judge = build_standing_watch(settings, servers, channels)
        work = asyncio.create_task(judge.run())
        stop = asyncio.create_task(stopped.wait())
        await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
        judge.stop()
        await work
        stop.cancel()
    finally:
        await servers.aclose()


async def _reach_some_time(url: str, settings: Settings, stopped: asyncio.Event) -> Servers | None:
    """The store; waits for it, as a watch may be started first. None when told to stop before."""
    said = False
    while not stopped.is_set():
        try:
            return await reach(url, settings["REDIS_KEY_PREFIX"], settings["STORE_TIMEOUT"])
        except StoreUnavailable as error:
            if not said:
                show.note(f"waiting for the store: {error}")
            said = True
        try:
            async with asyncio.timeout(1.0):
                await stopped.wait()
        except TimeoutError:
            continue
    return None
