"""The post: takes letters to their channels, one at a time for each, again until they are taken."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from orbweb.alarms.channels.base import Channel, Message, NotDelivered
from orbweb.alarms.notices import Letter
from orbweb.alarms.rules import Limits
from orbweb.alarms.texts import Language
from orbweb.alarms.wording import end_line, line, wording
from orbweb.errors import StoreUnavailable
from orbweb.frontier.deliveries import REFUSED, SENT
from orbweb.log import event, get_logger

FIRST_PAUSE_MS = 5000
LONGEST_PAUSE_MS = 300_000
MOST_TRIES = 60
"""After about five hours a letter is given up; the alarm stays listed."""

FAILING_TRIES = 3
"""A channel that has refused a letter so often does not work."""

log = get_logger("orbweb.alarms")


class Post:
    """The channels of one process."""

    def __init__(
        self,
        channels: Sequence[Channel],
        language: str,
        rng: random.Random | None = None,
        *,
        count: Callable[[str, str], Awaitable[None]] | None = None,
    ) -> None:
        """`language`: `en`, `zh`, or `auto` for what each channel's readers are taken to read.

        `count` is told of each try, as `Deliveries.count` is.
        """
        self._channels = {channel.name: channel for channel in channels}
        self._language = language
        self._rng = rng or random.Random()
        self._count = count
        self._busy: set[str] = set()
        self.failing: dict[str, str] = {}
        """Channels that do not take letters now, and what they say."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._channels)

    def due(self, letters: Iterable[Letter], at_ms: int) -> Iterator[tuple[Channel, Letter]]:
        """The next letter of each channel that is free. What is due must be delivered."""
        for letter in letters:
            channel = self._channels.get(letter.channel)
            if channel is None or letter.channel in self._busy:
                continue
            if letter.next_ms <= at_ms:
                self._busy.add(letter.channel)
                yield channel, letter

    async def deliver(self, channel: Channel, letter: Letter, limits: Limits, at_ms: int) -> bool:
        """Try once; True when the letter is off our hands: taken, or given up for good.

        A letter that was not taken says when to try again.
        """
        try:
            answer = await channel.send(self.message(letter, channel.language, limits))
        except NotDelivered as error:
            await self._tell(channel, REFUSED)
            return self._refused(letter, str(error), at_ms)
        except Exception as error:  # no letter may hold up those behind it
            log.exception("alarms: %s: unexpected error", letter.channel)
            await self._tell(channel, REFUSED)
            return self._refused(letter, type(error).__name__, at_ms)
        finally:
            self._busy.discard(letter.channel)
        await self._tell(channel, SENT)
        self.failing.pop(letter.channel, None)
        event(log, "alarm_told", channel=letter.channel, alarms=len(letter.alarms), answer=answer)
        return True

    def message(self, letter: Letter, usual: Language, limits: Limits) -> Message:
        """The letter in words."""
        lang: Language = usual if self._language == "auto" else "zh"
        if self._language == "en":
            lang = "en"
        say = end_line if letter.ended else line
        return Message(
            letter.id,
            _title(letter, lang),
            "\n".join(say(alarm, limits, lang) for alarm in letter.alarms),
            letter_data(letter, limits, lang),
        )

    async def _tell(self, channel: Channel, result: str) -> None:
        """Count a try, if the store answers: alarms go out without it too."""
        if self._count is not None:
            with suppress(StoreUnavailable):
                await self._count(channel.name, result)

    def _refused(self, letter: Letter, error: str, at_ms: int) -> bool:
        letter.tries += 1
        letter.error = error
        pause = min(FIRST_PAUSE_MS * 2 ** min(letter.tries - 1, 20), LONGEST_PAUSE_MS)
        letter.next_ms = at_ms + round(pause * self._rng.uniform(0.8, 1.2))
        given_up = letter.tries >= MOST_TRIES
        if letter.tries >= FAILING_TRIES:
            self.failing[letter.channel] = error
        event(
            log,
            "alarm_given_up" if given_up else "alarm_not_told",
            level=logging.ERROR if given_up or letter.tries == 1 else logging.WARNING,
            channel=letter.channel,
            tries=letter.tries,
            error=error,
        )
        return given_up


def letter_data(letter: Letter, limits: Limits, lang: Language) -> dict[str, object]:
    """A letter for programs."""
    alarms = []
    for alarm in letter.alarms:
        words = wording(alarm, limits, lang)
        alarms.append(
            {
                "key": alarm.key,
                "rule": alarm.rule,
                "severity": str(alarm.severity),
                "state": str(alarm.state),
                "job": alarm.job,
                "run": alarm.run,
                "subject": alarm.subject,
                "owner": alarm.owner,
                "value": alarm.value,
                "limit": limits.of(alarm.rule),
                "since_ms": alarm.since_ms,
                "fired_ms": alarm.fired_ms,
                "resolved_ms": alarm.resolved_ms,
                "wrong": words.wrong,
                "act": words.act,
                "undo": words.undo,
                "note": words.note,
            }
        )
    return {"state": "resolved" if letter.ended else "firing", "alarms": alarms}


def _title(letter: Letter, lang: Language) -> str:
    first, more = letter.alarms[0], len(letter.alarms) - 1
    place = first.job or ("集群" if lang == "zh" else "fleet")
    also = f" (+{more})" if more else ""
    if lang == "zh":
        return f"[orbweb] {place} {'已恢复' if letter.ended else '告警'}: {first.rule}{also}"
    return f"[orbweb] {place} {'resolved' if letter.ended else 'alarm'}: {first.rule}{also}"
