"""The watch: one process of the fleet at a time judges, and tells; the others stand by."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from orbweb.alarms.channels.base import Channel
from orbweb.alarms.facts import Facts
from orbweb.alarms.heartbeat import Heartbeat
from orbweb.alarms.judge import Docket, decode, encode, judge
from orbweb.alarms.notices import Letter, Policy, Silence, waits_for_others
from orbweb.alarms.outage import Outage, Standing
from orbweb.alarms.post import Post
from orbweb.alarms.rules import Limits
from orbweb.alarms.states import State
from orbweb.alarms.wording import end_line, line
from orbweb.errors import OrbwebError, StoreUnavailable
from orbweb.frontier.roles import Lead
from orbweb.log import event, get_logger

LEASE_LOOKS = 3
"""A holder that has not looked for so many intervals has lost the role."""

SHORTEST_LEASE_SECONDS = 2.0
LAST_SECONDS = 3.0
"""How long letters may hold up the end of a process."""

LAST_LOOK_SECONDS = 2.0
"""How long a look may, that is under way or is the last one."""

RETRY_SECONDS = 1.0
GROUP_LOOK_SECONDS = 1.0
"""The next look comes so soon when an alarm waits for others of its run."""

log = get_logger("orbweb.alarms")


class Seat(Protocol):
    """The role of the judge. See `orbweb.frontier.roles.Role`."""

    async def lead(self, who: str, lease_ms: int, rank: int = 0) -> Lead: ...

    async def give_back(self, who: str) -> None: ...

    async def record(self, fence: int, words: bytes) -> bool: ...

    async def recorded(self) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class WatchTools:
    """What a watch works with. What is called may have changed since: settings are hot."""

    seat: Seat
    look: Callable[[], Awaitable[Facts]]
    silences: Callable[[], Awaitable[list[Silence]]]
    limits: Callable[[], Limits]
    policy: Callable[[], Policy]
    post: Post
    who: str
    rank: int
    """0: can tell nobody; 1: a node; 2: a process that does nothing else."""
    interval_seconds: float
    calm_ms: Callable[[], int]
    clock: Callable[[], float]
    wall_ms: Callable[[], int]
    heartbeat: Heartbeat | None = None
    rng: random.Random = field(default_factory=random.Random)


class Watch:
    """Takes part in the watch until it is stopped.

    Who has the role looks, judges, puts down what it knows under its fence, and only then tells:
    a holder that has lost the role tells nothing more. A letter that was sent but not yet marked
    as sent when its holder died is sent once more by the next one, with the same id.
    """

    def __init__(self, tools: WatchTools) -> None:
        self.fence = 0
        self._tools = tools
        self._lease_seconds = max(LEASE_LOOKS * tools.interval_seconds, SHORTEST_LEASE_SECONDS)
        self._docket: Docket | None = None
        self._silences: list[Silence] = []
        self._outage = Outage()
        self._own_letters: list[Letter] = []
        """Of outages: they are in no store."""
        self._standing = Standing.HOLDER if tools.rank > 1 else Standing.OTHER
        self._server_ahead_ms = 0
        self._stopping = asyncio.Event()
        self._sending: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Let `run` return soon, after a last look. Call it on the watch's own loop."""
        self._stopping.set()

    async def run(self) -> None:
        """Watch until `stop`. The store may come and go meanwhile."""
        async with asyncio.TaskGroup() as group:
            while not self._stopping.is_set():
                pause = await self._unless_stopped(self._round(group, self._tools.policy()))
                await self._wait(pause)
            if not self._outage.lasts or self._outage.told:  # the store may be back by now
                hasty = replace(self._tools.policy(), group_wait_ms=0)
                await self._unless_stopped(self._round(group, hasty))
            if self._sending:
                await asyncio.wait(self._sending, timeout=LAST_SECONDS)
            for task in self._sending:
                task.cancel()
        if not self._outage.lasts:
            await self._leave()

    async def _unless_stopped(self, work: Coroutine[Any, Any, float]) -> float:
        """Do it; once the watch is to stop, a store that does not answer holds nothing up."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        done, _ = await asyncio.wait({task}, timeout=LAST_LOOK_SECONDS)
        if not done:
            task.cancel()
            await asyncio.wait({task})
            return 0.0
        return task.result()

    # -- one round

    async def _round(self, group: asyncio.TaskGroup, policy: Policy) -> float:
        """Lead if possible, and then look; returns after how many seconds to come again."""
        tools = self._tools
        try:
            lead = await tools.seat.lead(tools.who, round(self._lease_seconds * 1000), tools.rank)
            self._heard_of(lead, policy)
            if lead.fence:
                await self._judge(group, policy)
        except StoreUnavailable as error:
            return self._store_away(group, error, policy)
        except Exception:
            log.exception("a look at the fleet failed: another process may judge it")
            self.fence, self._docket = 0, None
            await self._leave()
            return self._lease_seconds
        self._send(group, self._own_letters, None)
        if self.fence:
            docket = self._docket
            waits = docket is not None and waits_for_others(docket.alarms, docket.judged_ms)
            soon = GROUP_LOOK_SECONDS if waits else tools.interval_seconds
            return min(soon, tools.interval_seconds)
        left = min(lead.left_ms / 1000, self._lease_seconds)
        return left + tools.rng.uniform(0.05, 0.5) * tools.interval_seconds

    def _heard_of(self, lead: Lead, policy: Policy) -> None:
        """The store answers: what this process is from now on."""
        self._server_ahead_ms = lead.at_ms - self._tools.wall_ms()
        if self._outage.lasts:
            self._own_letters += self._outage.answered(lead.at_ms, policy)
        if lead.fence:
            self._standing = Standing.HOLDER
        else:
            self._standing = Standing.DEPUTY if lead.deputy else Standing.OTHER
        if self.fence != lead.fence:
            self._docket = None
            if bool(self.fence) != bool(lead.fence):
                event(log, "alarm_watch" if lead.fence else "alarm_standby", who=self._tools.who)
        self.fence = lead.fence

    async def _judge(self, group: asyncio.TaskGroup, policy: Policy) -> None:
        tools = self._tools
        docket = self._docket or await self._take_over()
        facts = await tools.look()
        self._silences = await tools.silences()
        limits = tools.limits()
        changed = judge(docket, facts, limits, policy, self._silences, calm_ms=tools.calm_ms())
        docket.judged_by = tools.who
        self._docket = docket
        if not await self._put_down(docket):
            return
        for key in changed:
            alarm = docket.alarms[key]
            over = alarm.state is State.RESOLVED
            event(
                log,
                "alarm_resolved" if over else "alarm_firing",
                level=logging.INFO if over else logging.WARNING,
                text=(end_line if over else line)(alarm, limits),
            )
        self._send(group, docket.letters, docket)
        beat = tools.heartbeat
        if beat is not None and not tools.post.failing and beat.due():
            self._start(group, beat.beat())

    async def _take_over(self) -> Docket:
        """What the last holder knew."""
        kept = await self._tools.seat.recorded()
        if kept is None:
            return Docket()
        try:
            return decode(kept)
        except OrbwebError as error:
            log.warning("alarms begin anew: %s", error)
            return Docket()

    async def _put_down(self, docket: Docket) -> bool:
        """False when another has the role by now: then nothing more is told here."""
        if await self._tools.seat.record(self.fence, encode(docket)):
            return True
        self.fence, self._docket, self._standing = 0, None, Standing.OTHER
        event(log, "alarm_standby", who=self._tools.who)
        return False

    # -- the store is away

    def _store_away(
        self, group: asyncio.TaskGroup, error: StoreUnavailable, policy: Policy
    ) -> float:
        tools = self._tools
        self._own_letters += self._outage.failed(
            str(error),
            tools.clock(),
            self._now_ms(),
            tools.limits().of("store_unreachable"),
            self._standing,
            policy,
            self._silences,
        )
        self._send(group, self._own_letters, None)
        return min(RETRY_SECONDS, tools.interval_seconds)

    # -- letters

    def _send(self, group: asyncio.TaskGroup, letters: list[Letter], docket: Docket | None) -> None:
        for channel, letter in self._tools.post.due(letters, self._now_ms()):
            self._start(group, self._deliver(channel, letter, letters, docket))

    async def _deliver(
        self, channel: Channel, letter: Letter, letters: list[Letter], docket: Docket | None
    ) -> None:
        tools = self._tools
        over = await tools.post.deliver(channel, letter, tools.limits(), self._now_ms())
        if docket is None:
            if over:
                letters.remove(letter)
            return
        if over:
            docket.letters = [each for each in docket.letters if each.id != letter.id]
        if docket is self._docket and self.fence:
            try:
                await self._put_down(docket)
            except StoreUnavailable as error:  # the next look puts it down
                log.debug("that a letter was sent is not put down yet: %s", error)

    def _start(self, group: asyncio.TaskGroup, work: Awaitable[None]) -> None:
        async def contained() -> None:
            try:
                await work
            except Exception:
                log.exception("alarms: unexpected error")

        task = group.create_task(contained())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    # -- time, and the end

    def _now_ms(self) -> int:
        """The server's wall clock, as far as is known."""
        return self._tools.wall_ms() + self._server_ahead_ms

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _leave(self) -> None:
        """Let another take the role at once."""
        try:
            async with asyncio.timeout(1.0):
                await self._tools.seat.give_back(self._tools.who)
        except (StoreUnavailable, TimeoutError) as error:
            log.debug("the watch was not given back: %r", error)
